"""As much of CuPy as the kernel uses for tensors on GPUs, on the memory of `fake_libcuda`."""

from __future__ import annotations

import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.backends.processes.fake_libcuda import COUNT, fake, over

__all__ = ["Array", "fake_cupy", "used"]
_current = threading.local()
used = [0] * COUNT  # bytes of blocks that are alive, by GPU


def _device() -> int:
    return getattr(_current, "index", 0)


class Block:
    """An allocation with a part in front that belongs to another array, as in CuPy's pool."""

    shareable = True
    FRONT = 512

    def __init__(self, size: int) -> None:
        self.index, self.size = _device(), size
        self._base = fake.allocate(size + self.FRONT, self.shareable)
        self.ptr = self._base + self.FRONT
        used[self.index] += size

    def __del__(self) -> None:
        fake.free(self._base)
        used[self.index] -= self.size


class Memory(Block):
    """Memory of `cudaMalloc`."""


class Pooled(Block):
    """Memory of the pool, which an asynchronous allocator may have made."""


class Pointer:
    def __init__(self, mem: Block, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.index

    def copy_from_device_async(self, source: Pointer, size: int, stream: Any) -> None:
        over(self.ptr, (size,), np.uint8)[:] = over(source.ptr, (size,), np.uint8)

    def copy_to_host_async(self, target: int, size: int, stream: Any) -> None:
        over(target, (size,), np.uint8)[:] = over(self.ptr, (size,), np.uint8)


class Array:
    """`cupy.ndarray`."""

    base = None

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None) -> None:
        self.host = np.empty(shape, dtype)
        if self.host.nbytes:
            self.data = Pointer(Pooled(self.host.nbytes), 0) if memptr is None else memptr
            self.host = over(self.data.ptr, self.host.shape, dtype, self.data.mem)
        else:
            self.data = Pointer.__new__(Pointer)
            self.data.ptr, self.data.device_id, self.data.mem = 0, _device(), None  # type: ignore[assignment]
        self.shape, self.dtype, self.nbytes, self.ndim = (
            self.host.shape,
            self.host.dtype,
            self.host.nbytes,
            self.host.ndim,
        )
        self.flags = SimpleNamespace(c_contiguous=True)

    def __dlpack__(self, stream: Any = None) -> object:
        raise AssertionError("the kernel passes its own arrays on")

    def _other(self, host: Any) -> Array:
        out = Array.__new__(Array)
        out.host, out.data, out.base, out.flags = host, self.data, self, self.flags  # type: ignore[assignment]
        out.shape, out.dtype, out.nbytes, out.ndim = host.shape, host.dtype, host.nbytes, host.ndim
        return out

    def view(self, dtype: Any) -> Array:
        return self._other(self.host.view(dtype))

    def reshape(self, *shape: Any) -> Array:
        return self._other(self.host.reshape(*shape))


def asarray(values: Any, index: int = 0) -> Array:
    """Return a copy on a fake GPU."""
    before, _current.index = _device(), index
    out = Array(np.shape(values), np.asarray(values).dtype)
    out.host[...] = values
    _current.index = before
    return out


def fake_cupy() -> Any:
    module: Any = ModuleType("cupy")
    stream = SimpleNamespace(synchronize=lambda: None)
    runtime = SimpleNamespace(
        getDeviceCount=lambda: COUNT,
        getDevice=_device,
        setDevice=lambda index: setattr(_current, "index", index),
        deviceSynchronize=lambda: None,
    )
    module.cuda = SimpleNamespace(
        runtime=runtime, Memory=Memory, MemoryPointer=Pointer, get_current_stream=lambda: stream
    )
    module.ndarray, module.asarray, module.ascontiguousarray = Array, asarray, lambda array: array
    module.empty = Array
    return module
