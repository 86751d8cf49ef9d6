"""What models import beside the standard library and their own files, with the versions that are here."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata

from bls_notebook.repository.source.imports import imported_modules
from bls_notebook.repository.source.syntax import syntax_tree

_OF_TRITON = frozenset({"triton_python_backend_utils", "c_python_backend_utils"})


def imported_names(sources: Iterable[tuple[str, str]]) -> set[str]:
    """Return the top-level modules that a model's sources, by path and text, import from elsewhere."""
    texts = dict(sources)
    own = {part for path in texts for part in path.removesuffix(".py").split("/")}
    found: set[str] = set()
    for text in texts.values():
        tree = syntax_tree(text)
        found.update(imported_modules(tree) if tree is not None else ())
    return found - own - _OF_TRITON - sys.stdlib_module_names


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def requirements(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return pip requirements of modules, pinned to the versions that are here, and the modules that are not.

    A version's local part (``+cpu``) is left out: it names a build that an index may not have. Python models
    on a server take NumPy 1, for which their process is built, whatever there is here (server/build.py).
    """
    pinned: set[str] = set()
    missing: set[str] = set()
    for name in names:
        found = _distributions().get(name, ())
        pinned.update(_pinned(each) for each in found)
        if not found:
            missing.add(name)
    return tuple(sorted(pinned, key=str.lower)), tuple(sorted(missing))


def _pinned(distribution: str) -> str:
    if distribution.lower() == "numpy":
        return "numpy<2"
    return f"{distribution}=={metadata.version(distribution).partition('+')[0]}"
