"""`Tape`: what requests and responses carry while it is on, copied as each passes the engine.

Guarantees: each tensor is copied once at each hop, after it was handed over and before its receiver has it;
what is kept takes no more than a limit (by one message a thread). Nothing is waited for, and what cannot be
copied is told of without its values. As in a `Log`, plain values are written into lists, several at a
time: containers that outlived their request would bring the next garbage collection nearer. What can be found
out afterwards (sizes of what was kept) is: between the models of a pipeline the caches have other things in
them, where each step costs several times what it does in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from bls_notebook.devices.registry import backend_of, gpu_arrays
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.tensors.reshape import Reshape
from bls_notebook.observe.recording import nbytes, text_bytes
from bls_notebook.observe.records.seen import ModelSeen
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, element_bytes
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.gpu_text import TextOnGPU
from bls_notebook.pb_utils.options import Options
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

UNKNOWN = -1  # a sender that is a model, of which no request is on the tape
_Array = np.ndarray[Any, Any]
_ndarray = np.ndarray
_REQUEST, _RESPONSE = 8, 4  # values of an entry, beside its number, how many tensors, and four of each


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
        self._room = limit
        self._outside: set[int] = set()  # numbers of requests from outside that wait for more responses
        self._asked: list[Any] = []
        self._given: list[Any] = []
        # One step, whoever else writes.
        self._keep, self._keep_answer = self._asked.extend, self._given.extend

    def sent(
        self,
        number: int,
        request: InferenceRequest,
        inputs: list[Tensor],
        size: int,
        kind: str,
        model: tuple[ModelSeen | None, Mapping[str, Reshape]],
        sender: Execution,
        now: int,
    ) -> None:
        """Keep a request; see `observe.recording.Tape`."""
        who = 0 if sender.model is None and not sender.bare else sender.span or UNKNOWN
        entry = [
            number, len(inputs), who, request._model_name, request._model_version, model, kind,
            request._options, request._requested, now,
        ]  # fmt: skip
        wanted = self.every or not who
        room = self._room - size
        if wanted and room >= 0 and not gpu_arrays:
            self._room = room
            for tensor in inputs:
                text, array = tensor._datatype, tensor._array
                entry += tensor._name, text, array.shape, array.copy() if text == "BYTES" else array.tobytes()
        else:
            self._write(entry, inputs, wanted)
        self._keep(entry)
        if not self.every and not who:
            self._outside.add(number)

    def answered(self, number: int, response: InferenceResponse, final: bool, size: int, now: int) -> None:
        """Keep a response; see `observe.recording.Tape`."""
        outputs = response._outputs
        entry: list[Any] = [number, len(outputs), response._error, response._parameters, final, now]
        wanted = self.every or number in self._outside
        room = self._room - size
        if wanted and room >= 0 and not gpu_arrays:
            self._room = room
            for tensor in outputs:
                text, array = tensor._datatype, tensor._array
                entry += tensor._name, text, array.shape, array.copy() if text == "BYTES" else array.tobytes()
        else:
            self._write(entry, outputs, wanted)
        self._keep_answer(entry)
        if final and not self.every:
            self._outside.discard(number)

    def _write(self, entry: list[Any], tensors: list[Tensor], wanted: bool) -> None:
        """Add tensors to an entry, as far as they are wanted and there is room, from wherever they lie."""
        for tensor in tensors:
            size = nbytes([tensor]) if wanted or tensor._datatype == "BYTES" else UNKNOWN
            fits = wanted and size <= self._room
            self._room -= size if fits else 0
            kept = _copied(tensor, size) if fits else (size, wanted)
            entry += tensor._name, tensor._datatype, tensor._array.shape, kept

    def clear(self) -> None:
        """Let go of everything."""
        self._asked.clear()
        self._given.clear()

    def requests(self) -> Iterator[Sent]:
        """Return what was kept so far, by number; requests that began before are not among them."""
        found: dict[int, Sent] = {}
        given = list(self._given)  # first: whose request is not among those that follow?
        for number, entry, inputs in _entries(list(self._asked), _REQUEST):
            found[number] = _sent(number, entry, inputs)
        for number, (error, parameters, final, now), outputs in _entries(given, _RESPONSE):
            if number in found:
                found[number].answers.append(Answered(now, outputs, error, parameters, final))
        for number in sorted(found):
            sent = found[number]
            if sent.sender not in found and sent.sender:
                sent.sender = UNKNOWN
            yield sent


def _entries(values: list[Any], count: int) -> Iterator[tuple[int, list[Any], list[Value]]]:
    left = iter(values)
    for number in left:
        tensors = next(left)
        yield number, list(islice(left, count)), [_value(*islice(left, 4)) for _ in range(tensors)]


def _sent(number: int, entry: list[Any], inputs: list[Value]) -> Sent:
    sender, asked, asked_version, (seen, reshapes), kind, options, requested, now = entry
    for value in inputs:
        there = reshapes.get(value.name)
        shape = None if there is None else there.back().of(value.shape)
        if shape is not None:
            value.shape = shape
            if value.array is not None:
                value.array = value.array.reshape(shape)
    return Sent(
        number, sender, asked, asked_version, 0 if seen is None else seen.version,
        seen is not None and seen.decoupled, kind, options, tuple(requested), now, inputs,
    )  # fmt: skip


def _copied(tensor: Tensor, size: int) -> Any:
    """A copy of a tensor's values, or what there is to say of one that cannot be copied."""
    array = tensor._array
    try:  # the elements of BYTES are no one's to change
        return array.copy() if array.__class__ is _ndarray else copied(array, tensor._datatype)
    except Exception:
        return size, False


def _value(name: str, datatype: str, shape: tuple[int, ...], what: Any) -> Value:
    dtype = np.dtype(np.uint16) if datatype == "BF16" else DTYPE_OF_DATATYPE[datatype]
    if isinstance(what, tuple):
        size, cut = what
        if size == UNKNOWN:
            size = prod(shape) * dtype.itemsize
        return Value(name, datatype, tuple(shape), size, cut=cut)
    if isinstance(what, bytes):
        what = np.frombuffer(what, dtype).reshape(shape)
    if datatype != "BYTES":
        return Value(name, datatype, shape, what.nbytes, what)
    try:
        return Value(name, datatype, shape, text_bytes(what), copied(what, datatype))
    except Exception:  # of a request that was refused for that
        return Value(name, datatype, shape, text_bytes(what))


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
