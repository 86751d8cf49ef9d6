"""`Tape`: copies of the contents of requests and responses, made while each passes the engine.

Guarantees: the tape copies each tensor once per hop, before the receiver sees it. The copies stay within a limit, which
each thread may exceed by one message. The tape waits for nothing; it keeps a tensor that it cannot copy without values.
Like a `Log`, it writes plain values into lists: containers that outlive their request would trigger the next garbage
collection earlier. It makes arrays and records afterwards, in a loop, where each step is several times faster: between
the models of a pipeline, the CPU's caches hold other data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from math import prod
from time import perf_counter_ns
from typing import Any

import numpy as np

from bls_notebook.devices import backend_of, gpu_arrays, nbytes
from bls_notebook.devices.allocation_log import text_bytes
from bls_notebook.engine import Execution, LoadedModel, Reshape
from bls_notebook.engine.observer import Observed, Observer
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, element_bytes
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU
from bls_notebook.records import ModelSeen, grouped
from bls_notebook.testing.records import RequestKept, ResponseKept, TensorKept

UNKNOWN = -1  # a sending model whose own request is not on the tape
_Array = np.ndarray[Any, Any]
_NOT_WANTED = UNKNOWN, False  # a tensor without values: its size follows from its shape, and it was not cut
_Value = tuple[str, str, tuple[int, ...], int, "_Array | None", bool]
_Entry = tuple[list[Any], list[Any]]
_ndarray = np.ndarray
# Values of an entry, besides its number, the number of tensors, and four values per tensor.
_REQUEST, _RESPONSE = 8, 4

# Makes the record of a tensor: name, data type, shape, bytes, array or None, and whether the limit cut it.
KeepTensor = Callable[[str, str, tuple[int, ...], int, "_Array | None", bool], TensorKept]


class Tape(Observer):
    """Keeps requests by number, with at most `limit` bytes of tensors: at `every` hop, or only from outside."""

    order = 1  # after the log, which numbers the requests

    def __init__(self, every: bool, limit: int) -> None:
        self.every = every
        self.limit = limit
        self._room = limit
        self._outside: set[int] = set()  # numbers of requests from outside that wait for more responses
        self._asked: list[Any] = []
        self._given: list[Any] = []
        # Bound methods: `extend` is atomic, so threads need no lock.
        self._keep, self._keep_answer = self._asked.extend, self._given.extend

    def received(
        self,
        model: LoadedModel,
        request: InferenceRequest,
        inputs: Sequence[Tensor],
        copy: InferenceRequest,
        sender: Execution,
    ) -> None:
        self._request(copy._observed, request, copy._inputs, model.received_as, sender, copy._arrived)

    def refused(
        self, sender: Execution, request: InferenceRequest, observed: Observed, response: InferenceResponse
    ) -> None:
        model = sender.server.find(request._model_name, request._model_version)
        self._request(
            observed, request, request._inputs, (None if model is None else model.seen, {}), sender, perf_counter_ns()
        )

    def _request(
        self,
        observed: Observed,
        request: InferenceRequest,
        inputs: list[Tensor],
        model: tuple[ModelSeen | None, Mapping[str, Reshape]],
        sender: Execution,
        now: int,
    ) -> None:
        number = observed.span
        if not number:
            return
        who = 0 if sender.observed is None else sender.observed.span
        if not who and (sender.model is not None or sender.bare):
            who = UNKNOWN
        entry = [
            number, len(inputs), who, request._model_name, request._model_version, model, observed.kind,
            request._options, request._requested, now,
        ]  # fmt: skip
        self._write(entry, inputs, observed.size, self.every or not who)
        self._keep(entry)
        if not self.every and not who:
            self._outside.add(number)

    def answered(self, observed: Observed, response: InferenceResponse, final: bool = True, ticket: Any = None) -> None:
        number, outputs = observed.span, response._outputs
        if not number:
            return
        entry: list[Any] = [number, len(outputs), response._error, response._parameters, final, perf_counter_ns()]
        self._write(entry, outputs, nbytes(outputs), self.every or number in self._outside)
        self._keep_answer(entry)
        if final and not self.every:
            self._outside.discard(number)

    def _write(self, entry: list[Any], tensors: list[Tensor], size: int, wanted: bool) -> None:
        """Append tensors of `size` bytes to an entry, if they are wanted and there is room."""
        room = self._room - size
        if wanted and room >= 0 and not gpu_arrays:
            self._room = room
            for tensor in tensors:
                text, array = tensor._datatype, tensor._array
                entry += tensor._name, text, array.shape, array.copy() if text == "BYTES" else array.tobytes()
            return
        for tensor in tensors:  # each may be on another device
            kept: Any = _NOT_WANTED
            if wanted or tensor._datatype == "BYTES":
                size = nbytes([tensor])
                fits = wanted and size <= self._room
                self._room -= size if fits else 0
                kept = _copied(tensor, size) if fits else (size, wanted)
            entry += tensor._name, tensor._datatype, tensor._array.shape, kept

    def clear(self) -> None:
        self._asked.clear()
        self._given.clear()

    def requests(self, base: int, begun: int, kept: KeepTensor) -> Iterator[RequestKept]:
        """Yield the requests in order; numbers count from `base`, times from `begun`."""
        given = grouped((number, response) for number, *response in _entries(list(self._given), _RESPONSE))
        asked = {n: (entry, inputs) for n, entry, inputs in _entries(list(self._asked), _REQUEST)}
        for number in sorted(asked):
            (who, name, version, (seen, reshapes), kind, options, requested, now), inputs = asked[number]
            responses = tuple(
                ResponseKept(
                    tuple(kept(*_value(*each)) for each in outputs),
                    None if error is None else error._message, "" if error is None else error._code.name,
                    parameters, final, max(0, then - begun),
                )
                for (error, parameters, final, then), outputs in given.get(number, ())
            )  # fmt: skip
            yield RequestKept(
                number - base, name, who - base if who in asked else who and UNKNOWN,
                0 if seen is None else seen.version, version, seen is not None and seen.decoupled,
                kind or "sync", options.request_id, options.correlation_id, options.flags, options.timeout,
                options.priority, options.parameters, tuple(requested),
                tuple(kept(*_as_sent(_value(*each), reshapes)) for each in inputs), responses,
                max(0, now - begun),
            )  # fmt: skip


def _entries(values: list[Any], count: int) -> Iterator[tuple[int, list[Any], list[Any]]]:
    left = iter(values)
    for number in left:
        tensors = next(left)
        yield number, list(islice(left, count)), [list(islice(left, 4)) for _ in range(tensors)]


def _as_sent(value: _Value, reshapes: Mapping[str, Reshape]) -> _Value:
    name, datatype, shape, size, array, cut = value
    reshape = reshapes.get(name)
    sent = None if reshape is None else reshape.back().of(shape)
    if sent is None:
        return value
    return name, datatype, sent, size, None if array is None else array.reshape(sent), cut


def _copied(tensor: Tensor, size: int) -> Any:
    """Return a copy of a tensor's values, or its size if it cannot be copied."""
    array = tensor._array
    try:  # elements of BYTES are immutable, so a shallow copy suffices
        return array.copy() if array.__class__ is _ndarray else copied(array, tensor._datatype)
    except Exception:
        return size, False


