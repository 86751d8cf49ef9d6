"""The simulated `cupy.cuda`: devices, streams, events and memory pools. All work finishes immediately."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from types import ModuleType, SimpleNamespace
from typing import Any

from bls_notebook.devices import DeviceError, OutOfMemoryError

from . import gpu_memory


def nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing: no work is pending."""


class CudaDevice:
    """A simulated GPU, by default the current one; as a context manager, the thread's current GPU."""

    def __init__(self, device: Any = None) -> None:
        self.id = gpu_memory.current_gpu().index if device is None else int(device)
        gpu_memory.gpu_at(self.id)
        self._before: list[int] = []

    def use(self) -> None:
        gpu_memory.set_current(self.id)

    synchronize = nothing

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free bytes and the capacity."""
        gpu = gpu_memory.gpu_at(self.id)
        return gpu.capacity - gpu.used, gpu.capacity

    def __enter__(self) -> CudaDevice:
        self._before.append(gpu_memory.set_current(self.id))
        return self

    def __exit__(self, *problem: object) -> None:
        gpu_memory.set_current(self._before.pop())

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CudaDevice) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id} (simulated)>"


class CudaStream:
    """A stream without pending work."""

    null: CudaStream
    ptr = 0
    done = True
    synchronize = wait_event = nothing

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self._before: list[CudaStream] = []

    def use(self) -> CudaStream:
        _streams.current = self
        return self

    def record(self, event: CudaEvent | None = None) -> CudaEvent:
        event = CudaEvent() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> CudaStream:
        self._before.append(current_stream())
        return self.use()

    def __exit__(self, *problem: object) -> None:
        _streams.current = self._before.pop()

    def __repr__(self) -> str:
        return "<Stream (simulated)>"


CudaStream.null = CudaStream(null=True)
_streams = threading.local()  # each thread's current stream


def current_stream() -> CudaStream:
    stream: CudaStream = getattr(_streams, "current", CudaStream.null)
    return stream


class CudaEvent:
    done = True
    synchronize = nothing

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.ns = 0

    def record(self, stream: Any = None) -> None:
        self.ns = perf_counter_ns()


class PinnedMemoryPool:
    """Keeps no host memory."""

    free_all_blocks = nothing

    def n_free_blocks(self) -> int:
        return 0


class MemoryPool(PinnedMemoryPool):
    """The memory of the current GPU, as a pool that keeps no free blocks."""

    free_bytes = PinnedMemoryPool.n_free_blocks

    def used_bytes(self) -> int:
        return gpu_memory.current_gpu().used

    total_bytes = used_bytes

    def get_limit(self) -> int:
        return gpu_memory.current_gpu().capacity

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        gpu = gpu_memory.current_gpu()
        if size is None and fraction is not None:
            size = int(gpu.capacity * fraction)
        gpu.capacity = size or gpu.capacity


def _properties(index: int) -> dict[str, Any]:
    return {"name": b"simulated GPU", "totalGlobalMem": gpu_memory.gpu_at(index).capacity, "major": 0, "minor": 0}


def _module(name: str, **names: Any) -> ModuleType:
    module = ModuleType(f"cupy.{name}", f"cupy.{name} of the simulation.")
    vars(module).update(names)
    return module


runtime = _module(
    "cuda.runtime",
    CUDARuntimeError=DeviceError,
    getDeviceCount=lambda: len(gpu_memory.gpus()),
    getDevice=lambda: gpu_memory.current_gpu().index,
    setDevice=gpu_memory.set_current,
    deviceSynchronize=nothing,
    deviceCanAccessPeer=lambda device, peer: 0,
    getDeviceProperties=_properties,
    memGetInfo=lambda: CudaDevice().mem_info,
    streamSynchronize=nothing,
)

cuda = _module(
    "cuda",
    Device=CudaDevice,
    Event=CudaEvent,
    MemoryPool=MemoryPool,
    OutOfMemoryError=OutOfMemoryError,
    PinnedMemoryPool=PinnedMemoryPool,
    Stream=CudaStream,
    get_current_stream=lambda device_id=-1: current_stream(),
    get_elapsed_time=lambda start, end: (end.ns - start.ns) / 1e6,  # milliseconds
    is_available=lambda: bool(gpu_memory.gpus()),
    runtime=runtime,
    memory=_module("cuda.memory", OutOfMemoryError=OutOfMemoryError),
    device=SimpleNamespace(get_device_id=lambda: gpu_memory.current_gpu().index),
)
