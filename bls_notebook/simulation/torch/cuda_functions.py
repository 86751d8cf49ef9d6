"""Functions, devices, streams and events of `torch.cuda` on simulated GPUs, where all work finishes immediately."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from itertools import count
from types import SimpleNamespace
from typing import Any

import torch

from bls_notebook.devices import instance_gpu
from bls_notebook.simulation import gpu_memory
from bls_notebook.simulation.cupy_cuda import CudaEvent, nothing
from bls_notebook.simulation.gpu_memory import SimulatedGPU, Usage


def gpu_index(device: Any) -> int:
    """Return the GPU number of a PyTorch device; -1 for other devices and for None.

    An integer is a GPU number. Raises RuntimeError if there is no such GPU or device.
    """
    if device is None or isinstance(device, bool):
        return -1
    if isinstance(device, int):
        index: int | None = device
    else:
        named = device if isinstance(device, torch.device) else torch.device(device)
        if named.type != "cuda":
            return -1
        index = named.index
    return gpu_memory.gpu_at(gpu_memory.current_gpu().index if index is None else index).index


def required_index(device: Any) -> int:
    """Return the GPU number of an argument of a `torch.cuda` function, by default the current GPU."""
    index = gpu_index("cuda" if device is None else device)
    if index < 0:
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return index


def cuda_device(index: int) -> Any:
    return torch.device("cuda", index)


def check_room(size: int, index: int) -> None:
    """Raise PyTorch's out-of-memory error if a GPU lacks free memory, before the host allocates any."""
    gpu = gpu_memory.gpu_at(index)
    if gpu.used + size > gpu.capacity:
        raise out_of_memory(gpu, size)


def out_of_memory(gpu: SimulatedGPU, size: int) -> Exception:

    def gib(number: int) -> str:
        return f"{number / (1 << 30):.2f} GiB" if number >= 1 << 28 else f"{number / (1 << 20):.2f} MiB"

    used = gpu.used
    error: Exception = torch.cuda.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {gib(size)}. GPU {gpu.index} has a total capacity of "
        f"{gib(gpu.capacity)} of which {gib(max(0, gpu.capacity - used))} is free. Of the allocated memory "
        f"{gib(used)} is allocated by PyTorch and by other models ({gpu.device.label})."
    )
    return error


_numbers = count(1)


def _true(*args: Any, **kwargs: Any) -> bool:
    return True


def _false(*args: Any, **kwargs: Any) -> bool:
    return False


class TorchEvent(CudaEvent):
    cuda_event = 0
    wait = nothing
    query = _true

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        super().__init__()
        self._timed = enable_timing

    def elapsed_time(self, end_event: TorchEvent) -> float:
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.ns and end_event.ns):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event.ns - self.ns) / 1e6

    def __repr__(self) -> str:
        return "<torch.cuda.Event (simulated)>"


class TorchStream:
    """A stream; as a context manager, it and its GPU become the current ones."""

    synchronize = wait_stream = wait_event = nothing
    query = _true
    is_capturing = _false

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = cuda_device(required_index(device))
        self.device_index = self.device.index
        self.priority = priority
        self.cuda_stream = self.stream_id = next(_numbers)
        self._before: list[tuple[int, TorchStream | None]] = []

    def record_event(self, event: TorchEvent | None = None) -> TorchEvent:
        event = TorchEvent() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> TorchStream:
        self._before.append(_set(self))
        return self

    def __exit__(self, *problem: object) -> None:
        gpu, stream = self._before.pop()
        gpu_memory.set_current(gpu)
        if stream is None:
            _here.current.pop(self.device_index, None)
        else:
            _here.current[self.device_index] = stream

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x} (simulated)>"


class _Streams(threading.local):
    def __init__(self) -> None:
        self.current: dict[int, TorchStream] = {}


_here = _Streams()


@cache
def _default_stream(index: int) -> TorchStream:
    stream = TorchStream(index)
    stream.cuda_stream = stream.stream_id = 0
    return stream


def default_stream(device: Any = None) -> TorchStream:
    return _default_stream(required_index(device))


def current_stream(device: Any = None) -> TorchStream:
    index = required_index(device)
    return _here.current.get(index) or _default_stream(index)


def set_stream(stream: TorchStream | None) -> None:
    """Make a stream and its GPU the current ones of this thread."""
    if stream is not None:
        _set(stream)


def _set(stream: TorchStream) -> tuple[int, TorchStream | None]:
    index = stream.device_index
    before = gpu_memory.set_current(index), _here.current.get(index)
    _here.current[index] = stream
    return before


NAME = "simulated GPU"
CAPABILITY = (8, 0)  # libraries check it before they use bfloat16


def _gpu(device: Any = None) -> SimulatedGPU:
    return gpu_memory.gpu_at(required_index(device))


def set_device(device: Any) -> None:
    """Make a GPU the current one of this thread; do nothing for a negative number."""
    index = getattr(device, "idx", device)  # `idx` of torch.cuda.device
    if not isinstance(index, int) or index >= 0:
        gpu_memory.set_current(required_index(index))


def exchange_device(index: int) -> int:
    return gpu_memory.current_gpu().index if index < 0 else gpu_memory.set_current(index)


