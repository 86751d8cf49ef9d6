"""Moving tensors to, from and between simulated GPUs: `to`, `cuda`, `cpu`, `type_as`."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import torch

from .functions import plainly, special
from .places import gpu_index
from .tensors import NATIVE, Tensor, check_room, index_of, placed, tell_moved


def moved(
    tensor: Any, index: int, dtype: Any = None, copy: bool = False, device: Any = "cpu", **options: Any
) -> Any:
    """Return a tensor on a GPU, or on the CPU (-1); the same one where it is there and of that type already.

    `device` is PyTorch's own, for a tensor that goes to no GPU.
    """
    before = index_of(tensor)
    crosses = before != index
    started = perf_counter_ns()
    with NATIVE():
        if crosses and index >= 0:
            check_room(tensor.numel() * (dtype or tensor.dtype).itemsize, index)
        result = tensor.to(device=device, dtype=dtype, copy=copy or crosses, **options)
        if index >= 0 and result is not tensor:
            placed(result, index)
        if crosses:
            tell_moved(tensor, result, started)
    return result


@special(Tensor.to)
def _to(func: Any, args: Any, kwargs: Any) -> Any:
    tensor, *rest = args
    options = dict(kwargs)
    device, dtype, other = (options.pop(name, None) for name in ("device", "dtype", "other"))
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], torch.dtype):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
            dtype = rest.pop(0)
    before = index_of(tensor)
    if other is not None:
        there, dtype = index_of(other), other.dtype
        device = other.device if there < 0 else None
    else:
        there = before if device is None else gpu_index(device)
    if before < 0 and there < 0:
        return plainly(func, args, kwargs)
    options.pop("non_blocking", None)  # what is asked for is done at once
    copy = options.pop("copy", False) or (len(rest) > 1 and rest[1])
    return moved(tensor, there, dtype, copy, "cpu" if there >= 0 else device, **options)


@special(Tensor.cuda)
def _cuda(func: Any, args: Any, kwargs: Any) -> Any:
    device = args[1] if len(args) > 1 else kwargs.get("device")
    there = gpu_index("cuda" if device is None else device)
    if there < 0:
        raise RuntimeError(f"Invalid device, must be cuda device, got {device}")
    return moved(args[0], there, **_format(kwargs))


@special(Tensor.cpu)
def _cpu(func: Any, args: Any, kwargs: Any) -> Any:
    return moved(args[0], -1, **_format(kwargs))


@special(Tensor.type_as)
def _type_as(func: Any, args: Any, kwargs: Any) -> Any:
    return moved(args[0], index_of(args[1]), args[1].dtype)


def _format(kwargs: Any) -> dict[str, Any]:
    return {"memory_format": kwargs["memory_format"]} if "memory_format" in kwargs else {}
