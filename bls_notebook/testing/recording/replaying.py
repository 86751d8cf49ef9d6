"""`replay` sends recorded requests again, compares the answers and finds the first hop that differs.

`recorded_execution` runs one recorded request on this thread, so that a debugger can stop in the model's
`execute`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from asyncio.events import _get_running_loop, _set_running_loop
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from math import isfinite
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from bls_notebook.engine import BLSError
from bls_notebook.extending import Host, operation
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse
from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.pb_utils.response import ByHand
from bls_notebook.progress import progress
from bls_notebook.records import TensorRecord, count, grouped, tensor_record, told
from bls_notebook.repository import ModelRepository, Substitution, current_repository
from bls_notebook.shipping.proof.comparison import Allowed, Output, ProofAnswer, differences
from bls_notebook.shipping.proof.requests import ProofRequest
from bls_notebook.shipping.proof.targets import ServerTarget
from bls_notebook.shipping.servers.serving import LocalServer, serve
from bls_notebook.testing.records import Replay, RequestKept, Resent, TensorKept

from .recorder import LIMIT, record
from .recording import RecordedAnswers, RecordedRequest, Recording, load_recording
from .recording_file import digest

_Content = tuple[object, ...]


class HopComparison:
    """Compares the hops of two recordings of the same requests."""

    def __init__(self, then: Recording, now: Recording) -> None:
        self._then, self._now = _Hops(then), _Hops(now)

    def changed_calls(self, before: RequestKept, after: RequestKept) -> tuple[str, ...]:
        """Return a line for each model that got more or fewer requests on the way than recorded."""
        then, now = self._then.calls(before), self._now.calls(after)
        return tuple(
            f"{caller} calls {told(callee)} {count(now[caller, callee], 'time')}, "
            f"recorded {then[caller, callee] or 'none'}"
            for caller, callee in {**then, **now}
            if then[caller, callee] != now[caller, callee]
        )

    def first_difference(self, then: RequestKept, now: RequestKept) -> str:
        """Return a sentence that names the hop at which two responses begin to differ; both have all tensors."""
        left = list(self._now.sent_by[now.id])
        for before in self._then.sent_by[then.id]:
            sent = self._then.sent(before)
            after = next((request for request in left if self._now.sent(request) == sent), None)
            if after is None:
                model, callee = told(then.model), told(before.model)
                if any(request.model == before.model for request in left):
                    return f"begins in {model}: it sends {callee} another request than in request {before.id}"
                return f"begins in {model}: it no longer calls {callee}, as in request {before.id}"
            left.remove(after)
            if self._then.answered(before) != self._now.answered(after):
                return self.first_difference(before, after)
        callees = "; its callees respond as recorded" if self._then.sent_by[then.id] else ""
        return f"begins in {told(then.model)}, request {then.id}: same inputs, another response{callees}"


class _Hops:
    """Requests of a recording by sender, and their comparable contents."""

    def __init__(self, recording: Recording) -> None:
        self._arrays = recording.arrays
        sent_by = grouped((request.parent, request) for request in recording.record.requests)
        self.sent_by: dict[int, list[RequestKept]] = defaultdict(list, sent_by)

    def sent(self, request: RequestKept) -> _Content:
        return (request.model, request.parameters, *self._contents(request.inputs))

    def calls(self, request: RequestKept) -> Counter[tuple[str, str]]:
        """Count the requests by caller and callee below a request."""
        counted: Counter[tuple[str, str]] = Counter()
        for callee in self.sent_by[request.id]:
            counted[told(request.model), callee.model] += 1
            counted += self.calls(callee)
        return counted

    def answered(self, request: RequestKept) -> _Content:
        return tuple(
            (response.error and response.error.partition("\n")[0], *self._contents(response.tensors))
            for response in request.responses
        )

    def _contents(self, tensors: Iterable[TensorKept]) -> list[_Content]:
        out: list[_Content] = []
        for tensor in sorted(tensors, key=lambda each: each.name):
            values = self._arrays.get(tensor.values)
            content = b"" if values is None else digest(values, tensor.datatype)
            out.append((tensor.name, tensor.datatype, tensor.shape, content))
        return out


_SIDES = ("recorded", "now")
_Send = Callable[[RecordedRequest], list[ProofAnswer]]


@operation
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
    """Send recorded requests again, one after the other, and compare the responses with the recorded ones.

    Compares outputs (names, data types, shapes, values), errors, parameters, and whole streams of decoupled models.
    Requests without recorded inputs are left out and reported.

    Parameters
    ----------
    recording : Recording, str or Path
        A recording of `record`, or its file.
    model : str, optional
        The model to send to. If the recording has requests to it, only those are sent; else it replaces the one model
        that was called from outside.
    only : str, optional
        The only model that runs: it gets all its recorded requests, also those from models, and its callees answer
        from the recording, made with ``tensors="all"``. On a server: a model without callees.
    repo : ModelRepository, optional
        Default: the current repository.
    server : LocalServer or bool
        Send the requests to a real tritonserver instead: one of `serve`, or, if True, a temporary one with a copy of
        the models. Models run in the server's Python, with its NumPy (often 1, where some results have other data
        types than with 2) and its `pb_utils`; the display points out differences that this may explain.
    tolerance : float
        Floats may differ by this much, absolutely or relatively.
    ulps : int
        Or by this many representable floats.

    Returns
    -------
    Replay
        ``equal`` is true if every answer was as recorded.

    Raises
    ------
    BLSError
        There is nothing to send, a model does not serve, or the arguments contradict each other.
    """
    repository = repo or current_repository()
    recording = recording if isinstance(recording, Recording) else load_recording(recording)
    if not (isfinite(tolerance) and tolerance >= 0 and ulps >= 0):
        raise BLSError(f"replay: got tolerance {tolerance!r} and ulps {ulps!r}, expected numbers from 0 on")
    chosen, to = _chosen(recording, model, only)
    callees = {} if only is None else recorded_callees(recording, only, to)
    if callees and server:
        raise BLSError(
            f"replay: only={only!r}: its callees {', '.join(map(told, callees))} can answer from the recording only "
            "in this process, not on a server; leave out server= to run the model here, or only= to run all models "
            "on the server"
        )
    skipped = tuple(_skipped(chosen, recording.record.limit))
    requests = [recording.with_values(each) for each in chosen if each.whole and each.answered]
    if not requests:
        raise BLSError(f"replay: no request can be sent again: {'; '.join(skipped) or 'the recording has none'}")
    for name in dict.fromkeys(to or request.model for request in requests if request.kept.version):
        Host(repository).ready(name)
    names = list(dict.fromkeys(to or request.model for request in requests))
    sent: list[Resent] = []
    allowed = Allowed(tolerance, ulps)
    with ExitStack() as stack:
        stack.enter_context(Substitution(repository, callees))
        send, place = stack.enter_context(_place(repository, server, names, to))
        every_hop = recording.record.tensors == "all"
        recorder = None if server else record(tensors=recording.record.tensors, limit=recording.record.limit or LIMIT)
        stack.enter_context(recorder or nullcontext())
        with progress(f"sending {told(recording.record.name or 'a recording')} again", len(requests), "request") as bar:
            for request in requests:
                sent.append(_resent(request, to, send, allowed, callees.values()))
                bar.step()
    if recorder is not None:
        sent = list(_with_beginnings(recording, recorder.recording, requests, sent, every_hop))
    return Replay(
        recording.record.name, place, to or "", only or "", tuple(callees), tolerance, ulps, tuple(sent), skipped
    )


def _chosen(recording: Recording, model: str | None, only: str | None) -> tuple[list[RequestKept], str | None]:
    """Return the requests to send, and the model to send them to if it is not the recorded one."""
    requests = recording.record.requests
    if only is not None:
        chosen = [request for request in requests if request.model == only]
        if not chosen:
            recording.requests(only, hops=True)  # raises the error about no requests
        return chosen, None if model == only else model
    outside = [request for request in requests if request.outside]
    if model is None:
        return outside, None
    asked = dict.fromkeys(request.model for request in outside)
    if model in asked:
        return [request for request in outside if request.model == model], None
    if len(asked) != 1:
        raise BLSError(
            f"replay: model {told(model)!r}: the recording has requests to "
            f"{', '.join(map(told, asked)) or 'none'}; to send the requests of one of them to another model, name it "
            "in only="
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
        said = f"request {', '.join(cut[:8])}{'…' if len(cut) > 8 else ''}: the values of its inputs were not recorded"
        full = any(tensor.cut for request in requests for tensor in request.inputs)
        yield said + (f": over limit={limit:,} bytes; record with a larger limit" if full else "")
    if open_:
        yield f"request {', '.join(open_[:8])}{'…' if len(open_) > 8 else ''}: no complete response was recorded"


def recorded_callees(recording: Recording, only: str, target: str | None) -> dict[str, RecordedAnswers]:
    """Return the recorded responses of each callee of a model."""
    requests = recording.record.requests
    ids = {request.id for request in requests if request.model == only}
    called = dict.fromkeys(r.model for r in requests if r.parent in ids and r.version)  # version 0 did not serve
    return {name: recording.answer_of(name) for name in called if name not in (only, target)}


@contextmanager
def _place(
    repository: ModelRepository, server: LocalServer | bool, names: list[str], to: str | None
) -> Iterator[tuple[_Send, str]]:
    if server is False:
        yield (lambda request: _send_here(repository, request, to)), "here"
        return
    with nullcontext(server) if isinstance(server, LocalServer) else serve(*names, repo=repository) as running:
        version = running.metadata()["version"]
        yield (lambda request: _send_to_server(repository, running, request, to)), f"tritonserver {version}"


def _send_here(repository: ModelRepository, request: RecordedRequest, to: str | None) -> list[ProofAnswer]:
    name, options = to or request.model, _arguments(request, to)
    model = Host(repository).find(name)
    inputs = dict(request.inputs)
    if model is not None and model.decoupled:
        return [ProofAnswer.of(response) for response in repository.stream(name, inputs, **options)]
    return [ProofAnswer.of(repository.infer(name, inputs, preferred_memory="cpu", **options))]


def _send_to_server(
    repository: ModelRepository, server: LocalServer, request: RecordedRequest, to: str | None
) -> list[ProofAnswer]:
    name, options = to or request.model, _arguments(request, to)
    parameters = options.pop("parameters", {})
    if "correlation_id" in options:
        options.setdefault("flags", 0)
    with ServerTarget(server, Host(repository).ready(name).spec, ()) as side:
        answers, _ = side.ask(ProofRequest(request.tensors, parameters), options)
    # A recording has neither version nor gRPC status of a response.
    return [replace(answer, version=0, status="") for answer in answers]


def _arguments(request: RecordedRequest, to: str | None) -> dict[str, Any]:
    options = request.arguments()
    if to is not None:
        options.pop("version", None)  # it is a version of the recorded model
    return options


def _with_beginnings(
    then: Recording, now: Recording, requests: list[RecordedRequest], sent: list[Resent], every_hop: bool
) -> Iterator[Resent]:
    """Yield the results, with the changed calls and, for `every_hop`, the hop at which each difference begins."""
    hops = HopComparison(then, now)
    outside = [request for request in now.record.requests if request.outside]
    for request, resent, after in zip(requests, sent, outside, strict=False):
        begins = hops.first_difference(request.kept, after) if resent.what and every_hop else ""
        yield replace(resent, begins=begins, calls=hops.changed_calls(request.kept, after))


def _resent(
    request: RecordedRequest, to: str | None, send: _Send, allowed: Allowed, callees: Collection[RecordedAnswers]
) -> Resent:
    began = time.perf_counter_ns()
    now = send(request)
    took = time.perf_counter_ns() - began
    then = list(_recorded(request))
    unkept = {t.name for response in request.kept.responses for t in response.tensors if not t.values}
    if unkept:
        now = [
            replace(answer, outputs={name: out for name, out in answer.outputs.items() if name not in unkept})
            for answer in now
        ]
    what, tensors, _ = differences(then, now, allowed, _SIDES)
    what += tuple(dict.fromkeys(problem for callee in callees for problem in callee.unknown_requests))
    for callee in callees:
        callee.unknown_requests.clear()
    inputs: tuple[TensorRecord, ...] = ()
    if what:
        inputs = tuple(tensor_record(name, t._datatype, t._array) for name, t in request.tensors.items())
    error = (then[-1].error or "") if then and not what else ""
    return Resent(request.id, to or request.model, what, tensors, inputs, request.kept.took_ns or 0, took, error)


def _recorded(request: RecordedRequest) -> Iterator[ProofAnswer]:
    for number, response in enumerate(request.responses):
        if number and request.kept.decoupled and response.flag_alone:
            continue  # a stream of only a final flag counts as one response
        if response.error is not None:
            yield ProofAnswer(error=response.error)
            continue
        outputs = {}
        for tensor in response.tensors:
            array: Any = tensor._array
            values = from_bits(array) if tensor._datatype == "BF16" else array
            outputs[tensor._name] = Output(tensor._datatype, values)
        yield ProofAnswer(outputs, parameters=response.parameters)


class RecordedExecution(NamedTuple):
    """A recorded execution: the code of the model's `execute`, and a function that runs it again."""

    model: str
    code: CodeType
    run: Callable[[], list[InferenceResponse]]


