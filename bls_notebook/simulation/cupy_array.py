"""`ndarray`: an array on a simulated GPU, in host memory, that behaves like CuPy's; and its DLPack capsules.

Operators, NumPy's ufuncs and functions, slices and `.get()` work as with CuPy. Operations that CuPy rejects raise
CuPy's errors: implicit conversion to NumPy, NumPy arrays as operands, and arrays of a GPU other than the current
one. NumPy functions that CuPy (14.2) lacks are missing here, too. A worker runs this module; its Python may be 3.8.
"""

from __future__ import annotations

from time import perf_counter_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from bls_notebook.devices import DLPackError, allocation_log, dlpack

from .absent_names import ABSENT
from .gpu_memory import SimulatedBlock, SimulatedGPU, SimulatedMemory, current_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Array = np.ndarray[Any, Any]

_SCALARS = (bool, int, float, complex, np.generic)


def is_absent(module: str, name: str) -> bool:
    """Return whether CuPy lacks this function."""
    return name in ABSENT.get(module, ())


# Blocks of exported capsules, by the address of the capsule's tensor.
_exported: WeakValueDictionary[int, SimulatedBlock] = WeakValueDictionary()


def exported(capsule: object, memory: SimulatedBlock) -> object:
    """Turn an unused capsule of host memory into one of the block's GPU."""
    dlpack.move_capsule(capsule, (2, memory.device_id))
    _exported[dlpack.address_of_capsule(capsule)] = memory
    return capsule


class _Owned(np.ndarray):  # the NumPy of a worker may be too old for type arguments
    """The host memory behind a capsule."""

    owner: object


def capsule_of(array: ndarray, owner: object = None) -> object:
    """Return a capsule that shares the array's memory and keeps it and `owner` alive."""
    # NumPy does not export read-only arrays, such as broadcast views.
    array = array if array._host.flags.writeable else array.copy()
    host = array._host.view(_Owned)
    host.owner = owner
    return exported(host.__dlpack__(), array._memory)


def block_of_capsule(capsule: object) -> SimulatedBlock:
    """Return the block of a capsule from `exported`, and consume it; DLPackError for other capsules."""
    kind, index = dlpack.device_of_capsule(capsule)
    memory = _exported.pop(dlpack.address_of_capsule(capsule), None)
    if kind not in dlpack.CUDA_DEVICES or memory is None:
        raise DLPackError(
            f"The DLPack capsule has memory of device type {kind}, number {index}, which is not a simulated GPU"
        )
    return memory


