"""Names that are imported on first use, by their targets, "module:name"."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def load(target: str) -> Any:
    """Import and return an absolute target: a module, or an attribute of one."""
    module_name, _, name = target.partition(":")
    module = import_module(module_name)
    return getattr(module, name) if name else module


def offer(package: str, modules: Mapping[str, str]) -> None:
    """Let a package of the core offer names of its modules to capabilities; each is imported on first use.

    Parameters
    ----------
    package : str
        The package's `__name__`.
    modules : mapping
        Names, separated by spaces, by their module within the package, or by its full name.
        `tests/packaging/generated.py` writes them to the package's `__init__.pyi`.
    """
    root = f"{__name__.partition('.')[0]}."
    full = {module if module.startswith(root) else f"{package}.{module}": names for module, names in modules.items()}
    import_lazily(package, {name: f"{module}:{name}" for module, names in full.items() for name in names.split()})


def import_lazily(module: str, targets: Mapping[str, str]) -> None:
    """Let a module import names from their absolute targets on first use."""
    loaded = vars(sys.modules[module])

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in targets:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = loaded[name] = load(targets[name])
        return value

    loaded.update(__getattr__=__getattr__, __dir__=lambda: sorted({*targets, *loaded.get("__all__", ())}))
