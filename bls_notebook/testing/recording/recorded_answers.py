"""`RecordedAnswers`: answers as a model gave them, to requests that carry what was recorded."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from bls_notebook.engine.recording.tape import copied
from bls_notebook.pb_utils import (
    InferenceRequest,
    InferenceResponse,
    Tensor,
    TritonError,
    TritonModelException,
)
from bls_notebook.records.record_file import told
from bls_notebook.repository.requests.tensor_differences import compared
from bls_notebook.repository.substitution.call import Answer, Call, Last
from bls_notebook.repository.substitution.waiter import Waiter

from .requests import RecordedRequest, RecordedResponse
from .values import digest

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
