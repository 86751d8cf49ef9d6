"""The modules that a model's source and its helper modules import, and that are missing on this machine."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path

from bls_notebook.records.regular_file import source_text
from bls_notebook.repository.source.discovery import IGNORED, is_model
from bls_notebook.repository.source.pip_packages import distribution_of
from bls_notebook.repository.source.syntax import import_statements, syntax_tree

_MOST_FOLDERS = 2000  # of a project that are searched
_PROVIDED = sys.stdlib_module_names | {"triton_python_backend_utils", "c_python_backend_utils"}


def project_folder(module: str, folder: Path, top: Path) -> Path | None:
    """Return the folder in the project `top` that contains a top-level module, nearest to the model's `folder`."""
    above = [folder, *(place for place in folder.parents if place.is_relative_to(top))]
    for inside in (place / part for place in above for part in ("", "src", "lib")):
        parts = inside / module  # often a package without __init__.py
        package = any(chain(parts.glob("*.py"), parts.glob("*/*.py"))) and not is_model(parts)
        if package or (inside / f"{module}.py").is_file():
            return inside
    if distribution_of(module) or _is_installed(module):  # a folder of this name elsewhere means little
        return None
    for name, folders, files in islice(os.walk(top), _MOST_FOLDERS):
        folders[:] = sorted(f for f in folders if f not in IGNORED and not f.startswith("."))
        if f"{module}.py" in files or (module in folders and Path(name, module, "__init__.py").is_file()):
            return Path(name)
    return None


def missing_modules(source: Path, top: Path) -> list[str]:
    """Return the modules, not of the project, that a source and its helper modules import and that are missing here."""
    missing: dict[str, None] = {}
    pending = [source]
    for file in pending:  # grows
        for base, name in _imported(file):
            first = name.partition(".")[0]
            folder = base or project_folder(first, file.parent, top)
            if folder is None and not _is_installed(first):
                missing.setdefault(first)
            for part in name.split(".") if folder is not None else ():
                folder = Path(folder or "", part)
                files = (folder.with_name(f"{part}.py"), folder / "__init__.py")
                pending += [f for f in files if f.is_file() and f not in pending]
    return list(missing)


def _imported(file: Path) -> Iterator[tuple[Path | None, str]]:
    """Yield the dotted names that a source may import, and the folder of relative ones."""
    tree = syntax_tree(source_text(file))
    for node in import_statements(tree, needed=True) if tree is not None else ():
        level, within = (node.level, node.module or "") if isinstance(node, ast.ImportFrom) else (0, "")
        base = file.parents[level - 1] if level else None
        names = [f"{within}.{alias.name}".removeprefix(".") for alias in node.names]
        yield from ((base, name) for name in names if base or name.partition(".")[0] not in _PROVIDED)


def _is_installed(module: str) -> bool:
    with suppress(ValueError):  # of modules without a spec
        return module in sys.modules or find_spec(module) is not None
    return False