def _value(name: str, datatype: str, shape: tuple[int, ...], content: Any) -> _Value:
    dtype = np.dtype(np.uint16) if datatype == "BF16" else DTYPE_OF_DATATYPE[datatype]
    shape, array, cut = tuple(shape), None, False
    if isinstance(content, tuple):
        size, cut = content
        size = prod(shape) * dtype.itemsize if size == UNKNOWN else size
    elif datatype == "BYTES":
        size = text_bytes(content)
        with suppress(Exception):  # a refused request may contain elements of any type
            array = copied(content, datatype)
    else:
        array = np.frombuffer(content, dtype).reshape(shape) if isinstance(content, bytes) else content
        size = array.nbytes
    return name, datatype, shape, size, array, cut


def copied(array: Any, datatype: str) -> _Array:
    """Return a copy of a tensor's array on the CPU; BYTES as bytes."""
    if datatype == "BYTES":
        if isinstance(array, TextOnGPU):
            array = array.on_cpu()
        out = np.empty(array.shape, np.object_)
        out.reshape(-1)[:] = [element_bytes(element) for element in np.asarray(array).reshape(-1).tolist()]
        return out
    backend = None if isinstance(array, np.ndarray) else backend_of(array)
    return np.array(array, order="C") if backend is None else backend.to_host(array)
