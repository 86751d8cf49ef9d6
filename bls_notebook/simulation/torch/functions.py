"""What PyTorch's functions do where a tensor of a simulated GPU, or the word `cuda`, is among what they get.

`dispatch` gets every call of a tensor on a GPU, and every one of a thread that runs a model's code. Where
nothing is special (`special.py`), the function runs on the CPU as it is, and new tensors are on the GPU of
those it got.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _device

from bls_notebook.devices import model_code

from .places import gpu_index
from .tensors import NATIVE, GpuTensor, Tensor, check_room, out_of_memory, placed

Special = Callable[[Any, Any, Any], Any]
SPECIAL: dict[Any, Special] = {}
"""By PyTorch's function; called with that, its arguments and its keyword arguments."""

FACTORIES = frozenset(_device._device_constructors())
# They take indices, lengths or sources of the CPU beside tensors of a GPU.
_MIXING = frozenset(
    {
        *("__getitem__", "__set__", "__setitem__", "copy_", "index_put", "index_put_", "set_", "backward"),
        *("_has_compatible_shallow_copy_type", "_pack_padded_sequence", "_pad_packed_sequence"),
        *("ctc_loss", "gru", "lstm", "rnn_relu", "rnn_tanh", "tensor_split"),
    }
)
_HOST_SECOND = frozenset(
    {"_pack_padded_sequence", "_pad_packed_sequence"}
)  # their second result is the CPU's
_LARGE = 1 << 20  # elements; of fewer the memory is simply taken
_SIZED = frozenset(
    {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.eye}
)


def special(*functions: Any) -> Callable[[Special], Special]:
    """Have a function called instead of some of PyTorch's."""

    def add(instead: Special) -> Special:
        SPECIAL.update((function, instead) for function in functions if function is not None)
        return instead

    return add


def dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of PyTorch for somebody who sees the simulated GPUs."""
    instead = SPECIAL.get(func)
    if instead is not None:
        return instead(func, args, kwargs)
    return plainly(func, args, kwargs)


GpuTensor.dispatch = staticmethod(dispatch)


def plainly(func: Any, args: Any, kwargs: Any) -> Any:
    """As `dispatch`, of a function that is not special."""
    hosts: list[Any] = []
    index = _look(args, -1, hosts, func)
    if kwargs:
        index = _look(kwargs.values(), index, hosts, func)
    if index >= 0 and hosts:
        _check(func, index, hosts)
    asked = kwargs.get("device")
    if asked is None and func in FACTORIES:
        process = model_code.here()
        asked = None if process is None or index >= 0 else process.default_device
    if asked is not None:
        where = gpu_index(asked)
        kwargs = {**kwargs, "device": "cpu" if where >= 0 else asked}
        if where >= 0 and func in _SIZED and _product((*args, kwargs.get("size", 1))) >= _LARGE:
            _check_room_for(func, args, kwargs, where)
        index = where
    if index < 0 and asked is None and not kwargs.get("pin_memory"):
        return func(*args, **kwargs)
    return call(func, args, kwargs, index, hosts)


def call(func: Any, args: Any, kwargs: Any, index: int, hosts: Any = ()) -> Any:
    """Call a function on the CPU, and say of its new tensors that they are on a GPU; of none at -1."""
    pinned = kwargs.get("pin_memory")
    if pinned is not None:
        kwargs = {**kwargs, "pin_memory": False}
    with NATIVE():
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if index >= 0 and "DefaultCPUAllocator" in str(error):
                raise _of_host(error, index) from None
            raise
        if index >= 0:
            name = getattr(func, "__name__", "")
            if name in _HOST_SECOND:
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
    """Return the GPU that tensors among these are on, -1 for none; add those of the CPU to `hosts`."""
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


def _check(func: Any, index: int, hosts: list[Any]) -> None:
    """Raise where tensors of the CPU are among those of a GPU; a single number may be."""
    with NATIVE():
        if any(one.ndim and one.is_cpu for one in hosts) and _is_strict(func):
            raise _mixed(f"cuda:{index}", "cpu")


def _mixed(one: str, other: str) -> RuntimeError:
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}!"
    )


def _product(sizes: Any) -> int:
    """How many elements there may be, as far as whole numbers among the arguments tell."""
    product = 1
    for size in sizes:
        if isinstance(size, int):
            product *= max(1, size)
        elif isinstance(size, (tuple, list)):
            product *= _product(size)
    return product


def _check_room_for(func: Any, args: Any, kwargs: Any, index: int) -> None:
    wanted = {name: value for name, value in kwargs.items() if name not in ("generator", "pin_memory", "out")}
    with NATIVE():
        try:
            size = func(*args, **{**wanted, "device": "meta"}).nbytes
        except (RuntimeError, TypeError, NotImplementedError):
            return  # the call itself will say what is wrong
    check_room(size, index)


def _of_host(error: RuntimeError, index: int) -> Exception:
    """What is raised where the host has not as much memory as a simulated GPU was to have."""
    from bls_notebook.simulation import machine

    digits = "".join(c if c.isdigit() else " " for c in str(error).partition("allocate")[2]).split()
    return out_of_memory(machine.gpu_at(index), int(digits[0]) if digits else 0)
