"""Install the simulated GPUs in PyTorch, once, for threads that run models' code.

Each replaced function tests whether a model's code runs on this thread (`model_code`), and otherwise calls
PyTorch's own. Classes (`torch.cuda.Stream`) are replaced by subclasses that accept both kinds of objects.

Guarantee: a thread that leaves a model's code sees PyTorch unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from bls_notebook.devices import model_code

from . import cuda_functions, other_functions, tensor_methods
from .gpu_tensor import block_of, dispatch


class Mode(TorchFunctionMode):  # type: ignore[misc]
    """Passes every call of PyTorch's functions on a thread to `dispatch`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


_mode = Mode()


def _turn(on: bool) -> None:
    """Turn the simulated GPUs on or off for this thread."""
    if on:
        _mode.__enter__()
    elif _mode in _get_current_function_mode_stack():  # else the model removed it
        while torch._C._pop_torch_function_stack() is not _mode:
            pass  # modes that the model pushed


def install() -> None:
    """Replace functions and classes of PyTorch, which is imported."""
    for module, functions in (
        (torch.cuda, cuda_functions.CUDA),
        (torch.cuda.memory, cuda_functions.CUDA),
        (torch.cuda.random, cuda_functions.CUDA),
        (getattr(torch.cuda, "nvtx", None), cuda_functions.NVTX),
        (getattr(torch, "accelerator", None), cuda_functions.ACCELERATOR),
        (getattr(getattr(torch, "accelerator", None), "memory", None), cuda_functions.ACCELERATOR),
    ):
        for name, ours in functions.items():
            own = getattr(module, name, None)
            if own is not None and not hasattr(own, "_of_simulated_gpus"):
                setattr(module, name, _either(own, ours))
    for path, ours in other_functions.OTHERS.items():
        *parents, name = path.split(".")
        try:
            place = functools.reduce(getattr, parents, torch)
            own = getattr(place, name)
        except AttributeError:
            continue  # not in this version of PyTorch
        setattr(place, name, _either(own, functools.partial(ours, own)))
    for name, made in (
        ("Stream", cuda_functions.TorchStream),
        ("Event", cuda_functions.TorchEvent),
        ("ExternalStream", cuda_functions.ExternalStream),
    ):
        own = getattr(torch.cuda, name)
        for module in (torch.cuda, torch.cuda.streams):
            setattr(module, name, _either_class(own, made, made))
    for name in tensor_methods.NAMES:
        if hasattr(torch.cuda, name):
            setattr(torch.cuda, name, tensor_methods.legacy_type(name))
    torch.Generator = _either_class(
        torch._C.Generator, functools.partial(other_functions.generator, torch._C.Generator), other_functions.Generator
    )
    to_dlpack, from_dlpack = torch._C._to_dlpack, torch.from_dlpack

    def shared(ext_tensor: Any, **options: Any) -> Any:
        return tensor_methods.from_dlpack(ext_tensor, from_dlpack, **options)

    torch.to_dlpack = torch.utils.dlpack.to_dlpack = _either(to_dlpack, tensor_methods.to_dlpack)
    torch.from_dlpack = torch.utils.dlpack.from_dlpack = _either(from_dlpack, shared)
    model_code.foreign_blocks.append(block_of)
    model_code.install(_turn)


def _either(own: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `ours` in a model's code and `own` elsewhere."""

    @functools.wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        return own(*args, **kwargs) if model_code.here() is None else ours(*args, **kwargs)

    call._of_simulated_gpus = True  # type: ignore[attr-defined]
    return call


def _either_class(own: Any, make: Callable[..., Any], ours: type) -> type:
    """Return a replacement of class `own` whose instances are PyTorch's or ours."""

    class Either(type(own)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is not either:  # a user's subclass
                return super().__call__(*args, **kwargs)
            return own(*args, **kwargs) if model_code.here() is None else make(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, (own, ours)) if cls is either else super().__instancecheck__(instance)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, (own, ours)) if cls is either else super().__subclasscheck__(other)

    names = {"__module__": own.__module__, "__doc__": own.__doc__, "__qualname__": own.__qualname__}
    either = Either(own.__name__, (own,), names)
    return either
