"""The methods and attributes of an array that do what NumPy's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Methods"]

_Array = np.ndarray[Any, Any]


def _method(name: str) -> Callable[..., Any]:
    def method(self: Methods, *args: Any, **kwargs: Any) -> Any:
        return self._call(name, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"As `numpy.ndarray.{name}`, on the GPU."
    return method


def _view_method(name: str) -> Callable[..., Any]:
    def method(self: Methods, *args: Any, **kwargs: Any) -> Any:
        return self._viewed(getattr(self._host, name)(*args, **kwargs))

    method.__name__ = name
    method.__doc__ = f"As `numpy.ndarray.{name}`, on the GPU."
    return method


class Methods:
    """What an array can do by itself; derived classes say how NumPy is called.

    A view needs no work of the GPU: it may be had of an array of any GPU, whichever is current.
    """

    __slots__ = ()

    _host: Any  # of NumPy; in a slot of the derived class

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _viewed(self, host: _Array) -> Any:
        raise NotImplementedError

    def _reshape(self, shape: Any) -> None:
        raise NotImplementedError

    @property
    def shape(self) -> Any:
        """Size of each dimension, a tuple of whole numbers."""
        return self._host.shape

    @shape.setter
    def shape(self, value: Any) -> None:
        self._reshape(value)

    @property
    def dtype(self) -> Any:
        """NumPy's data type."""
        return self._host.dtype

    @property
    def ndim(self) -> Any:
        """How many dimensions."""
        return self._host.ndim

    @property
    def size(self) -> Any:
        """How many elements."""
        return self._host.size

    @property
    def itemsize(self) -> Any:
        """Bytes of an element."""
        return self._host.itemsize

    @property
    def nbytes(self) -> Any:
        """Bytes of all elements."""
        return self._host.nbytes

    @property
    def strides(self) -> Any:
        """Bytes from one element to the next, in each dimension."""
        return self._host.strides

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        """A view with the dimensions reversed."""
        return self._viewed(self._host.T)

    @property
    def real(self) -> Any:
        """The real parts."""
        return self._viewed(self._host.real)

    @property
    def imag(self) -> Any:
        """The imaginary parts."""
        return self._viewed(self._host.imag)

    def item(self, *args: Any) -> Any:
        """Return one element as a Python number."""
        return self._host.item(*args)

    def tolist(self) -> Any:
        """Return the elements as Python numbers in lists."""
        return self._host.tolist()

    def tobytes(self, order: Any = "C") -> Any:
        """Return the elements as bytes in host memory."""
        return self._host.tobytes(order)

    def fill(self, value: Any) -> None:
        """Set every element."""
        self._host.fill(value)

    def sort(self, axis: int = -1) -> None:
        """Sort in place."""
        self._host.sort(axis)

    all = _method("all")
    any = _method("any")
    argmax = _method("argmax")
    argmin = _method("argmin")
    argsort = _method("argsort")
    astype = _method("astype")
    choose = _method("choose")
    clip = _method("clip")
    compress = _method("compress")
    conj = _method("conj")
    cumprod = _method("cumprod")
    cumsum = _method("cumsum")
    diagonal = _view_method("diagonal")
    dot = _method("dot")
    flatten = _method("flatten")
    max = _method("max")
    mean = _method("mean")
    min = _method("min")
    nonzero = _method("nonzero")
    prod = _method("prod")
    put = _method("put")
    ravel = _view_method("ravel")
    repeat = _method("repeat")
    reshape = _view_method("reshape")
    round = _method("round")
    squeeze = _view_method("squeeze")
    std = _method("std")
    sum = _method("sum")
    swapaxes = _view_method("swapaxes")
    take = _method("take")
    trace = _method("trace")
    transpose = _view_method("transpose")
    var = _method("var")
    view = _view_method("view")
