"""`drill`: run a model while its callees fail, one fault after the other."""

from __future__ import annotations

import io
import logging
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product, repeat
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from bls_notebook.engine import BLSError, silenced
from bls_notebook.extending import operation
from bls_notebook.profiling.profiler import profile
from bls_notebook.progress import progress
from bls_notebook.records import FrameRecord, advised, first_line, grouped, spoken
from bls_notebook.repository import ModelRepository, current_repository, load_again
from bls_notebook.testing.recording.recorder import record
from bls_notebook.testing.records import Drilled, DrilledCase, Planted

from .callees import Callee, FailingAnswers, callees_of, named_in_code, sources_of
from .faults import AFTER_RESPONSES, IN_PAIRS, NO_FAULT, Fault, faults_named
from .leaks import COUNTED, Left, leaks, left_by, quick_collections, unanswered
from .saved_tests import TestFile
from .timed_request import DelayedResponse, TimedRequest, UnstoppableError
from .verdicts import LOST_CODE, BatchOutcome, DrillCase, Healthy, Outcome, judge

TIMEOUT = 1.0
_TOGETHER = 6  # requests that are sent at once to form a batch
_MANY = 5  # times the usual number of requests, which a note mentions
_OF_BATCH = 3  # calls below which no request of the batch failed: the model sends one for the whole batch
SLOW = 0.25  # a request that takes longer (s) is not repeated to find leaks
_RANK = {"good": 0, "open": 0, "odd": 1, "bad": 2}
_Planted = tuple[tuple[Callee, Fault], ...]
_Other = tuple[Mapping[str, Any], list[Any]]  # inputs, and the contents of the responses to them


@operation
def drill(
    model: str,
    inputs: Mapping[str, Any],
    *,
    faults: Iterable[str] | None = None,
    pairs: bool = False,
    timeout: float = TIMEOUT,
    repo: ModelRepository | None = None,
    save: str | Path | None = None,
    **options: Any,
) -> Drilled:
    """Find out how a model reacts when its callees fail, stall or give wrong responses.

    The drill sends the request once and records the responses of every model that it reaches. Then it substitutes each
    of these callees in turn: the substitute gives the recorded responses with a fault (an error, no response, NaN,
    another shape). The callers' code is unchanged. The drill does not wait long: it releases a stalled callee once it
    knows that the caller has no time limit, and it advances the clocks of event loops. It loads a model that does not
    recover again before the next fault.

    Parameters
    ----------
    model : str
        A model that serves.
    inputs : mapping of str to array_like
        Inputs of a request that succeeds without faults.
    faults : iterable of str, optional
        Names of faults, such as ``("error", "stall", "nan")``; default: all.
    pairs : bool
        Whether to let two callees fail at a time too. Reports pairs with a worse verdict than each of the two alone.
    timeout : float
        How much later (s) than usual a response may come. A caller with a time limit has so long to reach it.
    repo : ModelRepository, optional
        Default: the current repository.
    save : str or Path, optional
        A pytest file to write, such as ``tests/test_drill_x.py``: a test for each case with an error or a problem.
    **options
        Options of the request, as for `ModelRepository.infer`: ``parameters``, ``correlation_id``, ...

    Returns
    -------
    Drilled

    Raises
    ------
    BLSError
        The model does not serve, the request fails without a fault, or an argument is invalid.

    Examples
    --------
    >>> drilled = bls.drill("digit_reader", {"IMAGE": image})
    >>> [case.said for case in drilled.of("bad")]
    """
    if not isinstance(timeout, (int, float)) or not (isfinite(timeout) and timeout > 0):
        raise BLSError(f"drill: timeout: got {timeout!r}, expected more than 0 s")
    wanted = faults_named(faults)
    repository = repo or current_repository()
    file = None if save is None else TestFile(Path(save))
    return Driller(TimedRequest(repository, model, inputs, options, float(timeout)), file).run(wanted, pairs)


@dataclass(frozen=True)
class _Baseline:
    """Measurements of a model without a fault."""

    healthy: Healthy
    callees: list[Callee]
    named: set[str]  # models in the code that the request did not reach
    others: list[_Other]  # requests with other inputs
    usual: Left
    recorded: bool  # a slow model that responds the same if its callees answer from the recording


