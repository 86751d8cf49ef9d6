"""`Tape`: what requests and responses carry while it is on, copied as each passes the engine.

Guarantees: each tensor is copied once at each hop, after it was handed over and before its receiver has it;
what is kept takes no more than a limit (by one message a thread). Nothing is waited for, and what cannot be
copied is told of without its values. As in a `Log`, plain values are written into one list, several at a
time: containers that outlived their request would bring the next garbage collection nearer. What can be found
out afterwards (sizes of what was kept) is: between the models of a pipeline the caches have other things in
them, where each step costs several times what it does in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bls_notebook.devices.registry import backend_of
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.tensors.reshape import Reshape
from bls_notebook.observe.recording import nbytes, text_bytes
from bls_notebook.pb_utils.dtypes import element_bytes
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.gpu_text import TextOnGPU
from bls_notebook.pb_utils.options import Options
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

UNKNOWN = -1  # a sender that is a model, of which no request is on the tape
_Array = np.ndarray[Any, Any]
_ndarray = np.ndarray
_UNWANTED, _CUT = 1, 2
_REQUEST, _RESPONSE = 12, 6  # values of an entry before those of its tensors
_TENSOR = 3  # values of a tensor: name, data type, its array or, where there is none, shape, bytes, and why


@dataclass(slots=True)
class Value:
    """A tensor as it was sent; ``array`` is None where it was not kept, ``cut`` if for its size."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    bytes: int
    array: _Array | None = None
    cut: bool = False


@dataclass(slots=True)
class Answered:
    """A response, and when it was given."""

    ns: int
    outputs: list[Value]
    error: TritonError | None
    parameters: str
    final: bool


@dataclass(slots=True)
class Sent:
    """A request on the tape; `sender` is the number of its sender's, 0 outside any model."""

    number: int
    sender: int
    asked: str
    asked_version: int
    version: int
    decoupled: bool
    kind: str
    options: Options
    requested: tuple[str, ...]
    ns: int
    inputs: list[Value]
    answers: list[Answered] = field(default_factory=list)


class Tape:
    """Keeps requests by number.

    Parameters
    ----------
    every : bool
        Whether tensors are kept at every hop, not only of requests from outside any model.
    limit : int
        Bytes of tensors that are kept.
    """

    def __init__(self, every: bool, limit: int) -> None:
        self.every = every
        self.limit = limit
        self._size = 0
        self._outside: set[int] = set()  # numbers of requests from outside that wait for more responses
        self._entries: list[Any] = []
        self._keep = self._entries.extend  # one step, whoever else writes

    def sent(
        self,
        number: int,
        request: InferenceRequest,
        inputs: list[Tensor],
        kind: str,
        model: LoadedModel | None,
        sender: Execution,
        now: int,
    ) -> None:
        """Keep a request; see `observe.recording.Tape`."""
        outside = sender.model is None and not sender.bare
        entry = [
            number, len(inputs), 0 if outside else sender.span or UNKNOWN, request._model_name,
            request._model_version, None if model is None else model.seen, kind, request._options,
            request._requested, now, None if model is None else model.reshapes, inputs is request._inputs,
        ]  # fmt: skip
        every = self.every
        if outside and not every:
            self._outside.add(number)
        one = len(inputs) == 1 and inputs[0]._datatype != "BYTES"
        self._write(entry, inputs, outside or every, inputs[0]._array.nbytes if one else nbytes(inputs))

    def answered(self, number: int, response: InferenceResponse, final: bool, size: int, now: int) -> None:
        """Keep a response; see `observe.recording.Tape`."""
        outputs = response._outputs
        entry = [-number, len(outputs), response._error, response._parameters, final, now]
        self._write(entry, outputs, self.every or number in self._outside, size)
        if final and not self.every:
            self._outside.discard(number)

    def _write(self, entry: list[Any], tensors: list[Tensor], wanted: bool, size: int) -> None:
        whole = self._size + size
        if wanted and whole <= self.limit:
            self._size = whole
            for tensor in tensors:
                array = tensor._array  # the elements of BYTES are no one's to change
                kept = array.copy() if array.__class__ is _ndarray else _copied(tensor)
                entry += (tensor._name, tensor._datatype, kept)
        else:
            for tensor in tensors:
                size = nbytes([tensor])
                room = wanted and self._size + size <= self.limit
                self._size += size if room else 0
                why = _CUT if wanted else _UNWANTED
                kept = _copied(tensor) if room else (tensor._array.shape, size, why)
                entry += (tensor._name, tensor._datatype, kept)
        self._keep(entry)

    def clear(self) -> None:
        """Let go of everything."""
        self._entries.clear()

    def requests(self) -> Iterator[Sent]:
        """Return what was kept so far, by number; requests that began before are not among them."""
        entries, found = list(self._entries), {}
        at = 0
        while at < len(entries):
            number, count = entries[at], entries[at + 1]
            head = _REQUEST if number > 0 else _RESPONSE
            end = at + head + count * _TENSOR
            tensors = [_value(*entries[i : i + _TENSOR]) for i in range(at + head, end, _TENSOR)]
            if number > 0:
                found[number] = _sent(entries[at : at + head], tensors)
            elif -number in found:
                error, parameters, final, now = entries[at + 2 : at + head]
                found[-number].answers.append(Answered(now, tensors, error, parameters, final))
            at = end
        for number in sorted(found):
            sent = found[number]
            if sent.sender not in found and sent.sender:
                sent.sender = UNKNOWN
            yield sent


def _sent(entry: list[Any], inputs: list[Value]) -> Sent:
    number, _, sender, asked, asked_version, seen, kind, options, requested, now, reshapes, refused = entry
    back: Mapping[str, Reshape] = {} if refused or not reshapes else reshapes
    for value in inputs:
        there = back.get(value.name)
        shape = None if there is None else there.back().of(value.shape)
        if shape is not None:
            value.shape = shape
            if value.array is not None:
                value.array = value.array.reshape(shape)
    return Sent(
        number, sender, asked, asked_version, 0 if seen is None else seen.version,
        seen is not None and seen.decoupled, kind, options, tuple(requested), now, inputs,
    )  # fmt: skip


def _copied(tensor: Tensor) -> Any:
    """A copy of a tensor's values, or what there is to say of one that cannot be copied."""
    array = tensor._array
    try:
        return array.copy() if array.__class__ is _ndarray else copied(array, tensor._datatype)
    except Exception:
        return array.shape, nbytes([tensor]), _UNWANTED


def _value(name: str, datatype: str, what: Any) -> Value:
    if not isinstance(what, _ndarray):
        shape, size, why = what
        return Value(name, datatype, tuple(shape), size, cut=why == _CUT)
    if datatype != "BYTES":
        return Value(name, datatype, what.shape, what.nbytes, what)
    try:
        return Value(name, datatype, what.shape, text_bytes(what), copied(what, datatype))
    except Exception:  # of a request that was refused for that
        return Value(name, datatype, what.shape, text_bytes(what))


def copied(array: Any, datatype: str) -> _Array:
    """Return a copy of a tensor's array on the CPU; BYTES as bytes."""
    if datatype == "BYTES":
        if isinstance(array, TextOnGPU):
            array = array.on_cpu()
        out = np.empty(array.shape, np.object_)
        out.reshape(-1)[:] = [element_bytes(element) for element in np.asarray(array).reshape(-1).tolist()]
        return out
    there = None if isinstance(array, np.ndarray) else backend_of(array)
    return np.array(array, order="C") if there is None else there.to_host(array)
