"""The module that models import as `cupy` while GPUs are simulated: NumPy's functions on simulated arrays.

Functions have NumPy's names and arguments, as CuPy's do; new arrays are on the current GPU.
"""

from __future__ import annotations

from functools import partial, wraps
from time import perf_counter_ns
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.devices import allocation_log, dlpack

from . import gpu_memory
from .absent_names import ABSENT
from .cupy_array import array_of, is_absent, memories, ndarray, place, unwrapped, wrapped
from .cupy_cuda import MemoryPool, PinnedMemoryPool, cuda

if TYPE_CHECKING:
    from collections.abc import Callable


def _on_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapped(function(*unwrapped(args), **unwrapped(kwargs)), *memories(args))

    return call


class Namespace(ModuleType):
    """A NumPy module (`source`) with its functions on the simulated GPU; `own` are additional or replaced names."""

    def __init__(self, name: str, source: ModuleType, own: dict[str, Any]) -> None:
        super().__init__(name, f"Simulation of {name} without a GPU.")
        self._source = source
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._source, name, None)
        absent = name.startswith("_") or is_absent(self._source.__name__, name)
        if absent or attribute is None or (isinstance(attribute, ModuleType) and name not in _MODULES):
            raise AttributeError(
                f"{self.__name__}.{name} does not exist on a simulated GPU, which has only the functions that NumPy "
                "and CuPy share; the rest of CuPy needs a CUDA GPU"
            )
        if isinstance(attribute, ModuleType):
            attribute = Namespace(f"{self.__name__}.{name}", attribute, {})
        elif not isinstance(attribute, type) and callable(attribute):
            attribute = _on_gpu(attribute)
        setattr(self, name, attribute)
        return attribute

    def __dir__(self) -> list[str]:
        absent = ABSENT.get(self._source.__name__, frozenset())
        return sorted({*vars(self), *(n for n in dir(self._source) if n[0] != "_" and n not in absent)})

    def __repr__(self) -> str:
        return f"<module {self.__name__!r} (simulated)>"


_MODULES = {"fft", "linalg", "random", "testing"}


def array(
    obj: Any, dtype: Any = None, copy: bool = True, order: str = "K", subok: bool = False, ndmin: int = 0
) -> ndarray:
    """Return a copy of a value as an array on the current GPU; accepts everything that NumPy or CuPy accepts."""
    if isinstance(obj, ndarray):
        same = dtype is None or np.dtype(dtype) == obj.dtype
        if not copy and same and obj._memory.gpu is gpu_memory.current_gpu() and ndmin <= obj.ndim:
            return obj
        return place(np.array(obj._host, dtype=dtype, ndmin=ndmin))
    if isinstance(obj, (list, tuple)) and any(memories(obj)):
        return place(np.array(_hosts(obj), dtype=dtype, ndmin=ndmin))
    if not isinstance(obj, np.ndarray) and _is_of_gpu(obj):
        return array(array_of(obj.__dlpack__()), dtype, copy, order, subok, ndmin)
    started = perf_counter_ns()
    host = np.array(obj, dtype=dtype, order="F" if order == "F" else "C", ndmin=ndmin)
    if host.dtype.kind not in "biufc":
        raise ValueError(f"Unsupported dtype {host.dtype}")
    out = place(host)
    if isinstance(obj, np.ndarray):
        allocation_log.moved("transfer", obj, out, perf_counter_ns() - started)
    return out


def _is_of_gpu(value: Any) -> bool:
    """Return whether a value is another library's tensor on a GPU."""
    try:
        return value.__dlpack_device__()[0] in dlpack.CUDA_DEVICES
    except (AttributeError, TypeError):
        return False


def _hosts(items: Any) -> Any:
    return [_hosts(item) for item in items] if isinstance(items, (list, tuple)) else unwrapped(items)


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, blocking: bool = False) -> ndarray:
    """Return a value as an array on the current GPU; an array of that GPU is returned itself."""
    return array(a, dtype, copy=False, order=order or "K")


def contiguous(a: Any, dtype: Any = None, *, order: Any) -> ndarray:
    """Return an array on the current GPU, contiguous in C or Fortran order (``C`` or ``F``)."""
    out = asarray(a, dtype)
    return out if out.flags[f"{order}_CONTIGUOUS"] else place(np.asarray(out._host, order=order))


def asnumpy(a: Any, stream: Any = None, order: Any = "C", out: Any = None, *, blocking: bool = True) -> Any:
    """Return an array in host memory."""
    if isinstance(a, ndarray):
        return a.get(order=order, out=out)
    host = np.asarray(a, order=order)
    if out is None:
        return host
    out[...] = host
    return out


def from_dlpack(array: Any, *, device: Any = None, copy: Any = None) -> ndarray:
    """Return an array that shares the memory of a DLPack capsule, or of an object with ``__dlpack__``.

    Raises CuPy's errors for host memory, and DLPackError for memory of a real GPU.
    """
    if dlpack.is_capsule(array):
        if dlpack.device_of_capsule(array)[0] in dlpack.CPU_DEVICES:
            raise RuntimeError("the DLPack capsule has CPU memory; use cupy.asarray")
        return array_of(array)
    kind, _ = array.__dlpack_device__()
    if kind in dlpack.CPU_DEVICES:
        raise TypeError(
            "CPU arrays cannot be directly imported to CuPy. Use `cupy.array(numpy.from_dlpack(input))` instead."
        )
    return array_of(array.__dlpack__())


def get_array_module(*args: Any) -> ModuleType:
    """Return this module if an argument is an array on a GPU, else NumPy."""
    return cupy if any(isinstance(a, ndarray) for a in args) else np


_pool = MemoryPool()
_pinned = PinnedMemoryPool()
_OWN: dict[str, Any] = {
    **{f.__name__: f for f in (array, asarray, asnumpy, from_dlpack, ndarray)},
    "__version__": "simulated",
    "__path__": [],
    "asanyarray": asarray,
    "ascontiguousarray": partial(contiguous, order="C"),
    "asfortranarray": partial(contiguous, order="F"),
    "cuda": cuda,
    "fromDlpack": from_dlpack,
    "get_array_module": get_array_module,
    "get_default_memory_pool": lambda: _pool,
    "get_default_pinned_memory_pool": lambda: _pinned,
    "is_available": lambda: True,
}

cupy = Namespace("cupy", np, _OWN)
