"""Finds modules that a cell's model imports, and that lie in the notebook's folder and nowhere else.

Here they are imported, because the kernel looks in its own folder too; on Triton they will not be there. A
static look at the source: nothing is run or imported.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from pathlib import Path

from bls_notebook.repository.modules.imports import FINDER, SHARED

from .imported import imported_modules
from .syntax import syntax_tree


def stray_import_warnings(source: str, model: str) -> tuple[str, ...]:
    """Return a line for each module that the source imports from the notebook's folder."""
    return tuple(
        f"model '{model}', line {line}: module '{name}' is found in the notebook's folder only, and will not "
        f"exist on Triton; install it, or keep the model in a folder with {name} beside its model.py"
        for name, line in stray_imports(source).items()
    )


def stray_imports(source: str) -> dict[str, int]:
    """Return the top-level modules of the notebook's folder that a module imports, with the first lines."""
    tree = syntax_tree(source)
    if tree is None:
        return {}  # it has worse problems
    lines = imported_modules(tree)
    try:
        here = Path.cwd()
    except OSError:  # it has gone, and nobody finds anything there
        return {}
    elsewhere = [entry for entry in sys.path if not _is(entry, here)]
    if len(elsewhere) == len(sys.path):
        return {}  # the notebook's folder is not looked into
    strays = {n: line for n, line in lines.items() if n not in SHARED and _lies_in(n, here, elsewhere)}
    return dict(sorted(strays.items(), key=lambda item: (item[1], item[0])))


def _is(entry: str, folder: Path) -> bool:
    return os.path.realpath(entry) == os.path.realpath(folder)  # "" is the current folder


def _lies_in(name: str, here: Path, elsewhere: list[str]) -> bool:
    find = importlib.machinery.PathFinder.find_spec
    if find(name, [str(here)]) is None or find(name, elsewhere) is not None:
        return False
    passed = (importlib.machinery.PathFinder, FINDER)
    others = (finder for finder in sys.meta_path if finder not in passed)
    return not any(_finds(finder, name) for finder in others)  # installed for editing, perhaps


def _finds(finder: object, name: str) -> bool:
    find = getattr(finder, "find_spec", None)
    try:
        return find is not None and find(name, None) is not None
    except Exception:
        return False
