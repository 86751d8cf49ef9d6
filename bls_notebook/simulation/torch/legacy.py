"""`torch.cuda.FloatTensor` and its kind, on simulated GPUs: types of tensors that are on the current one."""

from __future__ import annotations

from typing import Any

import torch

from bls_notebook.devices import model_code

from .functions import dispatch
from .tensors import NATIVE, Tensor, index_of

_PREFIX = "torch.cuda."
NAMES = tuple(
    f"{kind}Tensor"
    for kind in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
)


class _Type(type):
    """PyTorch's own type (`_own`) for everybody but models."""

    _own: Any
    _host: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if model_code.here() is None:
            return cls._own(*args, **kwargs)
        with NATIVE():
            made = cls._host(*args)
        return dispatch(Tensor.cuda, (made,), {})

    def __instancecheck__(cls, instance: Any) -> bool:
        if index_of(instance) < 0:
            return isinstance(instance, cls._own)
        with NATIVE():
            return isinstance(instance, cls._host)

    @property
    def dtype(cls) -> Any:
        return cls._own.dtype

    def __repr__(cls) -> str:
        return repr(cls._own)


def legacy_type(name: str) -> Any:
    own, host = getattr(torch.cuda, name), getattr(torch, name)
    return _Type(name, (), {"_own": own, "_host": host, "__module__": "torch.cuda", "__doc__": own.__doc__})


def name_of(kind: Any) -> str:
    """Return the name of a type of tensors, however it is given; empty for a data type."""
    if isinstance(kind, str):
        return kind
    return f"{kind.__module__}.{kind.__name__}" if isinstance(kind, type) else ""


def of_host(name: str) -> str:
    """Return the name of the type on the CPU that goes with one on GPUs; empty for any other type."""
    return f"torch.{name.removeprefix(_PREFIX)}" if name.startswith(_PREFIX) else ""


def set_default_tensor_type(original: Any, kind: Any) -> None:
    """Have a model's new tensors of a type, and where that is."""
    process = model_code.here()
    assert process is not None
    host = of_host(name_of(kind))
    original(host or kind)
    process.default_device = torch.device("cuda") if host else None
