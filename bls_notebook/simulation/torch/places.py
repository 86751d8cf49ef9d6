"""What PyTorch may be given as a device, as the number of a simulated GPU."""

from __future__ import annotations

from typing import Any

import torch

from bls_notebook.simulation import machine


def gpu_index(device: Any) -> int:
    """Return the number of the GPU that a device of PyTorch names; -1 for another one, and for None.

    A number is that of a GPU. A RuntimeError says that there is no such GPU, or no such device.
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
    return machine.gpu_at(machine.current_gpu().index if index is None else index).index


def chosen(device: Any) -> int:
    """Return the number of the GPU that `torch.cuda` is asked about, by default the current one."""
    found = gpu_index("cuda" if device is None else device)
    if found < 0:
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return found


def named(index: int) -> Any:
    return torch.device("cuda", index)