def recorded_execution(
    recording: Recording | str | Path,
    number: int,
    model: str | None = None,
    alone: bool = False,
    repo: ModelRepository | None = None,
) -> RecordedExecution:
    """Return the execution of one recorded request, to run again on the caller's thread.

    It calls `execute` of the first instance directly, without the model's scheduler; a coroutine function runs in a new
    event loop. `number` is the request's id in the recording, `model` another model to run. If `alone`, callees answer
    from the recording. Raises a BLSError if there is no such request, it has no values, or the model has no code.
    """
    repository = repo or current_repository()
    recording = recording if isinstance(recording, Recording) else load_recording(recording)
    request = recording.request(number)
    name = model or request.model
    loaded = Host(repository).ready(name)
    instance = next(iter(loaded.instances), None)
    code = None if instance is None else instance.place[3]
    if instance is None or code is None:
        steps = [str(each.id) for each in recording.record.requests if each.parent == number]
        inside = f"; its callees got the requests {', '.join(steps)}" if steps else ""
        raise BLSError(f"request {number}: model {told(name)!r} has no Python code to debug{inside}")

    def call() -> list[InferenceResponse]:
        __tracebackhide__ = True
        made = Host(repository).request(name, request.inputs, **request.arguments() | {"version": loaded.version})
        made._answerable = ByHand()
        return _answers(instance.execute, made)

    def run() -> list[InferenceResponse]:
        __tracebackhide__ = True
        with Substitution(repository, recorded_callees(recording, request.model, name) if alone else {}):
            return list(repository.run(call))

    return RecordedExecution(name, code, run)


def _answers(execute: Callable[[list[Any]], Any], request: InferenceRequest) -> list[InferenceResponse]:
    __tracebackhide__ = True
    returned = execute([request])
    if inspect.iscoroutine(returned):
        before = _get_running_loop()
        _set_running_loop(None)
        try:
            returned = asyncio.run(returned)
        finally:
            _set_running_loop(before)
    by_hand = request._answerable
    sent = by_hand.responses if isinstance(by_hand, ByHand) else []
    return [*sent, *(each for each in returned or () if isinstance(each, InferenceResponse))]
