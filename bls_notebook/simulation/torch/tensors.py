"""`GpuTensor`: a tensor in host memory that says it is on a simulated GPU, and the block that counts it.

Guarantees: a block counts for as long as anything of PyTorch has the memory: views, gradients, parameters,
DLPack capsules. It hangs on PyTorch's own storage, which all of these share.
"""

from __future__ import annotations

from functools import cache
from time import perf_counter_ns
from typing import Any

import torch

from bls_notebook.devices import observer
from bls_notebook.devices.device import OutOfMemoryError
from bls_notebook.simulation import machine
from bls_notebook.simulation.machine import Block, SimulatedGPU

_BLOCK = "_simulated_block"
NATIVE = torch._C.DisableTorchFunction  # within it a tensor is the CPU's, for Python too
Tensor = torch.Tensor


class GpuTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor on a simulated GPU; never made by itself, see `placed`."""

    gpu_index = -1
    dispatch: Any  # of `functions`, which knows this module

    def record_stream(self, stream: Any) -> None:
        """Nothing to be done: no memory is used by work that is still to be done."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.dispatch(func, args, kwargs or {})


@cache
def tensor_class(index: int) -> type[GpuTensor]:
    return type("Tensor", (GpuTensor,), {"gpu_index": index, "__module__": "torch"})


@cache
def parameter_class(index: int) -> type[GpuTensor]:
    bases = (tensor_class(index), torch.nn.Parameter)
    return type("Parameter", bases, {"gpu_index": index, "__module__": "torch.nn.parameter"})


def index_of(tensor: Any) -> int:
    """Return the number of the GPU that a tensor is on, -1 for the CPU and for anything else."""
    found: int = getattr(type(tensor), "gpu_index", -1)
    return found


def block_of(tensor: Any) -> Block | None:
    """Return the block that a tensor on a GPU lies in; None for a sparse one, and for anything else."""
    if not issubclass(type(tensor), GpuTensor):
        return None
    with NATIVE():
        try:
            return getattr(tensor.untyped_storage(), _BLOCK, None)
        except (NotImplementedError, RuntimeError):
            return None


def placed(tensor: Any, index: int, block: Block | None = None) -> Any:
    """Say of a tensor or parameter in host memory that it is on a GPU; to be called within `NATIVE`.

    Its memory lies in `block`, by default a new one, unless its storage is known. Where the GPU has not that
    much left, it is a torch.OutOfMemoryError.
    """
    if tensor.is_cpu:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse: of several
            storage = None
        if storage is not None and getattr(storage, _BLOCK, None) is None:
            setattr(storage, _BLOCK, block or new_block(storage.data_ptr(), storage.nbytes(), index))
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        tensor.__class__ = parameter_class(index) if is_parameter else tensor_class(index)
    return tensor


def unplaced(parameter: Any) -> None:
    """Say of a tensor or parameter that it is in host memory, which it has got by `.data = ...`."""
    parameter.__class__ = torch.nn.Parameter if isinstance(parameter, torch.nn.Parameter) else Tensor


def new_block(ptr: int, size: int, index: int) -> Block:
    """Return a new block; raises as `placed`."""
    gpu = machine.gpu_at(index)
    try:
        return Block(gpu, ptr, size)
    except OutOfMemoryError:
        raise out_of_memory(gpu, size) from None


def check_room(size: int, index: int) -> None:
    """Raise where a GPU has not that many bytes left, before they are taken of the host."""
    gpu = machine.gpu_at(index)
    if gpu.used + size > gpu.capacity:
        raise out_of_memory(gpu, size)


def out_of_memory(gpu: SimulatedGPU, size: int) -> Exception:
    """What is raised where a GPU has not that many bytes left; worded as PyTorch's."""
    used = gpu.used
    error: Exception = torch.cuda.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {_in_words(size)}. GPU {gpu.index} has a total capacity of "
        f"{_in_words(gpu.capacity)} of which {_in_words(max(0, gpu.capacity - used))} is free. "
        f"Of the allocated memory {_in_words(used)} is allocated by PyTorch and by other models "
        f"({gpu.device.label})."
    )
    return error


def _in_words(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"


def tell_moved(source: Any, result: Any, started: int) -> None:
    """Tell who watches memory that a tensor was copied to another device; within `NATIVE`."""
    if observer.current is None:
        return
    gone, come = _seen(source), _seen(result)
    if gone is not None and come is not None:
        observer.moved("transfer", gone, come, perf_counter_ns() - started)


def _seen(tensor: Any) -> Any:
    """A tensor as who watches memory knows arrays; None for one that NumPy cannot tell of."""
    from bls_notebook.simulation.array import over

    try:
        # Of any type: only where its memory lies is looked at.
        host = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    block = block_of(tensor)
    return host if block is None else over(host, block)