class Driller:
    """Drills one model; see `drill`."""

    def __init__(self, request: TimedRequest, file: TestFile | None = None) -> None:
        self.request, self.file = request, file
        self.repository = request.repository
        self.server = request.server
        self.model = request.model
        self._stopped = ""

    def run(self, wanted: tuple[Fault, ...], pairs: bool) -> Drilled:
        """Try the faults of every callee."""
        began = perf_counter()
        cases: list[DrilledCase] = []
        with self.request.host.uncounted(), quick_collections(), _silence():  # failures of a drill are intended
            baseline = self.measure()
            reasons = [(self._why_not(c, fault), c.name, fault.name) for fault in wanted for c in baseline.callees]
            possible = {(name, fault) for reason, name, fault in reasons if not reason}
            single = [((c, f),) for f in wanted for c in baseline.callees if (c.name, f.name) in possible]
            double = list(_pairs(baseline.callees, wanted)) if pairs else []
            with progress(f"drilling {self.model}", len(single) + len(double), "fault") as bar:
                for planted in (*single, *double):
                    if self._stopped:
                        break
                    cases.append(self.case(baseline, planted))
                    bar.step()
        loaded = self.server.find(self.model)
        drilled = Drilled(
            self.model, 0 if loaded is None else loaded.version, tuple(callee.name for callee in baseline.callees),
            tuple(sorted(baseline.named)), _worth_reporting(cases), tuple(self._notes(baseline, len(double), cases)),
            perf_counter() - began, self.request.timeout, tuple(_untried(reasons, wanted)),
        )  # fmt: skip
        if self.file is not None:
            self.file.write(drilled, self.request, pairs)
        return drilled

    def measure(self) -> _Baseline:
        """Send the request without faults, and record the responses of all models."""
        # The profile is for the lines of code, which a recording lacks.
        with profile() as profiled, record(tensors="all", limit=sys.maxsize) as recorder:
            first = self.request.send()
            recording = recorder.recording
        if first.state != "answered" or first.error is not None:
            raise BLSError(f"drill: model {self.model!r} fails without a fault: {self._why(first)}")
        self.request.usual = first.seconds
        usual, lives, outcomes = left_by(self.server, self.request.send)
        self.request.usual = min(outcome.seconds for outcome in outcomes)
        varying = any(_values(outcome) != _values(first) for outcome in outcomes)
        callees = callees_of(self.model, recording, profiled.record, self.server, lives)
        outputs = frozenset(name for callee in callees for name in callee.model.spec.outputs)
        asked = {callee.name: callee.asked for callee in callees}
        healthy = Healthy(outcomes[-1], self.model, varying, self.request.spec.max_batch_size > 0, outputs, asked)
        names = {self.model, *(callee.name for callee in callees)}
        recorded = self.request.usual >= SLOW and not varying
        recorded = recorded and _values(self._send_with_recorded(callees)) == _values(first)
        number = 1 if self.request.spec.scheduler != "dynamic" else _TOGETHER - 1
        others = [] if varying or self.request.usual >= SLOW else self._others(number, first)
        return _Baseline(healthy, callees, named_in_code(self.server, names) - names, others, usual, recorded)

    def _others(self, number: int, first: Outcome) -> list[_Other]:
        """Return requests with other inputs, whose responses succeed and differ."""
        out: list[_Other] = []
        known = [_values(first)]
        for seed in range(number):
            inputs = {name: _other_values(value, seed) for name, value in self.request.inputs.items()}
            if all(value is None for value in inputs.values()):
                break
            inputs = {name: self.request.inputs[name] if value is None else value for name, value in inputs.items()}
            outcome = self._send(inputs)
            if outcome.state == "answered" and outcome.error is None and (values := _values(outcome)) not in known:
                out.append((inputs, values))
                known.append(values)
        return out

    def _send(self, inputs: Mapping[str, Any]) -> Outcome:
        before, self.request.inputs = self.request.inputs, inputs
        try:
            return self.request.send()
        finally:
            self.request.inputs = before

    def _why(self, outcome: Outcome) -> str:
        if outcome.error is None:
            return "there is no response; use inputs that succeed"
        error = advised(outcome.error, self.request.host.known)
        return f"{first_line(spoken(error.message), 1000)}; {error.hint or 'use inputs that succeed'}"

    def case(self, baseline: _Baseline, planted: _Planted) -> DrilledCase:
        """Send the request while callees fail, and judge the outcome."""
        began = perf_counter()
        faults = tuple(Planted(callee.name, fault.name) for callee, fault in planted)
        words: list[str] = []
        try:
            outcome = self._outcome(baseline, planted, words)
        except UnstoppableError as error:
            self._stopped = str(error)
            return DrilledCase(faults, "hang", str(error), seconds=perf_counter() - began)
        case = DrillCase(tuple((callee.name, fault) for callee, fault in planted), tuple(words))
        verdict, said, at = judge(case, outcome, baseline.healthy, self._lines)
        if verdict == "not reached" and (self.repository.model(self.model).load_seconds or SLOW) < SLOW:
            load_again(self.repository, self.model)  # it may have kept the response to an earlier request
            outcome = self._outcome(baseline, planted, words)
            verdict, said, at = judge(case, outcome, baseline.healthy, self._lines)
        if verdict not in ("hang", "not reached") and (changed := self._changed_since(baseline)):
            verdict, said = "spoilt", f"afterwards {changed} ({said})"
            load_again(self.repository, self.model)  # for the next fault
        return DrilledCase(
            faults, verdict, said, "" if outcome.error is None else outcome.error.message, at, planted[0][0].sent,
            sum(outcome.calls.values()), perf_counter() - began,
        )  # fmt: skip

    def _outcome(self, baseline: _Baseline, planted: _Planted, words: list[str]) -> Outcome:
        stalls = any(fault.kind in ("stall", "cancel") for _, fault in planted)
        delay = DelayedResponse() if stalls else None
        answers: dict[str, FailingAnswers | None] = {}
        for callee, fault in planted:
            if fault.name == "not-ready":
                answers[callee.name] = None
                words.append(f"'{callee.name}' is not ready")
                continue
            unload = partial(lambda name: substitution.unload(name), callee.name)
            failing = answers[callee.name] = FailingAnswers(fault, callee, delay or DelayedResponse(), unload)
            words += [failing.words, "Out of memory allocating"]

        def calls() -> dict[str, int]:
            counted = Counter(call.model for call in substitution.calls)
            return {n: max(1, refused[n]) if failing is None else counted[n] for n, failing in answers.items()}

        refused = Counter[str]()  # requests to callees that are not ready

        def missing(name: str) -> str:
            refused[name] += 1
            return ""

        with ExitStack() as stack, self.request.host.substitute(answers) as substitution:
            stack.callback(self.request.host.on_missing(missing))
            before = self._request_counts(answers)
            kinds = {fault.kind for _, fault in planted}
            if "cancel" in kinds and delay is not None:
                reached = self.request.cancel(delay)
                outcome = replace(baseline.healthy.outcome, calls=calls() if reached else {})
            elif "batch" in kinds or any(self._needs_batch(*one) for one in planted):
                batch = self._send_batch(baseline, [failing for failing in answers.values() if failing is not None])
                outcome = Outcome(calls=calls(), batch=batch if max(calls().values()) >= _OF_BATCH else None)
                outcome = outcome if outcome.batch else replace(outcome, calls={})
            else:
                outcome = self.request.send(delay, calls)
            after = self._request_counts(answers)
            other = sum(failing.other_requests for failing in answers.values() if failing is not None)
            outcome = replace(outcome, other_requests=0 if baseline.healthy.varying else other)
            if kinds & {"error", "once"} and outcome.answers and outcome.error is None and delay is None:
                changed = [failing for failing in answers.values() if failing is not None]
                is_partial = not baseline.healthy.varying and self._is_partial(outcome, changed)
                is_constant = self._is_constant(outcome, baseline.healthy.outcome, changed)
                known = [values for _, values in baseline.others]
                is_own = is_constant and known and _values(outcome) == _values(baseline.healthy.outcome)
                is_earlier = bool(is_own) or _values(outcome) in known
                outcome = replace(outcome, constant=is_constant, partial=is_partial, earlier=is_earlier)
            left: tuple[str, ...] = ()
            if outcome.state != "stuck":
                left = unanswered(self.server, [self.model, *(callee.name for callee in baseline.callees)])
                again = self.request.usual < SLOW and not kinds & {"timing", "once", "batch"}
                if delay is None and not left and again:
                    left = leaks(self.server, self.request.send, baseline.usual)
        usual = {callee.name: callee.asked for callee in baseline.callees}
        others = [name for name in after if after[name] - before.get(name, 0) > usual.get(name, 0)]
        return replace(outcome, left=left, others=tuple(others))

    def _why_not(self, callee: Callee, fault: Fault) -> str:
        """Return the reason why a fault cannot be tried; empty if it can."""
        if fault.kind == "batch" and self.request.spec.scheduler != "dynamic":
            return f"'{self.model}' does not batch requests"
        return "" if self._needs_batch(callee, fault) else callee.why_not(fault)

    def _needs_batch(self, callee: Callee, fault: Fault) -> bool:
        """Return whether only several requests of the model run at the same time in a callee."""
        batches = self.request.spec.scheduler == "dynamic" and len(callee.model.instances) > 1
        return fault.name == "other-order" and not callee.overlapped and batches

    def _send_batch(self, baseline: _Baseline, failing: Sequence[FailingAnswers]) -> BatchOutcome:
        """Send requests with different inputs at once; find one that gets the response to another one."""
        for each in failing:
            each.asks_model = True
        own = (self.request.inputs, _values(baseline.healthy.outcome))
        requests = [own, *baseline.others, *repeat(own, _TOGETHER)][:_TOGETHER]
        outcomes, formed = self.request.send_together([inputs for inputs, _ in requests])
        values = [values for _, values in requests]
        mixed = None
        for number, outcome in enumerate(outcomes):
            if outcome is not None and outcome.error is None and _values(outcome) != values[number]:
                wrong = next((n for n, other in enumerate(values) if other == _values(outcome)), None)
                mixed = mixed or (None if wrong is None else (number + 1, wrong + 1))
        failed = sum(outcome is None or outcome.error is not None for outcome in outcomes)
        return BatchOutcome(len(outcomes), failed, formed, None if baseline.healthy.varying else mixed)

    def _is_partial(self, outcome: Outcome, failing: Sequence[FailingAnswers]) -> bool:
        """Return whether the response is another one if the callees fail before their first response."""
        faults = [each.fault for each in failing]
        if not any(fault.name in AFTER_RESPONSES for fault in faults):
            return False
        try:
            for each in failing:
                each.fault = faults_named(["error"])[0]
            other = self.request.send()
        finally:
            for each, fault in zip(failing, faults, strict=True):
                each.fault = fault
        return other.state == "answered" and _values(other) != _values(outcome)

    def _is_constant(self, outcome: Outcome, healthy: Outcome, failing: Sequence[FailingAnswers]) -> bool | None:
        """Return whether the outputs that the fault changed are the same for other inputs; None if unknown."""
        inputs = {name: _other_values(value) for name, value in self.request.inputs.items()}
        if any(value is None for value in inputs.values()):
            return None
        for each in failing:
            each.asks_model = True
            if each.fault.kind == "once":
                each.restart()
        try:
            other = self._send(inputs)
        finally:
            for each in failing:
                each.asks_model = False
        if other.state != "answered" or other.error is not None:
            return None
        if _values(other) == _values(outcome):
            return True
        values = (_tensors(each) for each in (outcome, other, healthy))
        changed = [(now, then) for now, then, usual in zip(*values, strict=False) if now != usual]
        return bool(changed) and all(now == then for now, then in changed)

    def _request_counts(self, failing: Collection[str]) -> dict[str, int]:
        """Return the number of requests so far to each model, except the drilled one and the failing ones."""
        models = filter(None, map(self.server.find, set(self.server.names()) - {self.model, *failing}))
        return {model.name: sum(model.statistics.latest(0)[:2]) for model in models}

    def _changed_since(self, baseline: _Baseline) -> str:
        """Return how the model differs from before the fault, or an empty string."""
        own = _values(baseline.healthy.outcome)
        for inputs, values in baseline.others[:1]:
            other = self._send(inputs)
            if other.state == "answered" and other.error is None and _values(other) == own != values:
                return "it answers a request with the response to the one before"
        after = self._send_with_recorded(baseline.callees) if baseline.recorded else self.request.send()
        if after.state != "answered":
            return "it gives no response without a fault"
        if after.error is not None:
            return f"it fails without a fault: {first_line(after.error.message)}"
        if not baseline.healthy.varying and _values(after) != _values(baseline.healthy.outcome):
            return "its response differs from the one before"
        return ""

    def _send_with_recorded(self, callees: list[Callee]) -> Outcome:
        """Send the request while all callees give their recorded responses, without their delays."""
        answers = {callee.name: FailingAnswers(NO_FAULT, callee, DelayedResponse(), int) for callee in callees}
        with self.request.host.substitute(answers):
            return self.request.send()

    def _lines(self, frame: FrameRecord) -> list[str]:
        for version in self.server.own(frame.model).values():
            for lines in sources_of(version):
                if all(n <= len(lines) and lines[n - 1] == text for n, text in frame.source):
                    return lines
        return []

    def _notes(self, baseline: _Baseline, pairs: int, cases: list[DrilledCase]) -> Iterator[str]:
        if not baseline.callees:
            yield f"with this request '{self.model}' calls no model: there is nothing to drill"
        if baseline.healthy.varying:
            yield "its responses differ from request to request, so values cannot be compared"
        if lost := [case.name for case in cases if len(case.faults) == 1 and LOST_CODE in case.said]:
            yield (
                f"{', '.join(lost)}: the error's code is lost, by which clients decide to send a request again; "
                "return InferenceResponse(error=response.error()) to keep it"
            )
        asked = baseline.healthy.asked
        for case in cases:
            name = case.faults[0].model
            is_batch = case.faults[0].fault in ("one-of-batch", "other-order")  # the drill sends several requests
            is_known = is_batch or case.verdict == "storms" or len(case.faults) > 1
            if not is_known and case.calls >= _MANY * max(1, asked.get(name, 1)):
                yield (
                    f"{case.name}: '{name}' received {case.calls} requests, {asked.get(name, 1)} without the fault: "
                    "check the limit of retries"
                )
        if baseline.usual.blocks >= COUNTED:
            size = baseline.usual.bytes // COUNTED
            yield f"each request leaves {size:,} bytes behind without a fault too: this does not count as a leak"
        if baseline.callees and self.request.usual >= SLOW:
            yield f"memory leaks were not checked: this needs several, and one takes {self.request.usual:.2g} s"
        if pairs:
            worse = len(_worth_reporting(cases)) - sum(len(case.faults) == 1 for case in cases)
            yield f"{pairs} pairs of faults were tried: {worse} had a worse verdict than each of the two alone"
        if self._stopped:
            yield f"the drill ended early: {self._stopped}"


