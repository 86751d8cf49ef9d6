"""Responses, and arrays, that are there before their content is: it is waited for where it is looked at.

`LazyArray` stands for an array of an output: whatever asks for more than its data type waits. To `isinstance`
it is an array of NumPy; code in C that insists on one raises a TypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

_BITS = np.dtype(np.uint16)  # of BF16, which NumPy lacks


class Source(Protocol):
    """Where the content of a lazy response comes from."""

    outputs: Sequence[tuple[str, str]]  # names and data types
    over: bool  # whether the program that it belongs to has ended

    def made(self, tensor: Tensor) -> Tensor:
        """Take note of a tensor that has something lazy in it."""

    def known(self) -> InferenceResponse | None:
        """Return the response if it is there."""

    def looked_at(self) -> InferenceResponse:
        """Wait for the response, which the program now looks at."""

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """Return an output, which the program looks at now."""


def plain(response: InferenceResponse) -> InferenceResponse:
    """Return a response with nothing lazy in it."""
    if type(response) is LazyResponse:
        found = response._source.looked_at()
        outputs = [Tensor._of(t._name, t._array, t._datatype) for t in found._outputs]
        response = InferenceResponse(outputs, found._error)
        response._parameters = found._parameters
    for tensor in getattr(response, "_outputs", ()):
        tensor._array = real(tensor._array)
    return response


def lazy_source(array: Any) -> Source | None:
    """Return where the content of an array comes from; None where it is there."""
    return array._source if type(array) is LazyArray else None


def real(value: Any) -> Any:
    """Return a value with arrays in place of lazy ones, waiting for these; lists, tuples and dicts too."""
    if type(value) is LazyArray:
        return value._real()
    if type(value) in (list, tuple):
        return type(value)(real(each) for each in value)
    if type(value) is dict:
        return {key: real(each) for key, each in value.items()}
    return value


class LazyArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An output that may not be there yet."""

    __slots__ = ("__weakref__", "_name", "_source", "dtype")
    __array_priority__ = 1000.0

    def __init__(self, source: Source, name: str, datatype: str) -> None:
        self._source, self._name = source, name
        self.dtype = DTYPE_OF_DATATYPE.get(datatype, _BITS)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    @property
    def flags(self) -> _Flags:
        """Outputs are contiguous; for all else, their content is waited for."""
        return _Flags(self)

    def _real(self) -> np.ndarray[Any, Any]:
        return self._source.array(self._name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.array(self._real(), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*real(inputs), **real(options))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, arguments: Any, options: Any
    ) -> Any:
        return function(*real(arguments), **real(options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._real()[real(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._real()[real(key)] = real(value)

    def __len__(self) -> int:
        return len(self._real())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._real())

    def __contains__(self, value: Any) -> bool:
        return value in self._real()

    def __bool__(self) -> bool:
        return bool(self._real())

    def __int__(self) -> int:
        return int(self._real())

    def __float__(self) -> float:
        return float(self._real())

    def __complex__(self) -> complex:
        return complex(self._real())

    def __index__(self) -> int:
        return self._real().__index__()

    def __format__(self, form: str) -> str:
        return format(self._real(), form)

    def __repr__(self) -> str:
        return repr(self._real())

    def __copy__(self) -> Any:
        return self._real().copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self._real().copy()

    def __reduce__(self) -> Any:
        return self._real().__reduce__()


class _Flags:
    """Flags of an array that may not be there yet."""

    def __init__(self, array: LazyArray) -> None:
        self._array = array

    @property
    def c_contiguous(self) -> bool:
        """As a tensor asks: False makes it take a real array, once the program has ended."""
        return not self._array._source.over

    def __getattr__(self, name: str) -> Any:
        return getattr(self._array._real().flags, name)

    def __getitem__(self, name: Any) -> Any:
        return self._array._real().flags[name]


class _WaitingTensor(Tensor):
    """A tensor whose array is waited for where it, or where it lies, is asked for."""

    __slots__ = ()

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Return the array; waits."""
        self._array = real(self._array)
        return super().as_numpy()

    def is_cpu(self) -> bool:
        """Whether it lies in host memory; waits."""
        self._array = real(self._array)
        return super().is_cpu()

    def to_dlpack(self) -> Any:
        """Return a capsule; waits."""
        self._array = real(self._array)
        return super().to_dlpack()

    def __dlpack__(self, stream: Any = None) -> Any:
        self._array = real(self._array)
        return super().__dlpack__(stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        self._array = real(self._array)
        return super().__dlpack_device__()


class LazyResponse(InferenceResponse):
    """A response that may not be there yet: until it is, it has no error."""

    __slots__ = ("_kind", "_source")

    def __init__(self, source: Source, lazy_arrays: bool = True) -> None:
        self._source = source
        self._kind = Tensor if lazy_arrays else _WaitingTensor

    @property
    def _outputs(self) -> list[Tensor]:  # type: ignore[override]
        source = self._source
        known = source.known()
        if known is not None and known._error is not None:
            return known._outputs
        return [
            source.made(self._kind._of(name, LazyArray(source, name, datatype), datatype))  # type: ignore[arg-type]
            for name, datatype in source.outputs
        ]

    @property
    def _error(self) -> TritonError | None:  # type: ignore[override]
        return self._source.looked_at()._error

    @property
    def _parameters(self) -> str:  # type: ignore[override]
        return self._source.looked_at()._parameters

    @property
    def _warnings(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._source.looked_at()._warnings

    @property
    def _arrived(self) -> float:  # type: ignore[override]
        return self._source.looked_at()._arrived

    def has_error(self) -> bool:
        """Whether the request has failed, as far as is known by now."""
        known = self._source.known()
        if known is None or known._error is None:
            return False
        self._source.looked_at()  # what follows may be there because of it
        return True

    def error(self) -> TritonError | None:
        """Return the error; waits."""
        return self._error

    def __repr__(self) -> str:
        return repr(self._source.looked_at())
