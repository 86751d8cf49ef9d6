"""`Recording`: recorded requests and responses with their tensors, in memory; `RecordedAnswers` answers from
them.
"""

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

from bls_notebook.engine.recording.payload_tape import copied
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor, TritonError, TritonModelException
from bls_notebook.records.errors import BLSError
from bls_notebook.records.record_file import told
from bls_notebook.records.recorded import RequestKept, ResponseKept, TensorKept
from bls_notebook.repository.requests.tensor_differences import compared
from bls_notebook.repository.substitution.call import Answer, Call, Last, Waiter
from bls_notebook.testing.records.recorded import Recorded

from . import file
from .file import Array, digest
from .other_formats import captured

if TYPE_CHECKING:
    from bls_notebook.profiling.records.session import Session
    from bls_notebook.repository.repository import ModelRepository


_Key = tuple[Any, ...]
_Names = frozenset[str]


class RecordedAnswers:
    """Answers requests to one model from a recording, as `Answers` of a substitution; see
    `Recording.answer_of`.

    May be called from any thread. `never` has what was said to requests that were never recorded: their
    senders may say nothing of it.
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
        if not wait.decoupled or _is_flag_alone(recorded.responses[-1]):
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
        """Return the responses to a request; to one that was never recorded, those to a similar one.

        That is one with the same inputs, else with the same requested outputs, else the first.
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
        return _is_flag_alone(self._requests[0].responses[-1])

    @property
    def alike(self) -> bool:
        """Whether all requests were answered the same."""
        return len({_content(request) for request in self._requests}) == 1

    def _recorded(self, request: InferenceRequest) -> RecordedRequest:
        given = {tensor._name: tensor for tensor in request.inputs()}
        if request.correlation_id():  # with controls, and states, that its sender knew nothing of
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
        array = _on_cpu(tensor)
        inputs.append((name, tensor._datatype, tuple(array.shape), digest(array, tensor._datatype)))
    return (tuple(inputs), json.dumps(parameters, sort_keys=True))


def _flat(key: _Key) -> _Key:
    inputs, parameters = key
    return (tuple((name, datatype, values) for name, datatype, _, values in inputs), parameters)


def _answering(wanted: _Names, known: Iterable[_Names]) -> _Names | None:
    """Return which of the outputs that were asked for have those that are wanted; None where none has.

    The same before all of them, and that before the fewest more, of which the engine leaves out what is not
    wanted.
    """
    fit = (names for names in known if not (wanted and names) or names >= wanted)
    return min(fit, key=lambda names: (names != wanted, bool(names), len(names)), default=None)


def _on_cpu(tensor: Tensor) -> Any:
    return copied(tensor._array, tensor._datatype)


def responses_of(request: RecordedRequest) -> list[InferenceResponse]:
    """Return the recorded responses to a request, without a final flag that came alone."""
    recorded = list(request.responses)
    if request.kept.decoupled and _is_flag_alone(recorded[-1]):
        del recorded[-1]
    return [response_of(each) for each in recorded]


def _is_flag_alone(last: RecordedResponse) -> bool:
    return last.final and not last.tensors and last.error is None


def _content(request: RecordedRequest) -> Hashable:
    return tuple(
        (response.error, *((t.name, t.datatype, t.shape, t.values) for t in response.tensors))
        for response in request.kept.responses
    )


def response_of(recorded: RecordedResponse) -> InferenceResponse:
    """Return a recorded response, with arrays of its own."""
    error = None
    if recorded.error is not None:
        error = TritonError(recorded.error, getattr(TritonError, recorded.code, TritonError.INTERNAL))
    tensors = [Tensor._of(each._name, each._array.copy(), each._datatype) for each in recorded.tensors]
    return InferenceResponse(tensors, error, dict(recorded.parameters) or None)


def _unlike(
    given: Mapping[str, Tensor], parameters: Mapping[str, Any], wanted: _Names, other: RecordedRequest
) -> list[str]:
    """What a recorded request has otherwise than the one that is asked."""
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
            array = _on_cpu(first)
            if digest(array, first._datatype) != digest(second._array, second._datatype):
                found = compared(Tensor._of(name, array, first._datatype), second)
                elements = f" in {found.differing:,} of {array.size:,} elements" if found.differing else ""
                out.append(f"input {told(name)!r} differs{elements}")
    if dict(other.parameters) != dict(parameters):
        out.append(f"the parameters are {told(dict(other.parameters))}, here {told(dict(parameters))}")
    out += (f"output {told(n)!r} is not asked for" for n in _left_out(wanted, other))
    return out


