"""The packages that a model's code needs, and the distributions that provide them.

Guarantee: a distribution is never a guess, because `pip install` of a guessed name runs somebody else's code. It is in
`distributions.json`, or known from the metadata of what is installed.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path

from .discovery import IGNORED, is_model
from .syntax import import_statements, syntax_tree

_TABLE = json.loads(Path(__file__).with_name("distributions.json").read_text("utf-8"))
_MOST_FOLDERS = 2000  # of a project that are searched
_PROVIDED = sys.stdlib_module_names | {"triton_python_backend_utils", "c_python_backend_utils"}


def _entry(table: str, module: str) -> str:
    """Return a table's entry for a dotted name, else for the nearest parent, else an empty string."""
    while module and module not in _TABLE[table]:
        module = module.rpartition(".")[0]
    return str(_TABLE[table].get(module, ""))


def distribution_of(module: str) -> str:
    """Return the argument of `pip install` for a module, given its dotted name; empty if it is not certain."""
    known = _entry("distributions", module)
    if known or _entry("words", module):
        return known
    top = module.partition(".")[0]
    names = set(packages_distributions().get(top, ()))
    spec = find_spec(top) if len(names) == 1 else None
    # A module without a file is a namespace of several distributions; one with a direct URL is not from an index.
    certain = spec and spec.origin and not any(distribution(name).read_text("direct_url.json") for name in names)
    return names.pop() if certain else ""


def install_advice(modules: Iterable[str], command: str) -> str:
    """Return how to install modules: one `command` for the known distributions, and words for the others."""
    known = {module: distribution_of(module) for module in modules}
    names = " ".join(dict.fromkeys(filter(None, known.values())))
    words = {m: _entry("words", m) or ("" if name else "the distribution is unknown") for m, name in known.items()}
    return "; ".join([f"`{command} {names}`"] * bool(names) + [f"`{m}`: {text}" for m, text in words.items() if text])


def installed_as(module: str) -> str:
    """Return the prefix of a module's package name in requirement files; builds of a package differ in the rest."""
    return _entry("prefixes", module) or re.split(r"[<\[]", distribution_of(module).strip("'") or module)[0].lower()


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


def missing_packages(source: Path, top: Path) -> list[str]:
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
    tree = syntax_tree(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else None
    for node in import_statements(tree, needed=True) if tree is not None else ():
        level, within = (node.level, node.module or "") if isinstance(node, ast.ImportFrom) else (0, "")
        base = file.parents[level - 1] if level else None
        names = [f"{within}.{alias.name}".removeprefix(".") for alias in node.names]
        yield from ((base, name) for name in names if base or name.partition(".")[0] not in _PROVIDED)


def _is_installed(module: str) -> bool:
    with suppress(ValueError):  # of modules without a spec
        return module in sys.modules or find_spec(module) is not None
    return False
