"""`Recording`: recorded requests and responses with their tensors; `RecordedAnswers` answers from them."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor, TritonError, TritonModelException
from bls_notebook.records.errors import BLSError
from bls_notebook.records.record_file import told
from bls_notebook.repository.requests.tensor_differences import compared
from bls_notebook.repository.substitution.call import Answer, Call, Last, Waiter
from bls_notebook.testing.recording.payload_tape import copied
from bls_notebook.testing.records import Recorded, RequestKept, TensorKept

from . import recording_file
from .recording_file import Array, digest

if TYPE_CHECKING:
    from bls_notebook.profiling.records.session import Session


_Key = tuple[Any, ...]
_Names = frozenset[str]


class RecordedAnswers:
    """Answers requests to one model from a recording, as `Answers` of a substitution; see `Recording.answer_of`.

    May be called from any thread. `never` has the errors given to requests that were never recorded, which their
    senders may hide.
    """

    def __init__(self, called: str, model: str, requests: list[RecordedRequest]) -> None:
        self._called = called
        self._model = model
        self._requests = requests
        self.never: list[str] = []
        self._lock = threading.Lock()
        self._asked: dict[_Key, int] = defaultdict(int)
        self._names = {name for request in requests for name in request.inputs}
        # By inputs and parameters, then by the requested outputs; no names for all of them.
        self._known: dict[_Key, dict[_Names, list[RecordedRequest]]] = defaultdict(lambda: defaultdict(list))
        self._similar: dict[Hashable, RecordedRequest] = {}
        for request in requests:
            inputs, _ = key = _key(request.tensors, request.parameters)
            wanted = frozenset(request.kept.outputs)
            # What a model with `reshape` receives is of another shape than what was sent to it.
            for each in (key, _flat(key)):
                self._known[each][wanted].append(request)
            for similar in ((inputs, wanted), inputs, wanted):
                self._similar.setdefault(similar, request)

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
        """Return the response to a request; of a decoupled model the list of them."""
        answered = self._recorded(request)
        responses = responses_of(answered)
        return responses if answered.kept.decoupled else responses[-1]

    def similar(self, request: InferenceRequest) -> list[InferenceResponse]:
        """Return the responses to the most similar recorded request.

        That is one with the same inputs and requested outputs, else one of both, else the first request.
        """
        inputs, _ = _key({tensor._name: tensor for tensor in request.inputs()}, {})
        wanted = frozenset(request.requested_output_names())
        keys: list[Hashable] = [(inputs, wanted), inputs, wanted]
        found = next((self._similar[key] for key in keys if key in self._similar), self._requests[0])
        return responses_of(found)

    def first(self) -> list[InferenceResponse]:
        """Return the responses to the first request."""
        return responses_of(self._requests[0])

    @property
    def flag_alone(self) -> bool:
        """Whether the final flag of a stream came without a response."""
        return self._requests[0].responses[-1].flag_alone

    def _recorded(self, request: InferenceRequest) -> RecordedRequest:
        given = {tensor._name: tensor for tensor in request.inputs()}
        if request.correlation_id():  # its sender did not know the controls and states
            given = {name: tensor for name, tensor in given.items() if name in self._names}
        parameters = json.loads(request.parameters())
        wanted = frozenset(request.requested_output_names())
        key = _key(given, parameters)
        known = self._known.get(key) or self._known.get(_flat(key)) or {}
        had = _answering(wanted, known)
        if had is None:
            self.never.append(self._never(given, parameters, wanted))
            raise TritonModelException(self.never[-1])
        found = known[had]
        with self._lock:
            number = self._asked[key, had]
            self._asked[key, had] += 1
        return found[min(number, len(found) - 1)]

    def _never(self, given: Mapping[str, Tensor], parameters: Mapping[str, Any], wanted: _Names) -> str:
        unlike = [(_unlike(given, parameters, wanted, each), each) for each in self._requests]
        words, nearest = min(unlike, key=lambda pair: (len(pair[0]), pair[1].id))
        return (
            f"{self._called}: model {told(self._model)!r} was never asked this; nearest is request "
            f"{nearest.id}, where {'; '.join(words) or 'all is the same'}"
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


def _answering(wanted: _Names, known: Iterable[_Names]) -> _Names | None:
    """Return the requested outputs among `known` that contain the wanted ones, or None.

    Preferred are the same outputs, then all of them, then the fewest more; the engine drops what is not wanted.
    """
    fit = (names for names in known if not (wanted and names) or names >= wanted)
    return min(fit, key=lambda names: (names != wanted, bool(names), len(names)), default=None)


def responses_of(request: RecordedRequest) -> list[InferenceResponse]:
    """Return the recorded responses to a request, without a final flag that came alone."""
    alone = request.kept.decoupled and request.responses[-1].flag_alone
    return [response.made() for response in request.responses[: -1 if alone else None]]


def _unlike(
    given: Mapping[str, Tensor], parameters: Mapping[str, Any], wanted: _Names, other: RecordedRequest
) -> list[str]:
    """Return how a recorded request differs from the given one; a line each."""
    there = other.tensors
    out = []
    for name in sorted({*given, *there}):
        first, second = given.get(name), there.get(name)
        if first is None or second is None:
            out.append(f"input {told(name)!r} is {'given' if first is None else 'not given'}")
        elif first._datatype != second._datatype or first.shape() != second.shape():
            out.append(
                f"input {told(name)!r} is {second._datatype} of shape {second.shape()}, here "
                f"{first._datatype} of shape {first.shape()}"
            )
        else:
            array = copied(first._array, first._datatype)
            if digest(array, first._datatype) != digest(second._array, second._datatype):
                found = compared(Tensor._of(name, array, first._datatype), second)
                elements = f" in {found.differing:,} of {array.size:,} elements" if found.differing else ""
                out.append(f"input {told(name)!r} differs{elements}")
    if dict(other.parameters) != dict(parameters):
        out.append(f"the parameters are {told(dict(other.parameters))}, here {told(dict(parameters))}")
    if other.kept.outputs:
        out += (f"output {told(name)!r} is not asked for" for name in sorted(wanted - {*other.kept.outputs}))
    return out


@dataclass(frozen=True)
class RecordedResponse:
    """A response with its values.

    ``outputs`` maps names to arrays (of BYTES dtype object, of bytes; of BF16, which NumPy lacks, a
    `pb_utils.Tensor`). Without an error, ``error`` is None and ``code`` empty.
    """

    outputs: Mapping[str, Any]
    tensors: tuple[Tensor, ...] = field(repr=False)
    parameters: Mapping[str, Any]
    error: str | None = None
    code: str = ""
    final: bool = True

    def made(self) -> InferenceResponse:
        """Return it as a response of a model, with arrays of its own."""
        error = None
        if self.error is not None:
            error = TritonError(self.error, getattr(TritonError, self.code, TritonError.INTERNAL))
        tensors = [Tensor._of(each._name, each._array.copy(), each._datatype) for each in self.tensors]
        return InferenceResponse(tensors, error, dict(self.parameters) or None)

    @property
    def flag_alone(self) -> bool:
        """Whether it is the final flag of a stream, without a response."""
        return self.final and not self.tensors and self.error is None


@dataclass(frozen=True)
class RecordedRequest:
    """A request with its values, and with the responses that it got.

    ``inputs`` maps names to arrays, like ``outputs`` of a response; `arguments` has everything else as
    `ModelRepository.infer` takes it. ``kept`` is its record: the options that it was sent with, its sender, its time.
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
        """Return the arguments of `infer` beside model and inputs that are not the default."""
        kept = self.kept
        out: dict[str, Any] = {} if kept.asked_version == -1 else {"version": kept.asked_version}
        out |= {name: getattr(kept, name) for name in ("timeout", "request_id", "correlation_id", "flags")}
        priority = {"priority": kept.priority} if kept.priority else {}
        out |= {"outputs": list(kept.outputs), "parameters": {**self.parameters, **priority}}
        return {name: value for name, value in out.items() if value}


