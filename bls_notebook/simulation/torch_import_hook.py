"""Install simulated GPUs in PyTorch when it is imported; the hook never imports it."""

from __future__ import annotations

import importlib.abc
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_lock = threading.Lock()
_installed = False


def watch() -> None:
    """Install now if PyTorch is imported, else when it is."""
    if _installed:
        return
    if getattr(sys.modules.get("torch"), "from_dlpack", None) is not None:  # its import is complete
        _install()
    elif _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _install() -> None:
    global _installed
    with _lock:
        if not _installed:
            from .torch import installation

            installation.install()
            _installed = True


class _Finder(importlib.abc.MetaPathFinder):
    """Delegates to the other finders, and wraps PyTorch's loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if str(fullname) != "torch":
            return None
        for finder in sys.meta_path:
            find: Any = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and type(spec.name) is str:  # else the model has its own `torch`
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads PyTorch with its own loader, then installs the simulated GPUs."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        _install()


_finder = _Finder()
