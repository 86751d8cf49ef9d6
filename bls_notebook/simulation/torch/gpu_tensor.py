"""`GpuTensor`, a tensor in host memory on a simulated GPU, and the dispatch of PyTorch's functions on it.

`dispatch` receives every call with such a tensor, and every call on a thread that runs a model's code. Unless
a function has an override (`special`), it runs on the CPU, and new tensors are on the GPU of its arguments.

Guarantees: a memory block counts as long as anything in PyTorch uses it: views, gradients, parameters, DLPack
capsules. It is attached to PyTorch's storage, which all of these share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils import _device

from bls_notebook.devices import allocation_log, own_gpu
from bls_notebook.devices.device import OutOfMemoryError
from bls_notebook.simulation import gpu_memory
from bls_notebook.simulation.gpu_memory import SimulatedBlock, SimulatedGPU


def gpu_index(device: Any) -> int:
    """Return the GPU number of a PyTorch device; -1 for another device and for None.

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


def chosen(device: Any) -> int:
    """Return the GPU number of an argument of `torch.cuda`, by default the current one."""
    found = gpu_index("cuda" if device is None else device)
    if found < 0:
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return found


def named(index: int) -> Any:
    return torch.device("cuda", index)


_BLOCK = "_simulated_block"
NATIVE = torch._C.DisableTorchFunction  # within it, tensors are on the CPU for Python too
Tensor = torch.Tensor


class GpuTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor on a simulated GPU; created by `placed`."""

    gpu_index = -1

    def record_stream(self, stream: Any) -> None:
        """Do nothing: no work is pending."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


@cache
def gpu_class(index: int, is_parameter: bool) -> type[GpuTensor]:
    """Return the class of the tensors or parameters on a GPU."""
    if is_parameter:
        bases = (gpu_class(index, False), torch.nn.Parameter)
        return type("Parameter", bases, {"gpu_index": index, "__module__": "torch.nn.parameter"})
    return type("Tensor", (GpuTensor,), {"gpu_index": index, "__module__": "torch"})


def index_of(tensor: Any) -> int:
    """Return the GPU number of a tensor, else -1."""
    found: int = getattr(type(tensor), "gpu_index", -1)
    return found


def block_of(tensor: Any) -> SimulatedBlock | None:
    """Return the memory block of a tensor on a GPU; None for sparse tensors and other objects."""
    if not issubclass(type(tensor), GpuTensor):
        return None
    with NATIVE():
        try:
            return getattr(tensor.untyped_storage(), _BLOCK, None)
        except (NotImplementedError, RuntimeError):
            return None


def placed(tensor: Any, index: int, block: SimulatedBlock | None = None) -> Any:
    """Move a tensor or parameter in host memory to a simulated GPU; call within `NATIVE`.

    Its block is `block`, by default a new one, unless its storage has one. Raises torch.OutOfMemoryError if
    the GPU has too little memory.
    """
    if tensor.is_cpu:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse: of several
            storage = None
        if storage is not None and getattr(storage, _BLOCK, None) is None:
            gpu, size = gpu_memory.gpu_at(index), storage.nbytes()
            try:
                setattr(storage, _BLOCK, block or SimulatedBlock(gpu, storage.data_ptr(), size))
            except OutOfMemoryError:
                raise out_of_memory(gpu, size) from None
        tensor.__class__ = gpu_class(index, isinstance(tensor, torch.nn.Parameter))
    return tensor


def check_room(size: int, index: int) -> None:
    """Raise if a GPU has too little free memory, before the host allocates it."""
    gpu = gpu_memory.gpu_at(index)
    if gpu.used + size > gpu.capacity:
        raise out_of_memory(gpu, size)


def out_of_memory(gpu: SimulatedGPU, size: int) -> Exception:
    """Return PyTorch's out-of-memory error for a GPU."""

    def gib(number: int) -> str:
        return f"{number / (1 << 30):.2f} GiB" if number >= 1 << 28 else f"{number / (1 << 20):.2f} MiB"

    used = gpu.used
    error: Exception = torch.cuda.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {gib(size)}. GPU {gpu.index} has a total capacity of "
        f"{gib(gpu.capacity)} of which {gib(max(0, gpu.capacity - used))} is free. Of the allocated memory "
        f"{gib(used)} is allocated by PyTorch and by other models ({gpu.device.label})."
    )
    return error


def report_transfer(source: Any, result: Any, started: int) -> None:
    """Report a transfer to the observer of memory; call within `NATIVE`."""
    if allocation_log.recording is None:
        return
    gone, come = _seen(source), _seen(result)
    if gone is not None and come is not None:
        allocation_log.moved("transfer", gone, come, perf_counter_ns() - started)


