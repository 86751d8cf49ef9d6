"""`inspect`: a view of a response, a tensor, two of these side by side, or a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from bls_notebook.devices import backend_of
from bls_notebook.devices.allocation_log import owner_kinds
from bls_notebook.engine import BLSError
from bls_notebook.inspection.records import Compared
from bls_notebook.inspection.tensor_differences import compared
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonModelException
from bls_notebook.records import ModelRecord, Printable, Record, first_line
from bls_notebook.repository import Response, current_repository

from .records import ResponseView, TensorView
from .tensor_contents import array_view, datatype_of, tensor_view

_EXPECTED = "expected a response, a tensor, an array, or the name of a model"
OUTPUTS = 8  # the most outputs of a response that are shown in one inspection


class Inspection(Printable):
    """The contents of a value, or the comparison of two; a notebook displays it.

    Attributes
    ----------
    value, other : object
        The inspected values; `other` is None unless two are compared.
    tensor : str
        The inspected output of a response; empty for all outputs.
    at : str
        The slice of the tensor, as the user typed it.
    rate : int or None
        Samples per second for playing tensors as sounds.
    record : Record
        The contents as plain data, copied at the time of the inspection.
    """

    def __init__(
        self, value: Any, other: Any = None, *, name: str = "", tensor: str = "", at: str = "", rate: int | None = None
    ) -> None:
        if rate is not None and (not isinstance(rate, int) or not 100 <= rate <= 1_000_000):
            raise BLSError(f"inspect: rate: got {rate!r}, expected samples per second, from 100 to 1,000,000")
        self.value, self.other, self.name = value, other, name
        self.tensor, self.at, self.rate = tensor, at, rate
        self.record: Record = self._look()

    def asked(self, **changes: Any) -> Inspection:
        """Return an inspection of the same values with another `tensor`, `at` or `rate`."""
        options = {"name": self.name, "tensor": self.tensor, "at": self.at, "rate": self.rate, **changes}
        return Inspection(self.value, self.other, **options)

    def __getitem__(self, key: Any) -> Inspection:
        """Return the inspection of an output by name, or of a slice of the tensor."""
        if isinstance(key, str):
            return self.asked(tensor=key)
        parts = key if isinstance(key, tuple) else (key,)
        return self.asked(at=f"[{', '.join(map(_spelled, parts))}]")

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors that can be inspected, by name."""
        if isinstance(self.value, Response):
            return {t._name: tuple(t._array.shape) for t in self.value._response._outputs}
        return {self.record.tensor.name: self.record.whole} if isinstance(self.record, TensorView) else {}

    def _look(self) -> Record:
        if self.other is not None:
            return _side_by_side(self.value, self.other)
        value = self.value
        if isinstance(value, list) and value and isinstance(value[0], Response):
            if len(value) > 1:
                raise BLSError(f"inspect: got {len(value):,} responses, expected one: add [0] for the first")
            value = self.value = value[0]
        if isinstance(value, ModelRecord):
            value = self.value = value.name
        if isinstance(value, str):
            from .model_details import model_view

            return model_view(current_repository(), value)
        if isinstance(value, InferenceResponse):
            value = self.value = Response(value, self.name or "response")
        if isinstance(value, Response):
            outputs = [t for t in value._response._outputs if self.tensor in ("", t._name)]
            if self.tensor and not outputs:
                value[self.tensor]  # raises an error that lists the outputs
            views = tuple(tensor_view(t, self.at if self.tensor else "", self.rate) for t in outputs[:OUTPUTS])
            return ResponseView(value.record, views)
        if isinstance(value, Tensor):
            return tensor_view(value, self.at, self.rate)
        return array_view(self.name, "", array_of(value), self.at, self.rate)

    def __repr__(self) -> str:
        return f"<inspection of {self.name or type(self.value).__name__}>"