@contextmanager
def _silence() -> Iterator[None]:
    """Discard the models' output and log messages."""
    before = logging.root.manager.disable
    terminal = sys.stderr is not None and sys.stderr.isatty()  # it shows the progress bar
    with silenced(), redirect_stdout(io.StringIO()), nullcontext() if terminal else redirect_stderr(io.StringIO()):
        logging.disable()
        try:
            yield
        finally:
            logging.disable(before)


def _other_values(value: Any, seed: int = 0) -> Any:
    """Return other values of the same shape and type; None if there are none."""
    array = np.asarray(value)
    if array.dtype.kind == "f":
        other = (array * (2.3 + seed) + 1.7 + seed).astype(array.dtype)  # a model's own formula gives other ones
    elif array.dtype.kind in "iu":
        other = (array * (2 + seed) + 1 + seed).astype(array.dtype)
    elif array.dtype.kind == "b":
        other = ~array
    else:
        return None
    return other if isinstance(value, np.ndarray) else other.tolist()  # an array must have the input's data type


def _untried(reasons: Sequence[tuple[str, str, str]], wanted: tuple[Fault, ...]) -> Iterator[str]:
    """Yield a line for each callee and reason for which faults were not tried."""
    groups = grouped(((callee, reason), fault) for reason, callee, fault in reasons if reason)
    yield from (f"{callee}: {', '.join(faults)}: {reason}" for (callee, reason), faults in groups.items())
    if left_out := [fault.name for fault in faults_named(None) if fault not in wanted]:
        yield f"{', '.join(left_out)}: not asked for"


def _tensors(outcome: Outcome) -> list[Any]:
    return [pair for answer in outcome.answers for pair in sorted(answer.tensors.items(), key=lambda pair: pair[0])]


def _values(outcome: Outcome) -> list[Any]:
    return [answer.tensors for answer in outcome.answers]


def _pairs(callees: list[Callee], wanted: tuple[Fault, ...]) -> Iterator[_Planted]:
    few = [fault for fault in wanted if fault.name in IN_PAIRS]
    for first, second in combinations(callees, 2):
        for one, other in product(few, few):
            if not (first.why_not(one) or second.why_not(other)):
                yield (first, one), (second, other)


def _worth_reporting(cases: list[DrilledCase]) -> tuple[DrilledCase, ...]:
    """Return the cases of one fault, and the pairs with a worse verdict than each of their two faults."""
    rank = {case.faults[0]: _RANK[case.worth] for case in cases if len(case.faults) == 1}
    return tuple(
        case
        for case in cases
        if len(case.faults) == 1 or _RANK[case.worth] > max((rank.get(fault, 0) for fault in case.faults), default=0)
    )
