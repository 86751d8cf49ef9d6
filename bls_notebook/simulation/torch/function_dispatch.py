"""Dispatch of PyTorch's functions on tensors of simulated GPUs (`GpuTensor`, in host memory).

`dispatch` receives every call with such a tensor, and every call on a thread that runs a model's code. A function
with an override (decorator `override`) calls that. Any other function runs on the CPU, and its new tensors are
placed on the GPU of its arguments.

Guarantee: a memory block counts as long as PyTorch uses it in any way (views, gradients, parameters, DLPack
capsules), because it is attached to PyTorch's storage, which all of these share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils import _device

from bls_notebook.devices import OutOfMemoryError, allocation_log, instance_gpu
from bls_notebook.simulation import gpu_memory
from bls_notebook.simulation.gpu_memory import SimulatedBlock

from .cuda_functions import allocator_of, check_room, gpu_index, out_of_memory

_BLOCK = "_simulated_block"
NATIVE = torch._C.DisableTorchFunction  # inside, Python sees the tensors on the CPU, too
TorchTensor = torch.Tensor


class GpuTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor on a simulated GPU; `place_on_gpu` creates it."""

    gpu_index = -1

    def record_stream(self, stream: Any) -> None:
        """Do nothing: no work is pending."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


@cache
def gpu_class(index: int, is_parameter: bool) -> type[GpuTensor]:
    if is_parameter:
        bases = (gpu_class(index, False), torch.nn.Parameter)
        return type("Parameter", bases, {"gpu_index": index, "__module__": "torch.nn.parameter"})
    return type("Tensor", (GpuTensor,), {"gpu_index": index, "__module__": "torch"})


def index_of(tensor: Any) -> int:
    """Return the GPU number of a tensor; -1 for other tensors."""
    index: int = getattr(type(tensor), "gpu_index", -1)
    return index


def block_of(tensor: Any) -> SimulatedBlock | None:
    """Return the memory block of a tensor on a GPU; None for sparse tensors and other objects."""
    if not issubclass(type(tensor), GpuTensor):
        return None
    with NATIVE():
        try:
            return getattr(tensor.untyped_storage(), _BLOCK, None)
        except (NotImplementedError, RuntimeError):
            return None


def place_on_gpu(tensor: Any, index: int, block: SimulatedBlock | None = None) -> Any:
    """Move a tensor or parameter in host memory to a simulated GPU; call within `NATIVE`.

    A storage without a memory block gets `block`, by default a new one. Raises torch.OutOfMemoryError if the GPU
    has too little memory.
    """
    if tensor.is_cpu:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse tensors have several storages
            storage = None
        if storage is not None and getattr(storage, _BLOCK, None) is None:
            gpu, size = gpu_memory.gpu_at(index), storage.nbytes()
            try:
                setattr(storage, _BLOCK, block or SimulatedBlock(gpu, storage.data_ptr(), size, allocator_of(index)))
            except OutOfMemoryError:
                raise out_of_memory(gpu, size) from None
        tensor.__class__ = gpu_class(index, isinstance(tensor, torch.nn.Parameter))
    return tensor


def report_transfer(source: Any, result: Any, started: int) -> None:
    """Report a transfer to the allocation log; call within `NATIVE`."""
    if allocation_log.recording is None:
        return
    source_array, result_array = _as_array(source), _as_array(result)
    if source_array is not None and result_array is not None:
        allocation_log.moved("transfer", source_array, result_array, perf_counter_ns() - started)


def _as_array(tensor: Any) -> Any:
    """Return a tensor as an array for the allocation log; None if NumPy cannot represent it."""
    from bls_notebook.simulation.cupy_array import over

    try:
        # Any dtype works, because the log only needs the address and the size.
        host = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    block = block_of(tensor)
    return host if block is None else over(host, block)


Override = Callable[[Any, Any, Any], Any]
OVERRIDES: dict[Any, Override] = {}
"""Overrides by PyTorch's function; called with the function, its arguments and its keyword arguments."""