def inspect(value: Any, other: Any = None, *, at: str = "", rate: int | None = None) -> Inspection:
    """Inspect a response, a tensor, or a model; or compare two responses or tensors side by side.

    Image-shaped tensors are shown as pictures, rows of samples as a sound, BYTES as text, JSON or
    files; with minimum, maximum, mean and a histogram. These are computed on the tensor's own device: only
    small parts of a tensor on a GPU are copied to the host.

    Parameters
    ----------
    value : Response, pb_utils.Tensor, array or str
        An array of NumPy or CuPy, or any object with DLPack; a text is the name of a model in the current
        repository.
    other : optional
        A second response, tensor or array to compare with.
    at : str
        A slice of the tensor, such as ``"[0, :, :, 1]"``.
    rate : int, optional
        Samples per second of a tensor that is a sound; 16,000 by default.

    Returns
    -------
    Inspection
        A notebook displays it; `record` has the contents as plain data. ``inspect(x)[0, :, :, 1]`` inspects a
        slice, ``inspect(response)["OUT"]`` one output.

    Raises
    ------
    BLSError
        The value cannot be inspected, or `at` does not fit the tensor.

    Examples
    --------
    >>> bls.inspect(repo.infer("segment", {"IMAGE": image}))
    >>> bls.inspect(before, after).record.tensors[0].absolute
    """
    return Inspection(value, other, at=at, rate=rate)


def array_of(value: Any) -> Any:
    """Return an inspectable value as an array, without a copy to the host; raise a BLSError for other values."""
    if isinstance(value, np.ndarray) or backend_of(value) is not None:
        return value
    kind = type(value)
    if kind in (bytes, bytearray):
        element = np.empty(1, object)
        element[0] = bytes(value)
        return element
    try:
        if hasattr(kind, "__dlpack__"):
            return Tensor.from_dlpack("array", value)._array
        if kind in (list, tuple, int, float, bool) or hasattr(kind, "__array__"):
            array = np.asarray(value)
            if array.dtype.kind in "biufSU" or kind in (list, tuple):
                return array
    except (TritonModelException, TypeError, ValueError, RuntimeError, BufferError) as error:
        raise BLSError(f"inspect: {kind.__name__}: {first_line(str(error))}") from None
    raise BLSError(f"inspect: got {kind.__name__}, {_EXPECTED}")


def _side_by_side(first: Any, second: Any) -> Compared:
    outputs = [_outputs(each) for each in (first, second)]
    if not any(isinstance(each, (Response, InferenceResponse)) for each in (first, second)):
        (one,), (two,) = outputs[0].values(), outputs[1].values()  # whatever their names
        return Compared("first", "second", (compared(one, two, one._name),))
    names = dict.fromkeys([*outputs[0], *outputs[1]])
    errors = tuple(
        f"the {which} is an error: {first_line(each.error.message())}"
        for which, each in (("first", first), ("second", second))
        if isinstance(each, Response) and each.error is not None
    )
    tensors = tuple(compared(outputs[0].get(name), outputs[1].get(name), name) for name in names)
    return Compared(_label(first, "first"), _label(second, "second"), tensors, errors)


def _outputs(value: Any) -> dict[str, Tensor]:
    if isinstance(value, InferenceResponse):
        value = Response(value, "response")
    if isinstance(value, Response):
        return {t._name: t for t in value._response._outputs}
    if isinstance(value, Tensor):
        return {value._name: value}
    array: Any = array_of(value)
    return {"values": Tensor._of("values", array, datatype_of(array))}


def _label(value: Any, which: str) -> str:
    return f"{which}: {value.model}" if isinstance(value, Response) else which


def _spelled(part: Any) -> str:
    if isinstance(part, slice):
        start, stop, step = ("" if each is None else str(each) for each in (part.start, part.stop, part.step))
        return f"{start}:{stop}{':' if step else ''}{step}"
    return "..." if part is Ellipsis else str(part)


owner_kinds[Inspection] = "inspection"
