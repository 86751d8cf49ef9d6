"""The simulated GPUs, their memory, and the current GPU of each thread.

Guarantees: thread-safe. As with CUDA, each thread has its own current GPU. Removed GPUs stay usable for their
existing arrays. A memory block counts as used before code can use it, and until its last array, view or DLPack
capsule is destroyed. `free` takes no lock, so it may run during a garbage collection.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from bls_notebook.devices import Device, DeviceError, OutOfMemoryError, allocation_log

if TYPE_CHECKING:
    import numpy as np

    _Array = np.ndarray[Any, Any]

_keys = itertools.count(-1, -1)  # negative, to differ from addresses


class Usage:
    """The bytes in use, of a GPU or of one allocator, and their peak."""

    def __init__(self) -> None:
        self._used = 0
        self.peak = 0  # most bytes in use so far
        self._freed: deque[int] = deque()
        self._lock = threading.RLock()
        self._settling = False

    @property
    def used(self) -> int:
        with self._lock:
            self._settle()
            return self._used

    def _settle(self) -> None:
        # A garbage collection during this loop may call `free`, which only appends.
        if self._settling:
            return
        self._settling = True
        try:
            while self._freed:
                self._used -= self._freed.popleft()
        finally:
            self._settling = False

    def add(self, size: int) -> None:
        """Count bytes as in use."""
        with self._lock:
            self._settle()
            self._used += size
            self.peak = max(self.peak, self._used)

    def free(self, size: int) -> None:
        self._freed.append(size)


class SimulatedGPU(Usage):
    """One simulated GPU, with a capacity in bytes."""

    def __init__(self, index: int, capacity: int) -> None:
        super().__init__()
        self.device: Device = Device("gpu", index, simulated=True)
        self.index = index
        self.capacity = capacity

    def check(self, size: int) -> None:
        """Raise OutOfMemoryError unless `size` bytes are free."""
        used = self.used
        if used + size > self.capacity:
            raise OutOfMemoryError(size, used, self.capacity, self.device.label)

    def take(self, size: int) -> None:
        """Count bytes as in use; raise like `check`."""
        with self._lock:
            self.check(size)
            self.add(size)


class SimulatedBlock:
    """A block of a simulated GPU's memory; counts as used as long as this object exists.

    Its address is in host memory, so CUDA rejects it. Its `key` is negative and unique in the process. `allocator`
    counts it, too.
    """

    __slots__ = ("__weakref__", "_allocator", "_taken", "gpu", "key", "ptr", "size")

    def __init__(self, gpu: SimulatedGPU, ptr: int, size: int, allocator: Usage | None = None) -> None:
        self._taken = False
        self._allocator = allocator
        self.gpu = gpu
        self.key = next(_keys)
        self.ptr = ptr
        self.size = size
        gpu.take(size)
        self._taken = True
        if allocator is not None:
            allocator.add(size)
        watching = allocation_log.recording
        if watching is not None:
            watching.allocated(gpu.device.name, self.key, size)

    @property
    def device(self) -> Device:
        return self.gpu.device

    @property
    def device_id(self) -> int:
        return self.gpu.index

    def __del__(self) -> None:
        if self._taken:
            self.gpu.free(self.size)
            if self._allocator is not None:
                self._allocator.free(self.size)
            watching = allocation_log.recording
            if watching is not None:
                watching.freed(self.gpu.device.name, self.key, self.size)

    def __repr__(self) -> str:
        return f"<{self.size:,} bytes of {self.gpu.device.label}>"


class SimulatedMemory(SimulatedBlock):
    """A block that is the base of its arrays; its bytes are in `host`, which no other code uses."""

    __slots__ = ("__array_interface__", "_host")

    def __init__(self, gpu: SimulatedGPU, host: _Array) -> None:
        super().__init__(gpu, int(host.ctypes.data), int(host.nbytes))
        self._host = host
        self.__array_interface__ = {**host.__array_interface__, "data": (self.ptr, False)}


_gpus: tuple[SimulatedGPU, ...] = ()
_current = threading.local()


def gpus() -> tuple[SimulatedGPU, ...]:
    return _gpus


def set_gpus(count: int, capacity: int) -> None:
    """Create or remove simulated GPUs and set their capacity (bytes).

    Existing GPUs keep their arrays, even if they exceed the new capacity; new arrays need free capacity.
    """
    global _gpus
    kept = _gpus[:count]
    for gpu in kept:
        gpu.capacity = capacity
    _gpus = (*kept, *(SimulatedGPU(i, capacity) for i in range(len(kept), count)))


def gpu_at(index: int) -> SimulatedGPU:
    """Return a simulated GPU; DeviceError with CUDA's text if there is none."""
    if not 0 <= index < len(_gpus):
        known = ", ".join(str(g.device) for g in _gpus) or "none"
        raise DeviceError(f"cudaErrorInvalidDevice: invalid device ordinal {index}; GPUs here: {known}")
    return _gpus[index]


def current_gpu() -> SimulatedGPU:
    return gpu_at(getattr(_current, "index", 0))


def set_current(index: int) -> int:
    """Make a GPU the current one of this thread; return the number of the previous one."""
    gpu_at(index)
    before, _current.index = getattr(_current, "index", 0), index
    return before