ALL = "record(..., tensors='all') keeps the tensors of every request"


class Recording:
    """Recorded requests and their tensors; see `record` and `bls.load`.

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
        """Names of the models that were asked, at any hop, in the order in which they first were."""
        return tuple(dict.fromkeys(request.model for request in self.record.requests))

    @property
    def session(self) -> Session | None:
        """The profile of the same time; None where the requests were not recorded here."""
        return self.record.session

    def requests(self, model: str | None = None, *, hops: bool = False) -> tuple[RecordedRequest, ...]:
        """Return the requests that were sent from outside any model, in order; the arrays are copies.

        Parameters
        ----------
        model : str, optional
            Those to this model alone.
        hops : bool
            Those that models have sent too.

        Raises
        ------
        BLSError
            There is none of this model, or the values of an input were not kept.
        """
        found = [
            request for request in self.record.requests if (hops or request.outside) and model in (None, request.model)
        ]
        if not found and model is not None:
            raise BLSError(self._no_requests(model, hops))
        for request in found:
            self._check_whole(request)
        return tuple(map(self.with_values, found))

    def request(self, number: int) -> RecordedRequest:
        """Return the request with this id.

        Raises
        ------
        BLSError
            There is none, or the values of an input were not kept.
        """
        found = next((each for each in self.record.requests if each.id == number), None)
        if found is None:
            ids = [each.id for each in self.record.requests]
            known = f"they go from {ids[0]} to {ids[-1]}" if ids else "it has none"
            raise BLSError(f"{self._called}: there is no request {number!r}; {known}")
        self._check_whole(found)
        return self.with_values(found)

    def answer_of(self, model: str) -> RecordedAnswers:
        """Return a function that answers as the model did, for `ModelRepository.stub`.

        Requests are distinguished by their inputs (names, data types, shapes, values), parameters and requested
        outputs; a request for fewer outputs than recorded is answered too. A request that was recorded several times
        gets the answers in that order, and then the last one. For a decoupled model the function returns a list.

        Raises
        ------
        BLSError
            The model was not asked, or the tensors of some request of it were not kept. The function raises
            `pb_utils.TritonModelException` for a request that was never recorded: it names the nearest one.
        """
        asked = [request for request in self.record.requests if request.model == model and request.responses]
        if not asked:
            raise BLSError(self._no_requests(model, True))
        for request in asked:
            self._check_whole(request, answers=True)
        return RecordedAnswers(self._called, model, list(map(self.with_values, asked)))

    def save(self, path: str | Path) -> Path:
        """Write it to a file, which is replaced when all of it has been written."""
        where = Path(path)
        recording_file.check_writable(where)
        return recording_file.save(where, self.record, self.arrays)

    def with_values(self, request: RequestKept) -> RecordedRequest:
        """Return a request with what was kept of its values."""
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
    def _called(self) -> str:
        return f"recording {told(self.record.name)!r}" if self.record.name else "recording"

    def _no_requests(self, model: str, hops: bool) -> str:
        sent = {r.model for r in self.record.requests if hops or r.outside}
        known = f"it has requests to {', '.join(map(told, sorted(sent)))}" if sent else "it has no requests"
        inside = not hops and model in self.models
        by = " from outside (only other models asked it)" if inside else ""
        return f"{self._called}: no request to model {told(model)!r}{by}; {known}"

    def _check_whole(self, request: RequestKept, answers: bool = False) -> None:
        for tensor in request.tensors if answers else request.inputs:
            if not tensor.values:
                limit = f"there was no room for it within the limit of {self.record.limit:,} bytes"
                why = limit if tensor.cut else ALL
                raise BLSError(
                    f"{self._called}: request {request.id} to {told(request.model)!r}: the values of "
                    f"{told(tensor.name)!r} were not kept: {why}"
                )


def _plain(tensor: Tensor) -> Any:
    """Return the array of a tensor; of BF16, which NumPy lacks, the tensor itself."""
    return tensor if tensor._datatype == "BF16" else tensor._array


def load_recording(path: str | Path) -> Recording:
    """Read a file of `record`.

    Raises
    ------
    FileError
        It is no recording, or is damaged: one line says what.
    """
    where = Path(path)
    record, arrays = recording_file.load(where)
    return Recording(replace(record, name=where.name), arrays)