class ndarray(NDArrayOperatorsMixin):  # noqa: N801 - CuPy's name
    """An array on a simulated GPU; created by the functions of `bls_notebook.cupy()`."""

    # In old versions of NumPy, the base class has no slots.
    __slots__ = ("_host", "_memory", *(() if "__weakref__" in vars(NDArrayOperatorsMixin) else ("__weakref__",)))
    __array_priority__ = 100

    _host: _Array
    _memory: SimulatedBlock

    def __new__(cls, shape: Any = (), dtype: Any = float) -> ndarray:
        """Return an uninitialized array, as `cupy.ndarray(shape, dtype)` does."""
        return place(np.empty(shape, dtype))

    @property
    def device(self) -> Any:
        from .cupy_cuda import CudaDevice

        return CudaDevice(self._memory.device_id)

    @property
    def data(self) -> SimpleNamespace:
        """The address of the first element."""
        memory = self._memory
        return SimpleNamespace(mem=memory, ptr=self._host.ctypes.data, device_id=memory.device_id, device=memory.device)

    @property
    def base(self) -> Any:
        """The memory block of a view; None for an array that covers its whole block."""
        return None if self._host.size * self._host.itemsize == self._memory.size else self._memory

    if TYPE_CHECKING:  # the tables below add these attributes

        def __getattr__(self, name: str) -> Any: ...

    def __iter__(self) -> Any:
        if not self._host.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self._host)))

    def __repr__(self) -> str:
        return f"{self._host!r}  # {self._memory.device.label}"

    def __format__(self, spec: str) -> str:
        return format(self._host if self._host.ndim else self._host[()], spec)

    def copy(self, order: Any = "C") -> ndarray:
        """Return a copy, on the current GPU."""
        return place(self._host.copy(order=order))

    def get(self, stream: Any = None, order: Any = "C", out: Any = None, blocking: bool = True) -> _Array:
        """Return a copy in host memory."""
        started = perf_counter_ns()
        if out is None:
            out = self._host.copy(order=order)
        else:
            if not isinstance(out, np.ndarray):
                raise TypeError("Only numpy.ndarray can be obtained from cupy.ndarray")
            if out.dtype != self.dtype:
                raise TypeError(f"{out.dtype} array cannot be obtained from {self.dtype} array")
            if out.shape != self.shape:
                raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, actual shape: {out.shape}")
            out[...] = self._host
        allocation_log.moved("transfer", self, out, perf_counter_ns() - started)
        return out  # type: ignore[no-any-return]

    def set(self, arr: _Array, stream: Any = None) -> None:
        """Copy a host array of the same shape and dtype into this one."""
        if not isinstance(arr, np.ndarray):
            raise TypeError(f"Only numpy.ndarray can be set to cupy.ndarray, got {type(arr).__name__}")
        if arr.dtype != self.dtype or arr.shape != self.shape:
            raise ValueError(
                f"Only an array of dtype {self.dtype} and shape {self.shape} can be set, got {arr.dtype} "
                f"and {arr.shape}"
            )
        started = perf_counter_ns()
        self._host[...] = arr
        allocation_log.moved("transfer", arr, self, perf_counter_ns() - started)

    def __array__(self, dtype: Any = None, copy: Any = None) -> _Array:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __reduce__(self) -> Any:
        return place, (self._host.copy(),)

    def __getitem__(self, key: Any) -> Any:
        return wrapped(self._host[unwrapped(key, indices=True)], self._memory)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            if isinstance(key, slice) and key == slice(None):
                if value.dtype != self.dtype or value.shape != self.shape:
                    raise ValueError(
                        "copying a numpy.ndarray to a cupy.ndarray by empty slice assignment must ensure "
                        "arrays have same shape and dtype"
                    )
                self.set(value)
                return
            if value.ndim:
                raise unsupported(value)
            value = value.item()
        self._host[unwrapped(key, indices=True)] = unwrapped(value)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if is_absent("numpy", ufunc.__name__):
            return NotImplemented
        for value in inputs:
            if isinstance(value, np.ndarray):
                raise unsupported(value)
            if not isinstance(value, (ndarray, *_SCALARS, list, tuple, slice)):
                return NotImplemented
        kwargs = unwrapped(kwargs)
        if out is not None:
            for value in out:
                if value is not None and not isinstance(value, ndarray):
                    raise unsupported(value)
            kwargs["out"] = tuple(None if o is None else on_gpu(o)._host for o in out)
        result = getattr(ufunc, method)(*unwrapped(inputs), **kwargs)
        if out is not None:
            return out[0] if len(out) == 1 else out
        return wrapped(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if is_absent(func.__module__, func.__name__):
            return NotImplemented
        result = func(*unwrapped(args), **unwrapped(kwargs))
        if isinstance(result, bool) and func.__name__ in ("allclose", "array_equal", "array_equiv"):
            result = np.bool_(result)
        elif type(result) is int and func is np.count_nonzero:  # as in older versions of NumPy
            result = np.intp(result)
        return wrapped(result, *memories(args))

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> object:
        """Return a capsule of GPU memory, or of a copy in host memory if `dl_device` is the CPU."""
        if dl_device is not None and tuple(dl_device) == (1, 0):
            if copy is False:
                raise ValueError("GPU memory cannot be exported to CPU without copy.")
            return self.get().__dlpack__()
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("unsupported device requested.")
        if copy:
            raise BufferError("copy=True only supported for copy to CPU.")
        return self.toDlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's type of CUDA devices, and the number of the GPU."""
        return (2, self._memory.device_id)

    def toDlpack(self) -> object:  # noqa: N802 - CuPy's name
        """Return a DLPack capsule that shares the array's memory and keeps it alive."""
        return capsule_of(self)


# Attributes and methods that run no GPU work, so they accept arrays of a GPU that is not the current one.
_ATTRIBUTES = "T dtype flags imag itemsize nbytes ndim real shape size strides"
_PLAIN_METHODS = """
    __bool__ __complex__ __float__ __int__ __len__ __str__ diagonal fill item ravel reshape sort squeeze
    swapaxes tobytes tolist transpose view
"""
_METHODS = """
    all any argmax argmin argsort astype choose clip compress conj cumprod cumsum dot flatten max mean min
    nonzero prod put repeat round std sum take trace var
"""


def _attribute(name: str) -> property:
    return property(lambda self: wrapped(getattr(self._host, name), self._memory))


def _method(name: str, is_work: bool) -> Callable[..., Any]:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        if is_work:
            on_gpu(self)
            args, kwargs = unwrapped(args), unwrapped(kwargs)
        return wrapped(getattr(self._host, name)(*args, **kwargs), self._memory)

    method.__name__ = name
    return method


for _name in _ATTRIBUTES.split():
    setattr(ndarray, _name, _attribute(_name))
for _name in _PLAIN_METHODS.split():
    setattr(ndarray, _name, _method(_name, False))
for _name in _METHODS.split():
    setattr(ndarray, _name, _method(_name, True))


def place(host: _Array, gpu: SimulatedGPU | None = None) -> ndarray:
    """Return host memory that nothing else uses as an array on a GPU, by default the current one.

    Raises OutOfMemoryError if the GPU has too little free memory.
    """
    if not (host.flags.c_contiguous or host.flags.f_contiguous):
        host = host.copy()
    memory = SimulatedMemory(current_gpu() if gpu is None else gpu, host)
    return over(np.asarray(memory), memory)


def over(host: _Array, memory: SimulatedBlock) -> ndarray:
    """Return host memory of a block as an array on the block's GPU."""
    array = object.__new__(ndarray)
    array._host = host
    array._memory = memory
    return array


def memories(args: Any) -> Iterator[SimulatedBlock]:
    """Yield the blocks of the arrays among arguments."""
    for value in args:
        if isinstance(value, ndarray):
            yield value._memory
        elif isinstance(value, (list, tuple)):
            yield from memories(value)


def _memory_of(host: _Array, known: tuple[SimulatedBlock, ...]) -> SimulatedBlock | None:
    """Return the block of a host array: that of its base, or the one of `known` that contains its address."""
    base: Any = host
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, SimulatedMemory):
        return base
    start = host.ctypes.data
    return next((m for m in known if m.size and m.ptr <= start < m.ptr + m.size), None)