FACTORIES = frozenset(_device._device_constructors())
# Functions that accept indices, lengths or sources on the CPU together with tensors on a GPU.
_MIXING = {
    "__getitem__", "__set__", "__setitem__", "_has_compatible_shallow_copy_type", "_pack_padded_sequence",
    "_pad_packed_sequence", "backward", "copy_", "ctc_loss", "gru", "index_put", "index_put_", "lstm", "rnn_relu",
    "rnn_tanh", "set_", "tensor_split",
}  # fmt: skip
_HOST_SECOND = ("_pack_padded_sequence", "_pad_packed_sequence")  # functions with their second result on the CPU
_SIZED = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.eye}


def override(*functions: Any) -> Callable[[Override], Override]:
    """Register a decorated function as the override of functions of PyTorch."""

    def add(instead: Override) -> Override:
        OVERRIDES.update((function, instead) for function in functions if function is not None)
        return instead

    return add


def dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of PyTorch on behalf of code that sees the simulated GPUs."""
    instead = OVERRIDES.get(func)
    return instead(func, args, kwargs) if instead is not None else call_default(func, args, kwargs)


def call_default(func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function that has no override: on the CPU, with its new tensors on the GPU of its arguments."""
    hosts: list[Any] = []
    index = _gpu_of(args, -1, hosts, func)
    if kwargs:
        index = _gpu_of(kwargs.values(), index, hosts, func)
    if index >= 0 and hosts and _is_strict(func):
        with NATIVE():
            if any(host.ndim and host.is_cpu for host in hosts):  # scalars are allowed
                raise _mixed(f"cuda:{index}", "cpu")
    device = kwargs.get("device")
    if device is None and func in FACTORIES:
        process = instance_gpu.here()
        device = None if process is None or index >= 0 else process.default_device
    if device is not None:
        target = gpu_index(device)
        kwargs = {**kwargs, "device": "cpu" if target >= 0 else device}
        if target >= 0 and func in _SIZED:
            _check_room_for(func, args, kwargs, target)
        index = target
    if index < 0 and device is None and not kwargs.get("pin_memory"):
        return func(*args, **kwargs)
    return call(func, args, kwargs, index, hosts)


def call(func: Any, args: Any, kwargs: Any, index: int, hosts: Any = ()) -> Any:
    """Call a function on the CPU and move its new tensors to GPU `index`; -1 moves none."""
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    with NATIVE():
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            size = re.search(r"DefaultCPUAllocator: .* allocate (\d+)", str(error))
            if index >= 0 and size is not None:
                raise out_of_memory(gpu_memory.gpu_at(index), int(size[1])) from None
            raise
        if index >= 0:
            if getattr(func, "__name__", "") in _HOST_SECOND:
                hosts = [*hosts, result[1]]
            _place_all(result, index, hosts)
    return result


def _place_all(result: Any, index: int, hosts: Any) -> None:
    kind = type(result)
    if kind is TorchTensor or kind is torch.nn.Parameter:
        if not hosts or not any(result is item for item in hosts):
            place_on_gpu(result, index)
    elif isinstance(result, (tuple, list)):
        for item in result:
            _place_all(item, index, hosts)
    elif kind is dict:
        _place_all(list(result.values()), index, hosts)


def _gpu_of(values: Any, index: int, hosts: list[Any], func: Any) -> int:
    """Return the GPU of the tensors in `values`, or -1; append CPU tensors to `hosts`."""
    for value in values:
        if isinstance(value, TorchTensor):
            gpu = getattr(type(value), "gpu_index", -1)
            if gpu < 0:
                hosts.append(value)
            elif index < 0 or index == gpu:
                index = gpu
            elif _is_strict(func):
                raise _mixed(f"cuda:{index}", f"cuda:{gpu}")
        elif value.__class__ is tuple or value.__class__ is list:
            index = _gpu_of(value, index, hosts, func)
    return index


def _is_strict(func: Any) -> bool:
    return getattr(func, "__name__", "") not in _MIXING


def _mixed(one: str, other: str) -> RuntimeError:
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}!"
    )


def _check_room_for(func: Any, args: Any, kwargs: Any, index: int) -> None:
    options = {name: value for name, value in kwargs.items() if name not in ("generator", "pin_memory", "out")}
    with NATIVE():
        try:
            size = func(*args, **{**options, "device": "meta"}).nbytes
        except (RuntimeError, TypeError, NotImplementedError):
            return  # the call itself raises the error
    check_room(size, index)