def _left_out(wanted: _Names, other: RecordedRequest) -> list[str]:
    return sorted(wanted - {*other.kept.outputs}) if other.kept.outputs else []


@dataclass(frozen=True)
class RecordedResponse:
    """A response with its values.

    ``outputs`` maps names to arrays (of BYTES dtype object, of bytes; of BF16, which NumPy lacks, a
    `pb_utils.Tensor`). ``error`` and ``code`` are None and empty where there is no error.
    """

    outputs: Mapping[str, Any]
    tensors: tuple[Tensor, ...] = field(repr=False)
    parameters: Mapping[str, Any]
    error: str | None = None
    code: str = ""
    final: bool = True


@dataclass(frozen=True)
class RecordedRequest:
    """A request with its values, and with the responses that it got.

    ``inputs`` maps names to arrays, as ``outputs`` of a response; `arguments` has everything else as
    `ModelRepository.infer` takes it. ``kept`` is its record: what it was sent with, by whom, when.
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
        given = self.inputs.items()
        return {name: each if isinstance(each, Tensor) else Tensor(name, each) for name, each in given}

    def arguments(self) -> dict[str, Any]:
        """Return what `infer` takes beside model and inputs, where it is not the default."""
        kept = self.kept
        parameters = {**self.parameters, **({"priority": kept.priority} if kept.priority else {})}
        given = {
            "outputs": list(kept.outputs), "version": kept.asked_version, "timeout": kept.timeout,
            "request_id": kept.request_id, "correlation_id": kept.correlation_id, "flags": kept.flags,
            "parameters": parameters,
        }  # fmt: skip
        plain = {"version": -1}
        return {name: value for name, value in given.items() if value and value != plain.get(name)}


ALL = "record(..., tensors='all') keeps the tensors of every request"


class Recording:
    """Requests that were kept, with the tensors that were kept of them; see `record` and `bls.load`.

    Attributes
    ----------
    record : Recorded
        All but the values.
    arrays : mapping of str to numpy.ndarray
        The values by what the record calls them, read-only; BYTES as bytes, BF16 as its bits in uint16.
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

        Requests are told apart by what they carry: inputs (names, data types, shapes, values), parameters and
        the outputs that they ask for; one that asks for fewer than were recorded is answered too. One that
        was recorded several times is answered in that order, and by the last answer from then on. Of a
        decoupled model the function returns a list of responses.

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
        file.writeable(where)
        return file.save(where, self.record, self.arrays)

    def with_values(self, request: RequestKept) -> RecordedRequest:
        """Return a request with what was kept of its values."""
        inputs = {tensor.name: self._value(tensor) for tensor in request.inputs if tensor.values}
        responses = tuple(map(self._response, request.responses))
        parameters = json.loads(request.parameters)
        return RecordedRequest(
            request.model, inputs, parameters, request.correlation_id, request.flags, responses, request
        )

    def _response(self, kept: ResponseKept) -> RecordedResponse:
        tensors = tuple(self._tensor(tensor) for tensor in kept.tensors if tensor.values)
        outputs = {t._name: t if t._datatype == "BF16" else t._array for t in tensors}
        return RecordedResponse(outputs, tensors, json.loads(kept.parameters), kept.error, kept.code, kept.final)

    def _value(self, kept: TensorKept) -> Any:
        tensor = self._tensor(kept)
        return tensor if kept.datatype == "BF16" else tensor._array

    def _tensor(self, kept: TensorKept) -> Tensor:
        return Tensor._of(kept.name, np.array(self.arrays[kept.values]), kept.datatype)

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


def load_recording(path: str | Path, model: str | None = None, repo: ModelRepository | None = None) -> Recording:
    """Read requests that were kept: by `record`, or as others keep them.

    Parameters
    ----------
    path : str or Path
        A file of `record`. Or JSON: bodies of KServe v2 requests (one, a list, or one a line), or
        perf_analyzer's input data.
    model : str, optional
        Whose requests JSON has: it does not say. For perf_analyzer's, which has no data types either, it has
        to serve in the repository.
    repo : ModelRepository, optional
        By default the one that magics use.

    Returns
    -------
    Recording

    Raises
    ------
    FileError
        It is neither, or is damaged: one line says what.
    """
    where = Path(path)
    with file.reading(where):
        record, arrays = file.load(where) or captured(where, model, repo)
    return Recording(replace(record, name=where.name), arrays)
