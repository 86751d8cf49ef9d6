"""The GPUs of a worker, in place of `devices.registry`: CUDA's, through its driver alone, or simulated ones.

The model itself may use CuPy, PyTorch or nothing at all: a tensor on a GPU is an address here, which DLPack passes on.
Its Python may be 3.8.
"""

from __future__ import annotations

import builtins
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from bls_notebook.backends.processes.cuda_driver import CudaError, driver
from bls_notebook.devices import dlpack
from bls_notebook.devices.device import CPU, Device

_OWN = os.path.dirname(__file__)  # the files of this package in tracebacks begin with it


class CudaArray:
    """Contiguous memory on one of CUDA's GPUs."""

    __slots__ = ("__weakref__", "_view", "index")

    def __init__(self, view: Any, index: int) -> None:
        self._view = view  # an array of NumPy over addresses of the GPU, whose elements must never be accessed
        self.index = index

    @classmethod
    def at(cls, address: int, index: int, shape: Any, dtype: Any, owner: object) -> CudaArray:
        """Return memory at an address, which `owner` keeps alive."""
        dtype = np.dtype(dtype)
        if 0 in shape:
            return cls(np.empty(shape, dtype), index)
        return cls(np.asarray(_Span(address, shape, dtype, owner)), index)

    @property
    def address(self) -> int:
        return int(self._view.__array_interface__["data"][0])

    @property
    def shape(self) -> Any:
        return self._view.shape

    @property
    def dtype(self) -> Any:
        return self._view.dtype

    @property
    def ndim(self) -> int:
        return int(self._view.ndim)

    @property
    def nbytes(self) -> int:
        return int(self._view.nbytes)


class _Span:
    """The base of an array over memory that `owner` keeps alive."""

    def __init__(self, address: int, shape: Any, dtype: Any, owner: object) -> None:
        self._owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


class _Exported(np.ndarray):
    """The array behind a capsule; it keeps the tensor alive."""

    owner: object


class DriverGPUs:
    """CUDA's GPUs, see `devices.device.GPUs`."""

    simulated = False

    def finish(self, array: CudaArray) -> None:
        """Wait for all work on the GPU: a tensor has no stream."""
        with driver().on(array.index):
            driver().synchronize()

    def device_of(self, array: CudaArray) -> Device:
        return Device("gpu", array.index)

    def capsule(self, array: CudaArray, owner: object) -> object:
        view = array._view.view(_Exported)
        view.owner = owner
        capsule: object = view.__dlpack__()
        dlpack.move_capsule(capsule, (2, array.index))
        return capsule

    def array_of(self, capsule: object) -> CudaArray:
        _, index = dlpack.device_of_capsule(capsule)
        return CudaArray(dlpack.view_of_capsule(capsule), index)

    def to_host(self, array: CudaArray) -> Any:
        """Return a copy in host memory."""
        out = np.empty(array.shape, array.dtype)
        if out.nbytes:
            with driver().on(array.index):
                driver().synchronize()
                driver().to_host(out.ctypes.data, array.address, out.nbytes)
        return out


class ReceivedMemory:
    """A tensor's memory in the kernel, on a GPU; `released` is called with its number when the model has dropped it."""

    def __init__(self, index: int, handle: str, number: int, released: Any) -> None:
        self._index, self._number, self._released = index, number, released
        self._process = os.getpid()
        with driver().on(index):
            self.base = driver().open(handle)

    def __del__(self) -> None:
        if not hasattr(self, "base") or self._process != os.getpid():  # it could not be opened; a forked child
            return
        try:
            with driver().on(self._index):
                driver().synchronize()  # the model may have started work that reads it
                driver().close(self.base)
        except CudaError:  # the context is broken, and its memory is no longer mapped
            pass
        self._released(self._number)


_cuda = DriverGPUs()
_simulated: Any = None


def backend_of(array: object) -> Any:
    """Return the GPUs that an array belongs to; None for any other object."""
    if isinstance(array, CudaArray):
        return _cuda
    return _simulated if _simulated is not None and isinstance(array, _simulated.array_class) else None


def device_of(array: Any) -> Device:
    there = backend_of(array)
    return CPU if there is None else there.device_of(array)


def gpus() -> Any:
    """Return the GPUs, or None."""
    if _simulated is not None:
        return _simulated
    try:
        return _cuda if driver().count else None
    except CudaError:
        return None


def why_no_gpu() -> str:
    return "this machine has no CUDA GPU; simulate one with bls.simulate_gpus(1), and load the model again"


def simulate(texts: dict[str, str], count: int, capacity: int, modules: dict[str, Any]) -> None:
    """Simulate GPUs: import the package's modules with these texts, and let the model import their `cupy`.

    The texts see `modules`, this package's own ones, which the model cannot import.
    """
    global _simulated
    for name, text in texts.items():
        package = name.rpartition(".")[0]
        if package not in modules:
            modules[package] = ModuleType(package)
        modules[name] = module = ModuleType(name)
        vars(module).update(
            __package__=package,
            __file__=f"{_OWN}/{name}",
            __builtins__={**vars(builtins), "__import__": _importer(modules, package)},
        )
        exec(compile(text, f"{_OWN}/{name}", "exec"), vars(module))
        setattr(modules[package], name.rpartition(".")[2], module)
    _simulated = vars(module)["begin"](count, capacity)
    sys.modules["cupy"] = _simulated.array_module()
    sys.meta_path.insert(0, _CupyModules())


def _importer(modules: dict[str, Any], package: str) -> Any:
    """Return an `__import__` for a module of this package."""

    def imported(name: str, variables: Any = None, locals_: Any = None, names: Any = (), level: int = 0) -> Any:
        if level == 1:
            name = f"{package}.{name}".rstrip(".")
        elif name.partition(".")[0] != "bls_notebook":
            return builtins.__import__(name, variables, locals_, names, level)
        return modules[name]

    return imported


class _CupyModules:
    """Finds the submodules of the simulated `cupy`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        parts = name.split(".")
        found: Any = sys.modules.get("cupy")
        if parts[0] != "cupy" or found is not _simulated.array_module():
            return None
        for part in parts[1:]:
            found = getattr(found, part, None)
        if not isinstance(found, ModuleType):
            return None
        self_found: Any = _Found(found)
        return ModuleSpec(name, self_found, is_package=True)


class _Found:
    """The loader of a module that exists."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: Any) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""
