"""The modules of a project that a model's source imports, and the packages that all of these need."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from .pip_packages import distribution_of
from .syntax import import_statements, syntax_tree

_MOST_FOLDERS = 2000  # of a project that are searched
_NOT_OURS = frozenset({"site-packages", "node_modules", "__pycache__"})
_PROVIDED = frozenset({"triton_python_backend_utils", "c_python_backend_utils"})


def project_folder(module: str, folder: Path, top: Path) -> Path | None:
    """Return the folder in the project `top` that contains a top-level module, nearest to the model's `folder`."""
    for place in (folder, *folder.parents):
        for inside in (place, place / "src", place / "lib"):
            parts = inside / module  # often a package without __init__.py
            if (inside / f"{module}.py").is_file() or any(parts.glob("*.py")) or any(parts.glob("*/*.py")):
                return inside
        if place == top:
            break
    if distribution_of(module) or _is_installed(module):  # a folder of this name elsewhere means little
        return None
    for number, (name, folders, files) in enumerate(os.walk(top)):
        folders[:] = sorted(f for f in folders if f not in _NOT_OURS and not f.startswith("."))
        if f"{module}.py" in files or (module in folders and (Path(name) / module / "__init__.py").is_file()):
            return Path(name)
        if number >= _MOST_FOLDERS:
            break
    return None


def missing_packages(source: Path, top: Path) -> list[str]:
    """Return the modules, not of the project, that a source and its helper modules import and that are missing here."""
    missing: dict[str, None] = {}
    pending = [source]
    for file in pending:  # grows
        try:
            tree = syntax_tree(file.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        for statement in import_statements(tree, needed=True) if tree is not None else ():
            for base, name in _imported(statement, file):
                first = name.partition(".")[0]
                if base is None and (first in _PROVIDED or first in sys.stdlib_module_names):
                    continue
                folder = base or project_folder(first, file.parent, top)
                if folder is not None:
                    pending += [f for f in _files(folder, name) if f not in pending]
                elif not _is_installed(first):
                    missing.setdefault(first)
    return list(missing)


def _imported(statement: ast.Import | ast.ImportFrom, file: Path) -> Iterator[tuple[Path | None, str]]:
    """Yield the dotted names that a statement may import, and the folder if the import is relative."""
    if isinstance(statement, ast.Import):
        yield from ((None, alias.name) for alias in statement.names)
        return
    base = file.parents[statement.level - 1] if 0 < statement.level <= len(file.parents) else None
    for alias in statement.names:
        yield base, f"{statement.module}.{alias.name}" if statement.module else alias.name


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files that run when a dotted name is imported from a folder."""
    for part in name.split("."):
        folder /= part
        yield from filter(Path.is_file, (folder.with_name(f"{part}.py"), folder / "__init__.py"))


def _is_installed(module: str) -> bool:
    try:
        return module in sys.modules or find_spec(module) is not None
    except (ImportError, ValueError):
        return False
