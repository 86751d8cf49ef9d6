"""PyTorch on simulated GPUs: in a model's code `cuda` works, in host memory; other code is unaffected.

`watch` installs it when PyTorch is imported, and never imports PyTorch itself.

A tensor on a simulated GPU is a PyTorch tensor in host memory, of a class that reports `cuda:0`
(`gpu_tensor.py`). PyTorch computes on the CPU, with the same bits: `docs/devices.md` lists what works. A
`TorchFunctionMode` on threads that run models' code (`installation.py`) sees every function that takes a
device; `tensor_methods.py` overrides those that differ, and `cuda_functions.py` replaces `torch.cuda`.

An operation takes 5 us more than on the CPU, a CPU operation in a model's code 2 us more, and entering a
model's code 3 us (measured with tensors of four elements, for which PyTorch takes 2 us).
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
    """Install the simulated GPUs now if PyTorch is imported, else when it is."""
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
    """Finds PyTorch with the other finders, and installs the simulated GPUs when its loader is done."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if str(fullname) != "torch":
            return None
        others: list[Any] = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others if hasattr(finder, "find_spec"))
        spec: ModuleSpec | None = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None and type(spec.name) is str:  # else a model's own `torch`
            loader: Any = spec.loader
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
