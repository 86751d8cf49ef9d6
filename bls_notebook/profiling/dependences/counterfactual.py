"""Run a model with its real callees, then again with the kept answers, some of them changed.

Guarantees: each run has an instance of its own, so what the model keeps in members and globals reaches neither the
next run nor the serving model; only `record`, `profiled` and `callee_states` reach real callees; what later runs print
is dropped; runs and their time are limited, and a run that takes longer is cancelled.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple, cast

import numpy as np

from bls_notebook.devices.registry import device_of
from bls_notebook.devices.transfers import to_cpu, to_gpu
from bls_notebook.engine.core.execution import Execution
from bls_notebook.extending import Host
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.profiling.profiler import profile
from bls_notebook.profiling.records.session import Session
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.substitution.call import MADE_UP, Answer, Call, Waiter
from bls_notebook.repository.substitution.variant import Variant, VariantChange

from .evidence import ObservedCall, RunDifference, difference
from .perturbation import SUCCESS, ZEROS, Kept, KeptResponse, SeenValues, changed, same

RUNS, SECONDS = 50, 10.0
_ORDER = 0.2  # seconds that an answer waits for one that came before it in the recorded run
_QUIET = 0.01  # seconds without a new call, after which answers that are held back are given


class ExhaustedError(Exception):
    """The runs, or the time, are used up."""


@dataclass
class RecordedCall:
    """A call of the first run, its responses, and the order of events: sent, first and last response."""

    call: Call
    sent: ObservedCall
    came: int
    decoupled: bool
    free: Mapping[str, int]
    first: int = 0
    ended: int = 0
    responses: list[KeptResponse] = field(default_factory=list)
    datatypes: dict[str, str] = field(default_factory=dict)


@dataclass
class ObservedRun:
    """A run: its calls, the recorded calls that answered them, pairs in flight together, responses."""

    calls: list[ObservedCall] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    responses: list[Kept] = field(default_factory=list)


class Runs:
    """Runs one model on the same requests, again and again."""

    def __init__(self, repository: ModelRepository, model: str, inputs: Sequence[Mapping[str, Any]]) -> None:
        self.repository, self.host, self.model, self.inputs = repository, Host(repository), model, inputs
        self.count = self.asked = 0
        self.cancelled = False  # a run that took too long
        self.recorded: list[RecordedCall] = []
        self.base = ObservedRun()
        self._decoupled = repository.record(model).decoupled
        self._most, self._ends = RUNS, float("inf")
        self._seen: dict[str, SeenValues] = {}

    def record(self) -> Session:
        """Run the model with its real callees; keep its calls, and return the session of a second run."""
        recorder = _Recorder()
        with self.variant() as fresh, fresh.serving():
            with self._substituted(recorder):
                self.base.responses = self._responses()
            session, _ = self.profiled("as it is written")
        self.recorded = sorted(recorder.recorded, key=lambda each: each.came)
        self.base.calls = [each.sent for each in self.recorded]
        self.asked += 2 * len(self.recorded)
        self.allow(RUNS - self.count, SECONDS)
        for model in {each.call.model for each in self.recorded}:
            self._seen[model] = _seen([each for each in self.recorded if each.call.model == model])
        return session

    def profiled(self, name: str) -> tuple[Session, list[Kept]]:
        """Run the version in service with its real callees; return the session and the responses."""
        session = profile(name=name)
        responses: list[Kept] = []

        def run() -> None:
            with session:
                session.only_of(cast(Execution, caller_var.get()))
                responses.extend(ask(self.repository, self.model, each, self._decoupled) for each in self.inputs)

        self.count += 1
        self.repository.run(run)
        return session.record, responses

    def allow(self, runs: int, seconds: float) -> None:
        """Allow so many more runs, within so many seconds from now."""
        self._most, self._ends = self.count + runs, monotonic() + seconds

    def replay(self, answers: Mapping[int, Kept] = {}, source: str = "", hold: str = "") -> ObservedRun:
        """Run the model, or a changed `source`, with the kept answers, except for those given by number.

        `hold` keeps answers back until no other call comes, and then gives the ``first`` or the ``last`` one.
        """
        if self.count >= self._most or monotonic() > self._ends:
            raise ExhaustedError
        player = _Player(self.recorded, answers, hold)
        silent = contextlib.redirect_stdout(io.StringIO())
        with warnings.catch_warnings():
            # A program that fails halfway leaves coroutines behind that it never awaited.
            warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
            with self.variant(source) as fresh, fresh.serving(), self._substituted(player), silent:
                player.observed.responses = self._responses()
        return player.observed

    def changed(self, group: set[int], change: int) -> RunDifference | None:
        """Run with one change of the answers to some calls; None if that leaves these as they are."""
        answers: dict[int, Kept] = {}
        for number in group:
            each = self.recorded[number]
            new = changed(tuple(each.responses), change, number, self._seen[each.call.model])
            if new is not None:
                answers[number] = new
        return self.compared(self.replay(answers))._replace(used=answers.keys()) if answers else None

    def compared(self, run: ObservedRun) -> RunDifference:
        """Return how a run differs from the recorded one."""
        failed = {n for n, kept in enumerate(run.responses) if any(r.error is not None for r in kept)}

        def may_have_failed(sent: ObservedCall) -> bool:
            request = sent.sender[-1] if sent.sender else ""
            return request in failed if isinstance(request, int) else bool(failed)

        return difference(self.base.calls, run.calls, may_have_failed)

    def variant(self, source: str = "") -> Variant:
        """Return an instance without any state, of the model or of a changed source."""
        return self.host.variant({self.model: VariantChange(source=source or None)})

    def _substituted(self, answers: Any) -> Any:
        names = {row.name for row in self.repository.index() if row.state == "READY"} - {self.model}
        return self.host.substitute(dict.fromkeys(sorted(names), answers), concurrent=True)

    def _responses(self) -> list[Kept]:
        """Send the requests, one after the other; cancel one that is not answered in time."""
        self.count += 1
        out = []
        for inputs in self.inputs:
            sent = self.host.send(self.host.request(self.model, inputs), stream=self._decoupled)
            try:
                responses = sent.result(min(self._ends - monotonic(), threading.TIMEOUT_MAX))
            except FutureTimeoutError:
                self.cancelled = True
                raise ExhaustedError from None
            finally:
                sent.cancel()  # nothing happens if it is answered
            out.append(tuple(map(_kept_response, responses if self._decoupled else [responses])))
        return out


class _Recorder:
    """Passes calls on to the real callees, and keeps the answers."""

    def __init__(self) -> None:
        self.recorded: list[RecordedCall] = []
        self._lock, self._events = threading.Lock(), 0

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer]:
        if len(call.chain) > 1:  # a callee's own call
            yield from wait.ask()
            return
        spec = wait.spec
        assert spec is not None
        batch = int(spec.max_batch_size > 0)
        free = {name: t.dims.index(-1) + batch for name, t in spec.outputs.items() if -1 in t.dims}
        each = RecordedCall(call, _sent(call), self._now(), spec.decoupled, free)
        self.recorded.append(each)
        try:
            for response in wait.ask():
                each.responses.append(_kept(response._outputs, response._error, response))
                each.datatypes.update({tensor._name: tensor._datatype for tensor in response._outputs})
                each.first = each.first or self._now()
                yield response
        finally:
            each.ended = self._now()
            each.first = each.first or each.ended

    def _now(self) -> int:
        with self._lock:
            self._events += 1
            return self._events


class _Player:
    """Gives kept answers, in the order in which they came."""

    def __init__(self, recorded: Sequence[RecordedCall], answers: Mapping[int, Kept], hold: str) -> None:
        self.observed = ObservedRun()
        self._recorded, self._answers, self._hold = recorded, answers, hold
        self._lock = threading.Lock()
        self._left = set(range(len(recorded)))
        self._waiting: list[int] = []
        self._latest = monotonic()

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer]:
        if len(call.chain) > 1:
            yield MADE_UP
            return
        sent, observed = _sent(call), self.observed
        with self._lock:
            number, place = self._number(call, sent), len(observed.calls)
            observed.calls.append(sent)
            observed.numbers.append(number)
            observed.pairs |= {(other, place) for other in self._waiting}
            self._waiting.append(place)
            self._latest = monotonic()
        try:
            if self._hold:
                while not self._is_next(place) and wait.sleep(_QUIET / 3):
                    pass
            elif number >= 0:
                own = self._recorded[number]
                before = [o.call.key for o in self._recorded if own.came < o.ended < own.ended]
                wait.after(*before, seconds=_ORDER)
        finally:
            with self._lock:
                self._waiting.remove(place)
                self._latest = monotonic()
        yield from self._given(number, place, sent)

    def _number(self, call: Call, sent: ObservedCall) -> int:
        """Return the recorded call that gives the answer: one with equal inputs, else one with the same key."""
        same_callee = [(n, self._recorded[n]) for n in self._left if self._recorded[n].sent[:2] == sent[:2]]
        ranked = [(each.sent.digest != sent.digest, each.call.key != call.key, n) for n, each in same_callee]
        number = min(ranked)[-1] if ranked else -1
        self._left.discard(number)
        return number

    def _is_next(self, place: int) -> bool:
        with self._lock:
            turn = min(self._waiting) if self._hold == "first" else max(self._waiting)
            return turn == place and monotonic() - self._latest > _QUIET

    def _given(self, number: int, place: int, sent: ObservedCall) -> Iterator[Answer]:
        if number < 0:  # a new call is answered like the last one to its callee, so that loops end
            others = [n for n, each in enumerate(self._recorded) if each.sent.model == sent.model]
            if not others:
                yield MADE_UP
                return
            if place > 2 * len(self._recorded) + 20 and place % 2:
                yield TritonError("the changed answers made the model send too many calls")
                return
            number = others[-1]
        recorded = self._recorded[number]
        for kept in self._answers.get(number, recorded.responses):
            if kept is SUCCESS:
                yield MADE_UP
            elif kept.error is not None:
                yield TritonError(kept.error)
            else:
                yield _response(kept, recorded.datatypes)


# -- callees with state -------------------------------------------------------------------------------


class CalleeStates(NamedTuple):
    """Callees by how they answered equal requests.

    ``varying`` ones differently at once, ``stateful`` ones differently after other requests or after runs of
    the model; ``unasked`` ones were not asked again in time.
    """

    varying: set[str]
    stateful: set[str]
    unasked: set[str]


def callee_states(runs: Runs) -> CalleeStates:
    """Ask each callee again: as before, after other requests, in reverse order, and as before.

    Two different requests to each callee are enough. Requests of sequences are left out, as their order
    matters anyway.
    """
    ends = monotonic() + SECONDS
    requests: dict[str, dict[bytes, int]] = {}
    for number, each in enumerate(runs.recorded):
        if not each.call.sequence[0]:
            requests.setdefault(each.call.model, {}).setdefault(each.sent.digest, number)
    chosen = sorted({n for numbers in requests.values() for n in [*numbers.values()][:: max(1, len(numbers) - 1)]})
    states = CalleeStates(set(), set(), set())
    first: dict[int, Kept] = {}

    def asked(number: int, others: bool = False) -> Kept:
        runs.asked += 1
        call = runs.recorded[number].call
        inputs = {name: tensor.as_numpy() for name, tensor in call.inputs.items()}
        if others:
            inputs = {name: _other_input(array, number) for name, array in inputs.items()}
        options: Any = {"outputs": list(call.outputs) or None, "parameters": dict(call.parameters) or None}
        return ask(runs.repository, call.model, inputs, runs.recorded[number].decoupled, **options)

    for number in chosen:
        each = runs.recorded[number]
        if monotonic() > ends:
            states.unasked.add(each.call.model)
            continue
        first[number] = asked(number)
        if not equal([first[number]], [tuple(each.responses)]):
            is_steady = equal([asked(number)], [first[number]])
            (states.stateful if is_steady else states.varying).add(each.call.model)
    for number in first:
        if monotonic() < ends:
            asked(number, others=True)
    for number in (*reversed(first), *first):
        model = runs.recorded[number].call.model
        if model not in states.varying and monotonic() < ends and not equal([asked(number)], [first[number]]):
            states.stateful.add(model)
    return states._replace(stateful=states.stateful - states.varying)


def _other_input(array: Any, salt: int) -> Any:
    """Return another array of the same kind; integers stay in their range, so that they are valid indices."""
    constant = array.dtype.kind in "iu" and array.size and array.min() == array.max()
    new = changed((KeptResponse({"": array}),), ZEROS if constant else 0, salt, SeenValues())
    return array if new is None else new[0].outputs[""]


# -- calls and answers as plain data ------------------------------------------------------------------


def _sent(call: Call) -> ObservedCall:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(call.inputs):
        array = call.inputs[name].as_numpy()
        data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        digest.update(repr((name, array.dtype.str, array.shape)).encode() + data)
    digest.update(repr((call.outputs, sorted(call.parameters.items()), call.sequence)).encode())
    return ObservedCall(call.key[0], call.model, digest.digest(), call.key[2])


def ask(repository: ModelRepository, model: str, inputs: Mapping[str, Any], decoupled: bool, **options: Any) -> Kept:
    """Send a request and return its responses."""
    if decoupled:
        return tuple(map(_kept_response, repository.stream(model, inputs, **options)))
    return (_kept_response(repository.infer(model, inputs, **options)),)


def _kept_response(response: Any) -> KeptResponse:
    return _kept(response.output_tensors(), response.error, response)


def _kept(tensors: Sequence[Tensor], error: Any, response: Any) -> KeptResponse:
    outputs = {t._name: np.array(to_cpu(t._array), copy=True) for t in tensors}
    devices = {t._name: device_of(t._array).index for t in tensors if not t.is_cpu()}
    problem = None if error is None else first_line(error.message())
    return KeptResponse(outputs, problem, devices, getattr(response, "_parameters", "{}"))


def _response(kept: KeptResponse, datatypes: Mapping[str, str]) -> InferenceResponse:
    tensors = []
    for name, array in kept.outputs.items():
        there = to_gpu(array, kept.devices[name]) if name in kept.devices else array.copy()
        tensors.append(Tensor._of(name, there, datatypes[name]))
    response = InferenceResponse(tensors)
    response._parameters = kept.parameters
    return response


def equal(one: Sequence[Kept], other: Sequence[Kept]) -> bool:
    """Whether answers are equal bit by bit; of errors, whether both are."""
    if list(map(len, one)) != list(map(len, other)):
        return False
    pairs = [(a, b) for kept, again in zip(one, other, strict=True) for a, b in zip(kept, again, strict=True)]
    return all(
        (a.error is None) == (b.error is None)
        and a.outputs.keys() == b.outputs.keys()
        and all(same(array, b.outputs[name]) for name, array in a.outputs.items())
        for a, b in pairs
    )


def _seen(calls: Sequence[RecordedCall]) -> SeenValues:
    values: dict[str, Sequence[Any]] = {}
    outputs = [item for each in calls for response in each.responses for item in response.outputs.items()]
    for name in dict(outputs):
        arrays = [array.reshape(-1) for key, array in outputs if key == name and array.size]
        if arrays and arrays[0].dtype.kind in "iu":
            values[name] = (min(int(a.min()) for a in arrays), max(int(a.max()) for a in arrays))
        elif arrays and arrays[0].dtype == object:
            values[name] = list(dict.fromkeys(item for a in arrays for item in a.tolist()))[:64]
    return SeenValues(values, calls[0].free)