def _seen(tensor: Any) -> Any:
    """Return a tensor as an array for the observer, or None if NumPy cannot represent it."""
    from bls_notebook.simulation.cupy_array import over

    try:
        # Any dtype will do: the observer reads only the address.
        host = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    block = block_of(tensor)
    return host if block is None else over(host, block)


Special = Callable[[Any, Any, Any], Any]
SPECIAL: dict[Any, Special] = {}
"""Overrides by PyTorch's function; called with it, its arguments and its keyword arguments."""

FACTORIES = frozenset(_device._device_constructors())
# They take indices, lengths or sources on the CPU together with tensors on a GPU.
_MIXING = {
    "__getitem__", "__set__", "__setitem__", "_has_compatible_shallow_copy_type", "_pack_padded_sequence",
    "_pad_packed_sequence", "backward", "copy_", "ctc_loss", "gru", "index_put", "index_put_", "lstm", "rnn_relu",
    "rnn_tanh", "set_", "tensor_split",
}  # fmt: skip
_HOST_SECOND = frozenset({"_pack_padded_sequence", "_pad_packed_sequence"})  # their second result is on the CPU
_SIZED = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.eye}


def special(*functions: Any) -> Callable[[Special], Special]:
    """Register an override of functions of PyTorch."""

    def add(instead: Special) -> Special:
        SPECIAL.update((function, instead) for function in functions if function is not None)
        return instead

    return add


def dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of PyTorch for code that sees the simulated GPUs."""
    instead = SPECIAL.get(func)
    if instead is not None:
        return instead(func, args, kwargs)
    return plainly(func, args, kwargs)


def plainly(func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function that has no override."""
    hosts: list[Any] = []
    index = _look(args, -1, hosts, func)
    if kwargs:
        index = _look(kwargs.values(), index, hosts, func)
    if index >= 0 and hosts and _is_strict(func):
        with NATIVE():
            if any(one.ndim and one.is_cpu for one in hosts):  # scalars are allowed
                raise _mixed(f"cuda:{index}", "cpu")
    asked = kwargs.get("device")
    if asked is None and func in FACTORIES:
        process = own_gpu.here()
        asked = None if process is None or index >= 0 else process.default_device
    if asked is not None:
        where = gpu_index(asked)
        kwargs = {**kwargs, "device": "cpu" if where >= 0 else asked}
        if where >= 0 and func in _SIZED:
            _check_room_for(func, args, kwargs, where)
        index = where
    if index < 0 and asked is None and not kwargs.get("pin_memory"):
        return func(*args, **kwargs)
    return call(func, args, kwargs, index, hosts)


def call(func: Any, args: Any, kwargs: Any, index: int, hosts: Any = ()) -> Any:
    """Call a function on the CPU and move its new tensors to GPU `index`; -1 moves none."""
    pinned = kwargs.get("pin_memory")
    if pinned is not None:
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
    if pinned:
        result._pinned = True
    return result


def _place_all(result: Any, index: int, hosts: Any) -> None:
    kind = type(result)
    if kind is Tensor or kind is torch.nn.Parameter:
        if not hosts or not any(result is one for one in hosts):
            placed(result, index)
    elif isinstance(result, (tuple, list)):
        for one in result:
            _place_all(one, index, hosts)
    elif kind is dict:
        _place_all(list(result.values()), index, hosts)


def _look(values: Any, index: int, hosts: list[Any], func: Any) -> int:
    """Return the GPU of the tensors in `values`, -1 for none; append CPU tensors to `hosts`."""
    for value in values:
        if isinstance(value, Tensor):
            found = getattr(type(value), "gpu_index", -1)
            if found < 0:
                hosts.append(value)
            elif index < 0 or index == found:
                index = found
            elif _is_strict(func):
                raise _mixed(f"cuda:{index}", f"cuda:{found}")
        elif value.__class__ is tuple or value.__class__ is list:
            index = _look(value, index, hosts, func)
    return index


def _is_strict(func: Any) -> bool:
    return getattr(func, "__name__", "") not in _MIXING


def _mixed(one: str, other: str) -> RuntimeError:
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}!"
    )


def _check_room_for(func: Any, args: Any, kwargs: Any, index: int) -> None:
    wanted = {name: value for name, value in kwargs.items() if name not in ("generator", "pin_memory", "out")}
    with NATIVE():
        try:
            size = func(*args, **{**wanted, "device": "meta"}).nbytes
        except (RuntimeError, TypeError, NotImplementedError):
            return  # the call itself raises the error
    check_room(size, index)
