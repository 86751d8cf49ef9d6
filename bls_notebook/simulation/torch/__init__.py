"""PyTorch on simulated GPUs: `cuda` devices work in the code of models, in host memory; other code is unaffected.

`watch` installs the simulation when PyTorch is imported, and never imports PyTorch itself.

A tensor on a simulated GPU is a PyTorch tensor in host memory whose class reports `cuda:0`
(`function_dispatch.py`). PyTorch computes on the CPU; `docs/reference/simulated_torch.md` lists its functions.
A `TorchFunctionMode` on threads that run models' code (`installation.py`) receives every call of PyTorch;
`tensor_methods.py` overrides functions that depend on the device, and `cuda_functions.py` replaces `torch.cuda`.

Costs, measured with tensors of four elements, for which PyTorch needs 2 us: 5 us more for an operation on a
simulated GPU, 2 us more for a CPU operation in a model's code, 3 us for entering a model's code.
"""

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
    """Install the simulated GPUs as soon as PyTorch is imported, perhaps now."""
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
            from . import installation

            installation.install()
            _installed = True


class _Finder(importlib.abc.MetaPathFinder):
    """Finds PyTorch through the other finders, and installs the simulated GPUs after its import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if str(fullname) != "torch":
            return None
        others: list[Any] = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others if hasattr(finder, "find_spec"))
        spec: ModuleSpec | None = next((spec for spec in specs if spec is not None), None)
        loader: Any = None if spec is None else spec.loader
        if spec is not None and loader is not None and type(spec.name) is str:  # not a model's own module named torch
            execute = loader.exec_module

            def execute_and_install(module: ModuleType) -> None:
                del loader.exec_module
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _install()

            loader.exec_module = execute_and_install
        return spec


_finder = _Finder()