def properties(device: Any = None) -> SimpleNamespace:
    gpu = _gpu(device)
    return SimpleNamespace(
        name=NAME, major=CAPABILITY[0], minor=CAPABILITY[1], total_memory=gpu.capacity, multi_processor_count=1,
        warp_size=32, is_integrated=False, is_multi_gpu_board=False, uuid=f"simulated-{gpu.index}",
    )  # fmt: skip


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free bytes and the capacity."""
    gpu = _gpu(device)
    return max(0, gpu.capacity - gpu.used), gpu.capacity


def allocator_of(index: int) -> Usage:
    """Return what PyTorch has allocated on a GPU for the instance whose code runs on this thread.

    As on a server, where each instance is a process, and responses of other models are in the server's own memory.
    """
    gpu_memory.gpu_at(index)
    process = instance_gpu.here()
    return Usage() if process is None else process.allocators.setdefault(index, Usage())


def memory_allocated(device: Any = None) -> int:
    """Return the bytes in use that PyTorch has allocated for this instance."""
    return allocator_of(required_index(device)).used


def max_memory_allocated(device: Any = None) -> int:
    """Return the peak of the bytes that PyTorch has allocated for this instance."""
    usage = allocator_of(required_index(device))
    return max(usage.peak, usage.used)


def reset_peak(device: Any = None) -> None:
    usage = allocator_of(required_index(device))
    usage.peak = usage.used


def set_fraction(fraction: float, device: Any = None) -> None:
    gpu = _gpu(device)
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    gpu.capacity = int(gpu.capacity * fraction)


def memory_stats(device: Any = None) -> dict[str, int]:
    now, peak = memory_allocated(device), max_memory_allocated(device)
    kinds = ("allocated_bytes", "reserved_bytes", "active_bytes")
    figures = {f"{kind}.all.current": now for kind in kinds}
    return {**figures, **{f"{kind}.all.peak": peak for kind in kinds}, "num_ooms": 0, "num_alloc_retries": 0}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    return "\n".join(f"{name:32} {value:>16,}" for name, value in memory_stats(device).items())


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Set the state of the random generator, which CPU and simulated GPUs share."""
    torch.set_rng_state(new_state)


def _synchronize(device: Any = None) -> None:
    _gpu(device)  # raises if there is no such GPU


_NAMES: dict[Callable[..., Any], str] = {
    nothing: "empty_cache init ipc_collect reset_accumulated_memory_stats",
    exchange_device: "_exchange_device _maybe_exchange_device",
    max_memory_allocated: "max_memory_allocated max_memory_cached max_memory_reserved",
    memory_allocated: "memory_allocated memory_cached memory_reserved",
    reset_peak: "reset_max_memory_allocated reset_max_memory_cached reset_peak_memory_stats",
    _true: "is_bf16_supported is_initialized is_tf32_supported",
    _false: "can_device_access_peer is_current_stream_capturing",
    (lambda seed: torch.default_generator.manual_seed(int(seed))): "manual_seed manual_seed_all",
    (lambda: torch.default_generator.seed()): "seed seed_all",
}
CUDA: dict[str, Callable[..., Any]] = {
    **{name: function for function, names in _NAMES.items() for name in names.split()},
    "current_device": lambda: gpu_memory.current_gpu().index,
    "current_stream": current_stream,
    "default_stream": default_stream,
    "device_count": lambda: len(gpu_memory.gpus()),
    "get_arch_list": lambda: ["sm_80"],
    "get_device_capability": lambda device=None: (properties(device).major, properties(device).minor),
    "get_device_name": lambda device=None: f"{NAME} {_gpu(device).index}",
    "get_device_properties": properties,
    "get_rng_state": lambda device="cuda": torch.get_rng_state(),
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "initial_seed": torch.initial_seed,
    "is_available": lambda: len(gpu_memory.gpus()) > 0,
    "mem_get_info": mem_get_info,
    "memory_stats": memory_stats,
    "memory_summary": memory_summary,
    "set_device": set_device,
    "set_per_process_memory_fraction": set_fraction,
    "set_rng_state": set_rng_state,
    "set_rng_state_all": lambda new_states: set_rng_state(new_states[0]),
    "set_stream": set_stream,
    "stream": lambda stream: nullcontext() if stream is None else stream,
    "synchronize": _synchronize,
    "utilization": lambda device=None: 0,
}
"""Replacements in `torch.cuda`."""

NVTX: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("mark", "range_end"), nothing),
    **dict.fromkeys(("range_pop", "range_push", "range_start"), lambda msg="": 0),
}
"""Replacements in `torch.cuda.nvtx`."""

ACCELERATOR: dict[str, Callable[..., Any]] = {
    **{name: function for name, function in CUDA.items() if name != "get_device_capability"},  # a different function
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    **dict.fromkeys(("current_device_idx", "current_device_index"), CUDA["current_device"]),
    "get_memory_info": mem_get_info,
    **dict.fromkeys(("set_device_idx", "set_device_index"), set_device),
}
"""Replacements in `torch.accelerator`, if this version of PyTorch has them."""
