"""`Recording`: recorded requests and responses with their tensors; `RecordedAnswers` answers from them."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.inspection.tensor_differences import compared
from bls_notebook.pb_utils import (
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    InferenceRequest,
    InferenceResponse,
    Tensor,
    TritonError,
    TritonModelException,
)
from bls_notebook.pb_utils.dtypes import Array
from bls_notebook.profiling.session import Session
from bls_notebook.records import BLSError, Printable, told
from bls_notebook.repository import Answer, Call, Last, Waiter
from bls_notebook.testing.recording.payload_tape import copied
from bls_notebook.testing.records import Recorded, RequestKept, TensorKept

from . import recording_file
from .recording_file import digest

_Key = tuple[Any, ...]
_Names = frozenset[str]


class RecordedAnswers:
    """Answers requests to one model from a recording, as `Answers` of a substitution; see `Recording.answer_of`.

    May be called from any thread. `unknown_requests` has the errors for requests that were never recorded, because
    the senders may hide these errors.
    """

    def __init__(self, label: str, model: str, requests: list[RecordedRequest]) -> None:
        self._label = label
        self._model = model
        self._requests = requests
        self.unknown_requests: list[str] = []
        self._lock = threading.Lock()
        self._asked: dict[_Key, int] = defaultdict(int)
        self._names = {name for request in requests for name in request.inputs}
        # By inputs and parameters, then by the requested outputs; an empty set stands for all outputs.
        self._known: dict[_Key, dict[_Names, list[RecordedRequest]]] = defaultdict(lambda: defaultdict(list))
        self._similar: dict[Hashable, RecordedRequest] = {}
        self._steps: dict[Hashable, int] = {}  # the next step of each sequence, by correlation ID
        for request in requests:
            inputs, _ = key = _key(request.tensors, request.parameters)
            wanted = frozenset(request.kept.outputs)
            # A model with `reshape` receives another shape than was sent.
            for inputs_key in (key, _flat(key)):
                self._known[inputs_key][wanted].append(request)
            step = self._step(request.correlation_id, request.flags)
            for similar in ((step, inputs, wanted), (step, inputs), (inputs, wanted), inputs, (step, wanted), wanted):
                self._similar.setdefault(similar, request)
        self._steps.clear()

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer]:
        """Yield the recorded answers to a call."""
        recorded = self._recorded(wait.request)
        responses = responses_of(recorded)
        if not wait.decoupled or recorded.responses[-1].flag_alone:
            yield from responses if wait.decoupled else responses[-1:]
            return
        yield from responses[:-1]
        yield Last(responses[-1])

    def __call__(self, request: InferenceRequest) -> Any:
        """Return the response to a request; for a decoupled model, the list of responses."""
        recorded = self._recorded(request)
        responses = responses_of(recorded)
        return responses if recorded.kept.decoupled else responses[-1]

    def similar(self, request: InferenceRequest) -> list[InferenceResponse]:
        """Return the responses to the most similar recorded request.

        In this order: the same inputs and requested outputs, the same inputs, the same outputs, the first request. Of
        several, the one at the same step of its sequence.
        """
        inputs, _ = _key(self._inputs(request), {})
        wanted = frozenset(request.requested_output_names())
        with self._lock:
            step = self._step(request.correlation_id(), request.flags())
        keys = [(step, inputs, wanted), (inputs, wanted), (step, inputs), inputs, (step, wanted), wanted]
        return responses_of(next((self._similar[key] for key in keys if key in self._similar), self._requests[0]))

    def knows(self, request: InferenceRequest) -> bool:
        """Return whether a request with these inputs was recorded, of whatever parameters."""
        inputs, _ = _key(self._inputs(request), {})
        return inputs in self._similar

    def first(self) -> list[InferenceResponse]:
        """Return the responses to the first request."""
        return responses_of(self._requests[0])

    @property
    def flag_alone(self) -> bool:
        """True if the final flag of a stream came without a response."""
        return self._requests[0].responses[-1].flag_alone

    def _step(self, correlation_id: int | str, flags: int) -> int:
        """Return the step of the next request in its sequence; 0 for a request that belongs to none."""
        step = 0 if flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START else self._steps.get(correlation_id, 0)
        if correlation_id:
            self._steps[correlation_id] = step + 1
        return step

    def _inputs(self, request: InferenceRequest) -> dict[str, Tensor]:
        inputs = {tensor._name: tensor for tensor in request.inputs()}
        if request.correlation_id():  # the engine adds controls and states, which the sender did not send
            inputs = {name: tensor for name, tensor in inputs.items() if name in self._names}
        return inputs

    def _recorded(self, request: InferenceRequest) -> RecordedRequest:
        inputs = self._inputs(request)
        parameters = json.loads(request.parameters())
        wanted = frozenset(request.requested_output_names())
        key = _key(inputs, parameters)
        known = self._known.get(key) or self._known.get(_flat(key)) or {}
        outputs = _covering(wanted, known)
        if outputs is None:
            self.unknown_requests.append(self._unknown(inputs, parameters, wanted))
            raise TritonModelException(self.unknown_requests[-1])
        requests = known[outputs]
        with self._lock:
            number = self._asked[key, outputs]
            self._asked[key, outputs] += 1
        return requests[min(number, len(requests) - 1)]

    def _unknown(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any], wanted: _Names) -> str:
        unlike = [(_unlike(inputs, parameters, wanted, request), request) for request in self._requests]
        lines, nearest = min(unlike, key=lambda pair: (len(pair[0]), pair[1].id))
        return (
            f"{self._label}: no such request to model {told(self._model)!r}; the nearest is request "
            f"{nearest.id}, where {'; '.join(lines) or 'all is the same'}"
        )


def _key(tensors: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> _Key:
    inputs = []
    for name in sorted(tensors):
        tensor = tensors[name]
        array = copied(tensor._array, tensor._datatype)
        inputs.append((name, tensor._datatype, tuple(array.shape), digest(array, tensor._datatype)))
    return (tuple(inputs), json.dumps(parameters, sort_keys=True))


def _flat(key: _Key) -> _Key:
    inputs, parameters = key
    return (tuple((name, datatype, values) for name, datatype, _, values in inputs), parameters)


def _covering(wanted: _Names, known: Iterable[_Names]) -> _Names | None:
    """Return the set of requested outputs in `known` that best covers the wanted ones, or None.

    Prefers the same set, then all outputs (an empty set), then the fewest. The engine drops the others.
    """
    fit = (names for names in known if not (wanted and names) or names >= wanted)
    return min(fit, key=lambda names: (names != wanted, bool(names), len(names)), default=None)


def responses_of(request: RecordedRequest) -> list[InferenceResponse]:
    """Return the recorded responses to a request, without a final flag that came alone."""
    alone = request.kept.decoupled and request.responses[-1].flag_alone
    return [response.made() for response in request.responses[: -1 if alone else None]]


def _unlike(
    inputs: Mapping[str, Tensor], parameters: Mapping[str, Any], wanted: _Names, other: RecordedRequest
) -> list[str]:
    """Return one line for each difference of a recorded request from the given one."""
    recorded = other.tensors
    out = []
    for name in sorted({*inputs, *recorded}):
        first, second = inputs.get(name), recorded.get(name)
        if first is None or second is None:
            out.append(f"input {told(name)!r} is {'present' if first is None else 'missing'}")
        elif first._datatype != second._datatype or first.shape() != second.shape():
            out.append(
                f"input {told(name)!r} is {second._datatype} of shape {second.shape()}, here "
                f"{first._datatype} of shape {first.shape()}"
            )
        else:
            array = copied(first._array, first._datatype)
            if digest(array, first._datatype) != digest(second._array, second._datatype):
                comparison = compared(Tensor._of(name, array, first._datatype), second)
                elements = f" in {comparison.differing:,} of {array.size:,} elements" if comparison.differing else ""
                out.append(f"input {told(name)!r} differs{elements}")
    if dict(other.parameters) != dict(parameters):
        out.append(f"the parameters are {told(dict(other.parameters))}, here {told(dict(parameters))}")
    if other.kept.outputs:
        out += (f"output {told(name)!r} is not requested" for name in sorted(wanted - {*other.kept.outputs}))
    return out


@dataclass(frozen=True)
class RecordedResponse:
    """A response with its values.

    ``outputs`` maps names to arrays: BYTES as dtype object with bytes, BF16, which NumPy lacks, as a
    `pb_utils.Tensor`. Without an error, ``error`` is None and ``code`` empty.
    """

    outputs: Mapping[str, Any]
    tensors: tuple[Tensor, ...] = field(repr=False)
    parameters: Mapping[str, Any]
    error: str | None = None
    code: str = ""
    final: bool = True

    def made(self) -> InferenceResponse:
        """Return a new response with copies of the arrays."""
        error = None
        if self.error is not None:
            error = TritonError(self.error, getattr(TritonError, self.code, TritonError.INTERNAL))
        tensors = [Tensor._of(each._name, each._array.copy(), each._datatype) for each in self.tensors]
        return InferenceResponse(tensors, error, dict(self.parameters) or None)

    @property
    def flag_alone(self) -> bool:
        """True if it is the final flag of a stream, without a response."""
        return self.final and not self.tensors and self.error is None


@dataclass(frozen=True)
class RecordedRequest:
    """A request and its responses, with values.

    ``inputs`` maps names to arrays, like ``outputs`` of a response; `arguments` has the other arguments of
    `ModelRepository.infer`. ``kept`` is its record, with options, sender and time.
    """

    model: str
    inputs: Mapping[str, Any]
    parameters: Mapping[str, Any]
    correlation_id: int | str
    flags: int
    responses: tuple[RecordedResponse, ...]
    kept: RequestKept = field(repr=False)

    @property
    def id(self) -> int:
        """Counts all requests of the recording from 1 on; the id of its span in a profile."""
        return self.kept.id

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The inputs as tensors, by name."""
        items = self.inputs.items()
        return {name: each if isinstance(each, Tensor) else Tensor(name, each) for name, each in items}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `infer`, except model, inputs and defaults."""
        kept = self.kept
        out: dict[str, Any] = {} if kept.asked_version == -1 else {"version": kept.asked_version}
        out |= {name: getattr(kept, name) for name in ("timeout", "request_id", "correlation_id", "flags")}
        priority = {"priority": kept.priority} if kept.priority else {}
        out |= {"outputs": list(kept.outputs), "parameters": {**self.parameters, **priority}}
        return {name: value for name, value in out.items() if value}


ALL = "record(..., tensors='all') keeps the tensors of every request"


class Recording(Printable):
    """Recorded requests and their tensors; see `record` and `bls.open_file`.

    Attributes
    ----------
    record : Recorded
        Everything but the values.
    arrays : mapping of str to numpy.ndarray
        The values by the names in the record, read-only; BYTES as bytes, BF16 as its bits in uint16.
    """

    def __init__(self, record: Recorded, arrays: Mapping[str, Array]) -> None:
        self.record = record
        self.arrays = arrays

    def __repr__(self) -> str:
        name = f" {told(self.record.name)!r}" if self.record.name else ""
        return f"<Recording{name}: {len(self):,} requests of {', '.join(map(told, self.models))}>"

    def __len__(self) -> int:
        return len(self.record.requests)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Names of the models that got requests, at any hop, in the order of their first requests."""
        return tuple(dict.fromkeys(request.model for request in self.record.requests))

    @property
    def session(self) -> Session | None:
        """The profile of the same time; None if the requests come from elsewhere."""
        return self.record.session

    def requests(self, model: str | None = None, *, hops: bool = False) -> tuple[RecordedRequest, ...]:
        """Return the requests that were sent from outside any model, in order; the arrays are copies.

        Parameters
        ----------
        model : str, optional
            Return only requests to this model.
        hops : bool
            Also return requests that models sent.

        Raises
        ------
        BLSError
            There is no request to this model, or an input has no values.
        """
        requests = [
            request for request in self.record.requests if (hops or request.outside) and model in (None, request.model)
        ]
        if not requests and model is not None:
            raise BLSError(self._no_requests(model, hops))
        for request in requests:
            self._check_whole(request)
        return tuple(map(self.with_values, requests))

    def request(self, number: int) -> RecordedRequest:
        """Return the request with this id.

        Raises
        ------
        BLSError
            There is none, or an input has no values.
        """
        request = next((request for request in self.record.requests if request.id == number), None)
        if request is None:
            ids = [request.id for request in self.record.requests]
            known = f"the requests are {ids[0]} to {ids[-1]}" if ids else "it has no requests"
            raise BLSError(f"{self._label}: there is no request {number!r}; {known}")
        self._check_whole(request)
        return self.with_values(request)

    def answer_of(self, model: str) -> RecordedAnswers:
        """Return a function, for `ModelRepository.stub`, that gives the model's recorded responses.

        Requests are equal if their inputs (names, data types, shapes, values), parameters and requested outputs are; a
        request may ask for fewer outputs than recorded. If a request was recorded several times, it gets those
        responses in order, and then the last one again. For a decoupled model the function returns a list.

        Raises
        ------
        BLSError
            The model got no request, or a tensor of one has no values. The function raises
            `pb_utils.TritonModelException` for a request that was never recorded, and names the nearest one.
        """
        asked = [request for request in self.record.requests if request.model == model and request.responses]
        if not asked:
            raise BLSError(self._no_requests(model, True))
        for request in asked:
            self._check_whole(request, answers=True)
        return RecordedAnswers(self._label, model, list(map(self.with_values, asked)))

    def save(self, path: str | Path) -> Path:
        """Write the recording to a file; an existing file is replaced only by a complete one."""
        where = Path(path)
        recording_file.check_writable(where)
        return recording_file.save(where, self.record, self.arrays)

    def with_values(self, request: RequestKept) -> RecordedRequest:
        """Return a request with its recorded values."""
        responses = []
        for kept in request.responses:
            tensors = self._tensors(kept.tensors)
            outputs = {name: _plain(tensor) for name, tensor in tensors.items()}
            responses.append(
                RecordedResponse(
                    outputs, tuple(tensors.values()), json.loads(kept.parameters), kept.error, kept.code, kept.final
                )
            )
        inputs = {name: _plain(tensor) for name, tensor in self._tensors(request.inputs).items()}
        return RecordedRequest(
            request.model, inputs, json.loads(request.parameters), request.correlation_id, request.flags,
            tuple(responses), request,
        )  # fmt: skip

    def _tensors(self, kept: Iterable[TensorKept]) -> dict[str, Tensor]:
        return {t.name: Tensor._of(t.name, np.array(self.arrays[t.values]), t.datatype) for t in kept if t.values}

    @property
    def _label(self) -> str:
        return f"recording {told(self.record.name)!r}" if self.record.name else "recording"

    def _no_requests(self, model: str, hops: bool) -> str:
        sent = {r.model for r in self.record.requests if hops or r.outside}
        known = f"it has requests to {', '.join(map(told, sorted(sent)))}" if sent else "it has no requests"
        inside = not hops and model in self.models
        by = " from outside (only other models called it)" if inside else ""
        return f"{self._label}: no request to model {told(model)!r}{by}; {known}"

    def _check_whole(self, request: RequestKept, answers: bool = False) -> None:
        for tensor in request.tensors if answers else request.inputs:
            if not tensor.values:
                why = f"over the limit of {self.record.limit:,} bytes" if tensor.cut else ALL
                raise BLSError(
                    f"{self._label}: request {request.id} to {told(request.model)!r}: the values of "
                    f"{told(tensor.name)!r} were not recorded: {why}"
                )


def _plain(tensor: Tensor) -> Any:
    """Return the array of a tensor; for BF16, which NumPy lacks, the tensor itself."""
    return tensor if tensor._datatype == "BF16" else tensor._array


def load_recording(path: str | Path) -> Recording:
    """Read a file of `record`; raise a FileError of one line for any other file."""
    where = Path(path)
    record, arrays = recording_file.load(where)
    return Recording(replace(record, name=where.name), arrays)