def wrapped(result: Any, *known: SimulatedBlock) -> Any:
    """Return NumPy's result as an array on the GPU: a new array gets a new block, a view shares its base's."""
    if isinstance(result, np.ndarray):
        if result.dtype.hasobject:
            raise TypeError(f"Unsupported dtype {result.dtype}")
        memory = _memory_of(result, known)
        return place(result) if memory is None else over(result, memory)
    if isinstance(result, np.generic):
        return place(np.array(result))
    if isinstance(result, (list, tuple)) and any(isinstance(r, (np.ndarray, np.generic)) for r in result):
        items = [wrapped(r, *known) for r in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


def on_gpu(array: ndarray) -> ndarray:
    """Return an array of the current GPU; raise CuPy's ValueError for an array of another GPU."""
    current = current_gpu()
    if array._memory.gpu is not current:
        raise ValueError(
            f"The device where the array resides ({array._memory.device_id}) is different from the current "
            f"device ({current.index}). Peer access is unavailable between these devices."
        )
    return array


def unsupported(value: object) -> TypeError:
    """Return CuPy's error for a NumPy array among arguments."""
    return TypeError(
        f"Unsupported type {type(value)}: GPU arrays and NumPy arrays cannot be combined; "
        "use cupy.asarray to copy the NumPy array to the GPU first"
    )


def unwrapped(value: Any, indices: bool = False) -> Any:
    """Return arguments as host arrays; TypeError for a NumPy array among them, except in `indices`."""
    if isinstance(value, ndarray):
        return value._host if indices else on_gpu(value)._host
    if isinstance(value, np.ndarray):
        if indices:
            return value
        raise unsupported(value)
    if type(value) in (list, tuple):
        return type(value)(unwrapped(v, indices) for v in value)
    if type(value) is dict:
        return {name: unwrapped(v, indices) for name, v in value.items()}
    return value


def array_of(capsule: object) -> ndarray:
    """Return the memory of a capsule from `exported` as an array, without a copy; consume the capsule."""
    memory = block_of_capsule(capsule)
    return over(dlpack.view_of_capsule(capsule), memory)
