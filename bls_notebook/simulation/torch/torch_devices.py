"""PyTorch's device arguments as numbers of simulated GPUs, and PyTorch's out-of-memory error."""

from __future__ import annotations

from typing import Any

import torch

from bls_notebook.simulation import gpu_memory
from bls_notebook.simulation.gpu_memory import SimulatedGPU


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
