"""`replay`: send recorded requests again, compare the answers with the recorded ones, and find the first hop
that differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.pb_utils import Tensor
from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.records.preview import tensor_record
from bls_notebook.records.progress import progress
from bls_notebook.records.record_file import told
from bls_notebook.records.recorded import RequestKept, TensorKept
from bls_notebook.repository.repository import ModelRepository, current_repository
from bls_notebook.repository.requests.response import Response
from bls_notebook.repository.substitution.substitution import substitute
from bls_notebook.shipping.proof.answers import Allowed, Output, ProofAnswer, differences
from bls_notebook.shipping.proof.requests import ProofRequest
from bls_notebook.shipping.proof.sides import ServerSide
from bls_notebook.shipping.servers.serving import LocalServer, serve
from bls_notebook.testing.records.replayed import Replay, Resent

from .file import digest
from .recorder import LIMIT, record
from .recording import RecordedAnswers, RecordedRequest, RecordedResponse, Recording, load_recording

_Content = tuple[object, ...]


class Beginning:
    """Follows differences through two recordings of the same requests, with the tensors of every hop."""

    def __init__(self, then: Recording, now: Recording) -> None:
        self._then = _Hops(then)
        self._now = _Hops(now)

    def of(self, then: RequestKept, now: RequestKept) -> str:
        """Return which hop is the first that is other than it was, of requests answered differently."""
        left = self._now.sent_by(now.id)
        for before in self._then.sent_by(then.id):
            asked = self._then.asked(before)
            after = next((each for each in left if self._now.asked(each) == asked), None)
            if after is None:
                who, whom = told(then.model), told(before.model)
                if any(each.model == before.model for each in left):
                    return f"begins in {who}: it asks {whom} something else than in request {before.id}"
                return f"begins in {who}: it does not ask {whom} any more, as in request {before.id}"
            left.remove(after)
            if self._then.answered(before) != self._now.answered(after):
                return self.of(before, after)
        called = "" if not self._then.sent_by(then.id) else "; what it calls answers as it did"
        return f"begins in {told(then.model)}, request {then.id}: the same inputs, another answer{called}"


class _Hops:
    """The requests of a recording, by who sent them, and what they carry."""

    def __init__(self, recording: Recording) -> None:
        self._arrays = recording.arrays
        self._sent: dict[int, list[RequestKept]] = {}
        for request in recording.record.requests:
            self._sent.setdefault(request.parent, []).append(request)

    def sent_by(self, number: int) -> list[RequestKept]:
        return list(self._sent.get(number, ()))

    def asked(self, request: RequestKept) -> _Content:
        return (request.model, request.parameters, *sorted(self._content(request.inputs)))

    def answered(self, request: RequestKept) -> _Content:
        return tuple(
            (response.error and response.error.partition("\n")[0], *sorted(self._content(response.tensors)))
            for response in request.responses
        )

    def _content(self, tensors: Iterable[TensorKept]) -> Iterator[tuple[str, str, tuple[int, ...], bytes]]:
        for tensor in tensors:
            values = self._arrays.get(tensor.values)
            of = b"" if values is None else digest(values, tensor.datatype)
            yield tensor.name, tensor.datatype, tensor.shape, of


_SIDES = ("recorded", "now")
_Ask = Callable[[RecordedRequest], list[ProofAnswer]]


def replay(
    recording: Recording | str | Path,
    model: str | None = None,
    *,
    only: str | None = None,
    repo: ModelRepository | None = None,
    server: LocalServer | bool = False,
    tolerance: float = 0.0,
    ulps: int = 0,
) -> Replay:
    """Send recorded requests again, one after the other, and compare the answers with the recorded ones.

    Compared are outputs (names, data types, shapes, values), errors, parameters, and of decoupled models the
    whole stream. Requests whose inputs were not kept are told of, and left out.

    Parameters
    ----------
    recording : Recording, str or Path
        What `record` gave, or a file of it.
    model : str, optional
        The model to send to: of a recording with requests to it, those alone; else requests to the one model
        that was asked from outside, which it may take the place of.
    only : str, optional
        A model that runs alone: all requests that it got, also from models, are sent to it, and the models
        that it called are answered for from the recording, which has to have been made with
        ``tensors="all"``. On a server: a model that called none.
    repo : ModelRepository, optional
        By default the one that magics use.
    server : LocalServer or bool
        Send them to a real tritonserver instead: one of `serve`, or with True one that serves a copy of the
        models meanwhile. Models run in the server's Python there, with its NumPy (often 1, which makes other
        data types of some sums than 2 does) and what its `pb_utils` has; the display says where a difference
        looks like that.
    tolerance : float
        Floats may differ by so much, absolutely or in proportion.
    ulps : int
        Or by so many floats that lie between the two.

    Returns
    -------
    Replay
        ``equal`` is true where every answer was as recorded.

    Raises
    ------
    BLSError
        There is nothing to send, a model does not serve, or the arguments do not go together.
    """
    repository = repo or current_repository()
    recording = recording if isinstance(recording, Recording) else load_recording(recording, model, repository)
    if not (isfinite(tolerance) and tolerance >= 0 and ulps >= 0):
        raise BLSError(f"replay: got tolerance {tolerance!r} and ulps {ulps!r}, expected numbers from 0 on")
    chosen, to = _chosen(recording, model, only)
    called = _called(recording, only, to) if only else []
    if called and server:
        raise BLSError(
            f"replay: only={only!r}: it called {', '.join(map(told, called))}, answered for from the "
            "recording here alone, not on a server; without server= it runs alone here, without only= all "
            "of it runs there"
        )
    skipped = tuple(_skipped(chosen, recording.record.limit))
    requests = [recording.with_values(each) for each in chosen if each.whole and each.answered]
    if not requests:
        raise BLSError(f"replay: no request can be sent again: {'; '.join(skipped) or 'there is none'}")
    names = list(dict.fromkeys(to or request.model for request in requests))
    for name in names:
        if any(r.kept.version for r in requests if (to or r.model) == name):
            Host(repository).ready(name)
    sent: list[Resent] = []
    allowed = Allowed(tolerance, ulps)
    with ExitStack() as on:
        callees = recorded_callees(recording, only, to) if only else {}
        on.enter_context(substitute(repository, callees))
        ask, place = on.enter_context(_place(repository, server, names, to))
        hops = recording.record.tensors == "all" and not server
        recorder = record(tensors="all", limit=recording.record.limit or LIMIT) if hops else None
        on.enter_context(recorder or nullcontext())
        with progress(f"sending {told(recording.record.name or 'a recording')} again", len(requests), "request") as bar:
            for request in requests:
                sent.append(_resent(request, to, ask, allowed, callees.values()))
                bar.step()
    if recorder is not None and any(each.what for each in sent):
        sent = list(_begun(recording, recorder.recording, requests, sent))
    return Replay(
        recording.record.name, place, to or "", only or "", tuple(callees), tolerance, ulps, tuple(sent), skipped
    )


def _chosen(recording: Recording, model: str | None, only: str | None) -> tuple[list[RequestKept], str | None]:
    """The requests to send, and the model to send them to where that is another."""
    of = recording.record.requests
    if only is not None:
        found = [request for request in of if request.model == only]
        if not found:
            recording.requests(only, hops=True)  # which says that there are none
        return found, None if model == only else model
    outside = [request for request in of if request.outside]
    if model is None:
        return outside, None
    asked = dict.fromkeys(request.model for request in outside)
    if model in asked:
        return [request for request in outside if request.model == model], None
    if len(asked) != 1:
        raise BLSError(
            f"replay: model {told(model)!r}: the recording has requests to "
            f"{', '.join(map(told, asked)) or 'none'}; say which by only= to send those of one "
            "to another model"
        )
    return outside, model


def _skipped(requests: list[RequestKept], limit: int) -> Iterator[str]:
    open_, cut = [], []
    for request in requests:
        if not request.whole:
            cut.append(str(request.id))
        elif not request.answered:
            open_.append(str(request.id))
    if cut:
        said = f"request {', '.join(cut[:8])}{'…' * (len(cut) > 8)}: the values of its inputs were not kept"
        full = any(tensor.cut for request in requests for tensor in request.inputs)
        yield said + f": there was no room within limit={limit:,} bytes; record with a larger one" * full
    if open_:
        yield f"request {', '.join(open_[:8])}{'…' * (len(open_) > 8)}: no whole answer was recorded"


def recorded_callees(recording: Recording, only: str, target: str | None) -> dict[str, RecordedAnswers]:
    """Return the recorded answers of each model that a model called."""
    return {name: recording.answer_of(name) for name in _called(recording, only, target)}


def _called(recording: Recording, only: str, target: str | None) -> list[str]:
    requests = recording.record.requests
    ids = {request.id for request in requests if request.model == only}
    called = (r.model for r in requests if r.parent in ids and r.version)  # which served then
    return [name for name in dict.fromkeys(called) if name not in (only, target)]


# -- places ------------------------------------------------------------------------------------------------


def _place(
    repository: ModelRepository, server: LocalServer | bool, names: list[str], to: str | None
) -> AbstractContextManager[tuple[_Ask, str]]:
    if server is False:
        return nullcontext((lambda request: _here(repository, request, to), "here"))
    return _server(repository, server, names, to)


@contextmanager
def _server(
    repository: ModelRepository, server: LocalServer | bool, names: list[str], to: str | None
) -> Iterator[tuple[_Ask, str]]:
    with nullcontext(server) if isinstance(server, LocalServer) else serve(*names, repo=repository) as there:
        yield (lambda request: _there(repository, there, request, to), f"tritonserver {there.metadata()['version']}")


def _here(repository: ModelRepository, request: RecordedRequest, to: str | None) -> list[ProofAnswer]:
    name, more = to or request.model, _arguments(request, to)
    model = Host(repository).find(name)
    inputs = dict(request.inputs)
    if model is not None and model.decoupled:
        return [_answer(each) for each in repository.stream(name, inputs, **more)]
    return [_answer(repository.infer(name, inputs, preferred_memory="cpu", **more))]


def _there(
    repository: ModelRepository, server: LocalServer, request: RecordedRequest, to: str | None
) -> list[ProofAnswer]:
    name, more = to or request.model, _arguments(request, to)
    parameters = more.pop("parameters", {})
    if "correlation_id" in more:
        more.setdefault("flags", 0)
    model = Host(repository).ready(name)
    with ServerSide(server, model.spec, ()) as place:
        answers, _ = place.ask(ProofRequest(request.tensors, parameters), more)
    # Which version, and which status, is not recorded.
    return [replace(each, version=0, status=0) for each in answers]


def _arguments(request: RecordedRequest, to: str | None) -> dict[str, Any]:
    more = request.arguments()
    if to is not None:
        more.pop("version", None)  # of the other model
    return more


def _answer(response: Response) -> ProofAnswer:
    if response.error is not None:
        return ProofAnswer(error=response.error.message())
    arrays = response.as_numpy()
    outputs = {t.name(): Output(t._datatype, arrays[t.name()]) for t in response.output_tensors()}
    return ProofAnswer(outputs, parameters=response.parameters())


# -- comparing ---------------------------------------------------------------------------------------------


def _begun(then: Recording, now: Recording, requests: list[RecordedRequest], sent: list[Resent]) -> Iterator[Resent]:
    """The same, with where the differences begin."""
    beginning = Beginning(then, now)
    again = [request for request in now.record.requests if request.outside]
    for request, resent, after in zip(requests, sent, again, strict=False):
        yield replace(resent, begins=beginning.of(request.kept, after)) if resent.what else resent


def _resent(
    request: RecordedRequest, to: str | None, ask: _Ask, allowed: Allowed, answers: Collection[RecordedAnswers]
) -> Resent:
    began = time.perf_counter_ns()
    now = ask(request)
    took = time.perf_counter_ns() - began
    then = list(_recorded(request))
    unkept = {t.name for each in request.kept.responses for t in each.tensors if not t.values}
    if unkept:
        now = [_without(each, unkept) for each in now]
    what, tensors = differences(then, now, allowed, _SIDES)
    what += tuple(dict.fromkeys(problem for each in answers for problem in each.never))
    for each in answers:
        each.never.clear()
    inputs = ()
    if what:
        inputs = tuple(_seen(name, value) for name, value in request.inputs.items())
    error = (then[-1].error or "") if then and not what else ""
    return Resent(request.id, to or request.model, what, tensors, inputs, request.kept.took_ns or 0, took, error)


def _recorded(request: RecordedRequest) -> Iterator[ProofAnswer]:
    for place, (kept, response) in enumerate(zip(request.kept.responses, request.responses, strict=True)):
        flag_alone = request.kept.decoupled and kept.final and not kept.tensors and kept.error is None
        if not flag_alone or not place:  # one that is all of a stream is walked as a response
            yield _as_answer(response)


def _as_answer(response: RecordedResponse) -> ProofAnswer:
    if response.error is not None:
        return ProofAnswer(error=response.error)
    outputs = {}
    for tensor in response.tensors:
        array: Any = tensor._array
        values = from_bits(array) if tensor._datatype == "BF16" else array
        outputs[tensor._name] = Output(tensor._datatype, values)
    return ProofAnswer(outputs, parameters=response.parameters)


def _without(answer: ProofAnswer, names: set[str]) -> ProofAnswer:
    outputs = {name: output for name, output in answer.outputs.items() if name not in names}
    return ProofAnswer(outputs, answer.error, parameters=answer.parameters, lost=answer.lost)


def _seen(name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        return tensor_record(name, value._datatype, value._array)
    return tensor_record(name, Tensor(name, value)._datatype, value)
