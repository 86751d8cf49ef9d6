"""The facts from which a verdict is derived: of a comparison, or of the one run of a cell. Pure.

A comparison measured one workload in two ways: one request after the other, and all at once. A cell ran once, so the
time of its requests in the other way is simulated (`workload_simulation`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import mean, median
from typing import NamedTuple

from bls_notebook.engine import execute_failed
from bls_notebook.profiling.intervals import Interval, minus, total, total_within, union
from bls_notebook.profiling.records.spans import LockHeld, SessionData, Span
from bls_notebook.profiling.records.verdicts import WORTH, Measured, Verdict, calls_of, failed_roots
from bls_notebook.records import quartiles, spoken

from .critical_path import of_roots
from .line_times import loop_shares
from .queue_simulation import ModelKey, capacities, key_of, recipes, replay
from .request_loop import RequestLoop, request_loop
from .session_statistics import session_statistics
from .span_tree import SpanTree, holds
from .workload_simulation import (
    BLOCKED,
    DISTURBED,
    THREADS,
    SimulatedWorkload,
    computing_times,
    python_times,
    self_times,
)

COMPARED, TOGETHER, IN_TURN = "compared", "together", "in turn"
COUNTS = (1, 2, 4)
LITTLE = 300_000  # ns of a request: below it, sending and task switches are a large part of the time
LOCKED = 0.5  # fraction of the time in which the GIL was held: above it, Python code is what takes the time
ROUGH = 0.2  # fraction of the time that runnable threads waited for a processor: more makes the figures rough
ONE_CORE = 1.5  # cores that a run used: above it, requests did not take turns with the GIL for most of the time
_MOST = 2_000  # spans of a cell that are judged: the first ones
_IDLE = 0.25  # idle fraction of the processors: below it, requests may wait for these and not for each other
_SLOWER = 1.7  # slowdown beside other requests above which requests wait for each other
_UNEQUAL = 0.2  # fraction of all work from which unequal times of a model's requests matter
_MOSTLY = 0.7  # processor time as a fraction of the wall time: above it, the process computes
_HARDLY = 0.2  # processor time as a fraction of the wall time: below it, the process hardly computes
_AT_ONCE = 8  # the most threads that are assumed to wait for a processor at the same time
_EVEN = 0.25  # tolerance for equal steps of a staircase
_WAKE_UP = 1_000_000  # ns of a wait for an idle instance: less is a thread's that wakes up
_NAMED = 4  # the most callees that a sentence names


class Filling(NamedTuple):
    """The model for whose batches requests waited longest, and the fraction of the time."""

    model: ModelKey | None = None
    share: float = 0.0


class Cached(NamedTuple):
    """The requests that the response cache answered, of ``asked``; none unless it answered most of them."""

    spans: Sequence[Span] = ()
    asked: int = 0

    @property
    def are_calls(self) -> bool:
        """True if models sent them."""
        return bool(self.spans and self.spans[0].parent)


@dataclass(frozen=True)
class WorkloadEvidence:
    """The evidence for each cause of a verdict, computed once. A model is None if nothing shows that it is to blame.

    ``way`` is compared (``session`` is the gathered one of two runs), together or in turn (the requests of one run).
    ``counts`` are instance counts to predict. ``limited`` is a note if only the first requests were judged.
    ``estimated``: the requests of a cell waited for processors or the GIL beside each other, so how long they would
    take one after the other is an estimate.
    """

    way: str
    session: SessionData
    simulation: SimulatedWorkload
    counts: Sequence[int] = COUNTS
    failed: FailedRequests | None = None
    limited: str = ""
    estimated: bool = False

    @property
    def measured(self) -> Measured:
        """The measurements of the workload."""
        return self.simulation.measured

    @property
    def requests(self) -> int:
        """The number of requests that no model sent."""
        return len(self.simulation.requests)

    @cached_property
    def outside(self) -> float:
        """The fraction of the session without a request under way."""
        return 1 - _busy(self.session) / max(1, self.session.wall)

    @cached_property
    def each(self) -> float:
        """The duration of a request by itself, ns; the processor time of one, if requests computed together."""
        m = self.measured
        if self.way == TOGETHER and m.cpu_gathered > _MOSTLY * m.gathered:
            return m.cpu_gathered / max(1, self.requests)
        durations = quartiles(s.duration for s in self.simulation.sequential.spans if not s.parent)
        # Other programs make a few requests take very long, which would distort the mean.
        return durations.q3 if self.simulation.disturbed else durations.total / max(1, durations.count)

    @property
    def spare(self) -> float:
        """The fraction of the processors that was idle during the gathered run."""
        m = self.measured
        return 1.0 - (m.cpu_gathered + m.waited_gathered) / max(1, m.cores * m.gathered)

    @cached_property
    def disturbance(self) -> float:
        """The fraction of the time in which a runnable thread waited for a processor that other programs used."""
        m, session = self.measured, self.session
        if self.way == COMPARED:
            by_way = m.waited_sequential / max(1, m.sequential), m.waited_gathered / max(1, m.gathered * m.cores)
            return min(1.0, max(by_way))
        return min(1.0, session.disturbed / max(session.wall, session.cpu, 1))

    @cached_property
    def held(self) -> float:
        """The fraction of the time in which the GIL was held; of requests together, while others wanted it."""
        if self.way == TOGETHER:
            return min(1.0, self.measured.gil_share)
        return min(1.0, self.simulation.python / max(1, self.measured.sequential))

    @cached_property
    def is_bound(self) -> bool:
        """True if the GIL or the processors allow no shorter time than today's instances do."""
        work, now = self.simulation.work, self.simulation.now
        if work * WORTH > now:
            return True
        if self.way == IN_TURN or not self.simulation.limits or work * WORTH * WORTH <= now:
            return False
        # With more instances, requests would wait for the processors instead.
        what_ifs = self.simulation.what_ifs(self.simulation.limits, self.counts, further=True)
        return self.simulation.worthwhile(what_ifs) is None

    @cached_property
    def together(self) -> float:
        """The predicted speedup of sending requests together that were sent in turn; else 0."""
        return self.simulation.speedup_of("") if self.way == IN_TURN else 0.0

    @cached_property
    def idle_batcher(self) -> str:
        """A model whose batcher got requests in turn, one at a time, so that its gain is unknown; empty without one.

        The batcher must have room for two requests, and no caller above it serves one request at a time.
        """
        if self.way != IN_TURN or self.simulation.batches:
            return ""
        batchers = {key_of(m): m.max_batch_size for m in self.session.models if m.scheduler == "dynamic_batching"}
        spans = {span.id: span for span in self.session.spans}
        for span in self.session.spans:
            if 2 * span.rows <= batchers.get(key_of(span), 0):
                caller = spans.get(span.parent)
                while caller is not None and self.simulation.capacity.get(key_of(caller), 2) > 1:
                    caller = spans.get(caller.parent)
                if caller is None:
                    return span.model
        return ""

    @cached_property
    def best(self) -> float:
        """The best possible speedup."""
        return max(self.gathered.speedup_of("instances"), self.measured.speedup)

    @property
    def reached(self) -> float:
        """The fraction of the best speedup that was reached, not counting the time that other programs took."""
        m = self.measured
        return (m.sequential / max(self.best, 1e-9) + m.waited_gathered) / max(1, m.gathered)

    @cached_property
    def cached(self) -> Cached:
        """The requests that the response cache answered."""
        return answered_by_cache(self.simulation.sequential, self.session)

    @property
    def root(self) -> ModelKey | None:
        """The model of the first request."""
        first = next((span for span in self.session.spans if not span.parent), None)
        return None if first is None else key_of(first)

    @cached_property
    def busiest(self) -> ModelKey | None:
        """The model with the most self time."""
        own = {key: sum(times) for key, times in self_times(self.simulation.sequential).items()}
        return max(own, key=own.__getitem__, default=None)

    @cached_property
    def computing(self) -> ModelKey | None:
        """The model whose threads computed most; if that is not known, the busiest one."""
        times = computing_times(self.simulation.sequential)
        return max(times, key=times.__getitem__, default=self.busiest)

    @cached_property
    def python(self) -> Mapping[ModelKey, int]:
        """The time in which samples saw each model hold the GIL, ns; of one request after the other, if compared."""
        return python_times(self.simulation.sequential)

    @property
    def pythonic(self) -> ModelKey | None:
        """The model whose Python code held the GIL most of the time; if samples do not show it, the busiest one."""
        return max(self.python, key=self.python.__getitem__, default=self.busiest)

    def is_apart(self, key: ModelKey | None) -> bool:
        """True if the instances of a model are processes, as on a server."""
        seen = self.simulation.models.get(key) if key else None
        return seen is not None and seen.processes

    def is_caller(self, key: ModelKey | None) -> bool:
        """True if executions of a model sent requests."""
        own = {span.id for span in self.session.spans if key_of(span) == key}
        return any(span.parent in own for span in self.session.spans)

    @property
    def batcher(self) -> ModelKey | None:
        """The model with the largest batch."""
        batches = self.simulation.batches
        return max(batches, key=lambda key: batches[key].most, default=None)

    @cached_property
    def filling(self) -> Filling:
        """The waits for batches to fill while the instances were idle; of one request after the other, if compared."""
        session, found = self.simulation.sequential, [Filling()]
        for model in session.models:
            if model.scheduler == "dynamic_batching":
                spans = [s for s in session.spans if key_of(s) == key_of(model) and s.ran]
                waits = minus([(s.queued, s.started) for s in spans], [holds(s) for s in spans])
                if total(waits) > _WAKE_UP * len(waits) and self.disturbance < ROUGH:
                    found.append(Filling(key_of(model), total(waits) / max(1, _busy(session))))
        return max(found, key=lambda each: each.share)

    @cached_property
    def contended(self) -> ModelKey | None:
        """The model whose requests wait for each other on something other than a processor or the GIL."""
        if self.way == IN_TURN:
            return None
        if self.way == TOGETHER:
            if self.held > LOCKED:
                return None
            if self.spare >= _IDLE and (model := _staircase(self.session)) is not None:
                return model
        return _slowed_down(self.simulation)

    @cached_property
    def is_unexplained(self) -> bool:
        """True if requests sent at once took much longer than their record explains."""
        return self.way == COMPARED and _is_unexplained(self.simulation)

    @property
    def uneven(self) -> ModelKey | None:
        """A model whose requests share threads of their instance, and whose instances a server fills unevenly."""
        early = {key_of(s) for s in self.session.spans if 0 < s.released < s.inferred}
        for key, seen in self.simulation.models.items():
            texts = (source.text for source in self.session.sources if source.model == key[0])
            is_free = seen.decoupled and (seen.is_async or key in early)
            if is_free and len(seen.instances) > 1 and any(map(THREADS.search, texts)):
                return key
        return None

    @cached_property
    def unequal(self) -> ModelKey | None:
        """The model of which some requests of a cell took much longer than others beside them.

        They may have waited for each other, so it is not known how long they would take by themselves.
        """
        times = self_times(self.session) if self.way == TOGETHER else {}
        least = _UNEQUAL * sum(map(sum, times.values()))
        unequal = (key for key, each in times.items() if sum(each) > least and max(each) > _SLOWER * min(each))
        return next(unequal, None)

    @property
    def may_share(self) -> bool:
        """True if the instances of the model with too few of them may wait for each other, too."""
        return self.unequal is not None and self.unequal == self.limit and self.simulation.capacity[self.unequal] > 1

    @property
    def shares_instance(self) -> bool:
        """True if the requests that wait for each other may share an instance: its threads, its locks."""
        seen = self.simulation.models.get(self.contended) if self.contended else None
        return seen is not None and seen.decoupled

    @cached_property
    def in_turn(self) -> ModelKey | None:
        """The model that serves the requests of a batch one by one, if gathering them would help.

        In a cell no request by itself shows how many calls it sends, so the code has to show a loop over the requests.
        """
        key = self.simulation.batch_in_turn
        return key if key is not None and (self.way == COMPARED or self.loop is not None) else None

    @property
    def loop(self) -> RequestLoop | None:
        """The loop over the requests of a batch in the code of a model that serves them one by one."""
        key = self.simulation.batch_in_turn
        return None if key is None else request_loop(self.session, *key)

    @property
    def gathered(self) -> SimulatedWorkload:
        """The workload as the remedy of the cause `batch_in_turn` changes it."""
        changed = self.simulation.with_gathered_batches if self.in_turn else None
        return changed or self.simulation

    @property
    def blocked(self) -> ModelKey | None:
        """The decoupled async model whose coroutines block their event loop."""
        return next(iter(self.simulation.serial), None)

    @property
    def limit(self) -> ModelKey | None:
        """The model with too few instances, unless other code helps, or the GIL or the processors are the limit."""
        limits, others = self.simulation.limits, self.is_bound or self.simulation.sync_caller or self.blocked
        return limits[0] if limits and not others else None

    @property
    def has_remedy(self) -> bool:
        """True if other code or more instances would make the requests faster."""
        return bool(self.simulation.sync_caller or self.limit or (self.blocked and not self.is_bound))

    def has_one_async_instance(self, key: ModelKey | None) -> bool:
        """True if a model runs one request at a time although its `execute` is async."""
        model = self.simulation.models.get(key) if key else None
        return model is not None and model.is_async and not model.decoupled and len(model.instances) == 1


def comparison_evidence(
    sequential: SessionData, gathered: SessionData, measured: Measured, counts: Iterable[int] = COUNTS
) -> WorkloadEvidence:
    """Return the evidence of two runs of one workload: sequential `exec`, and `async_exec` all at once.

    The verdict predicts these `counts` of instances.
    """
    for session in gathered, sequential:
        if (failed := failed_requests(session)) is not None:
            return WorkloadEvidence(COMPARED, session, _NOTHING, failed=failed)
    return WorkloadEvidence(COMPARED, gathered, SimulatedWorkload(sequential, gathered, measured), tuple(counts))


def session_evidence(session: SessionData) -> WorkloadEvidence:
    """Return the evidence of one run; of a very long one, of its first requests."""
    session, limited = _first(session)
    roots = [span for span in session.spans if not span.parent]
    busy = _busy(session)
    way = TOGETHER if sum(span.duration for span in roots) > 1.05 * busy else IN_TURN
    if (failed := failed_requests(session)) is not None:
        return WorkloadEvidence(way, session, _NOTHING, failed=failed, limited=limited)
    now = capacities(session)
    alone = busy if way == IN_TURN else sum(replay([recipe], now) for recipe in recipes(session))
    part = busy / max(1, session.wall)
    cpu, waited, beside = (round(ns * part) for ns in (session.cpu, session.disturbed, session.beside))
    own_waits = round(session.cpu_waited * part) - waited if way == TOGETHER else 0
    held, own_cpu = _held(session) / max(1, busy), session.cpu - session.beside - sum(w.cpu for w in session.workers)
    one_by_one = max(alone - own_waits, cpu - beside)
    if way == IN_TURN:  # one request at a time holds the GIL too briefly for intervals
        held, one_by_one = max(held, session.held / max(1, busy)), busy
    measured = Measured(
        requests=len(roots), sequential=one_by_one, gathered=busy, cpu_sequential=cpu,
        cpu_gathered=cpu, waited_sequential=waited, waited_gathered=waited, cores=session.cores or 1 << 10,
        # No longer than the process of the engine computed.
        gil_share=min(held, own_cpu / max(1, session.wall) if session.cpu else 1.0),
    )  # fmt: skip
    serial = blocked_loops(session, session.disturbed)
    if way == IN_TURN:  # no request waited, but samples show whose coroutine computes or blocks
        serial += [(loop.model, loop.version) for loop in loop_shares(session) if loop.share > BLOCKED]
    crowded = way == TOGETHER and session_statistics(session).concurrency > WORTH  # several requests were at work
    estimated = crowded and max(own_waits / max(1, alone), held) > DISTURBED
    simulation = SimulatedWorkload(session, session, measured, serial, at_once=way == IN_TURN, crowded=estimated)
    return WorkloadEvidence(way, session, simulation, limited=limited, estimated=estimated)


_NOTHING = SimulatedWorkload(SessionData(), SessionData(), Measured(0, 0, 0))  # of failed requests


def _first(session: SessionData) -> tuple[SessionData, str]:
    """Return the first requests of a very long session, and a note about the limit."""
    if len(session.spans) <= _MOST:
        return session, ""
    kept = {span.id for span in session.spans[:_MOST] if not span.parent}
    first = of_roots(replace(session, spans=session.spans[:_MOST]), kept)
    wall = max((span.ended for span in first.spans), default=session.wall)
    calls = len(first.spans) - len(kept)
    with_calls = f" and their {calls:,} calls" if calls else ""
    return replace(first, wall=wall), f"Judged by the first {len(kept):,} requests{with_calls}."


def _busy(session: SessionData) -> int:
    """Return how long a request was under way, ns."""
    return total(union(_under_way(session)))


def _under_way(session: SessionData) -> list[Interval]:
    return [(span.sent, span.ended) for span in session.spans if not span.parent]


def _held(session: SessionData) -> int:
    """Return how long samples saw the GIL held while others wanted it, and one processor at work, ns."""
    return total_within(((each.begin, each.end) for each in session.lock if _is_of_one_core(each)), _under_way(session))


def _is_of_one_core(held: LockHeld) -> bool:
    return held.cpu <= ONE_CORE * (held.end - held.begin)


def answered_by_cache(sequential: SessionData, gathered: SessionData) -> Cached:
    """Return the requests that the response cache answered in both runs.

    These are requests of the notebook or, if the cache answered none of those, calls of models that call no other.
    """
    for roots in True, False:
        runs = []
        for run in sequential, gathered:
            callers = {s.parent for s in run.spans}
            asked = [s for s in run.spans if (not s.parent if roots else s.parent and s.id not in callers)]
            cached = [s for s in asked if s.cached]
            runs.append(Cached(cached, len(asked)) if 2 * len(cached) > len(asked) else Cached())
        fewest = min(runs, key=lambda found: len(found.spans))
        if fewest.spans:
            return fewest
    return Cached()


def blocked_loops(session: SessionData, cpu_waited: int) -> list[ModelKey]:
    """Return the decoupled async models whose requests waited while an instance ran another request of the model.

    Coroutines of such a model share its instance, so a request waits for a coroutine that does not await, or for a
    processor: `cpu_waited` (ns) is left out. A batcher has other reasons to make it wait.
    """
    out = []
    for model in session.models:
        spans = [s for s in session.spans if key_of(s) == key_of(model) and s.ran]
        if model.decoupled and model.is_async and model.scheduler == "default" and len(spans) > 1:
            waits = union((s.queued, s.started) for s in spans)
            running = union((s.started, s.ended) for s in spans)
            beside = total(waits) - total(minus(waits, running)) - cpu_waited
            alone = max(s.ended - s.started for s in spans)
            if beside > max(BLOCKED * (total(running) - alone), (WORTH - 1) * total(running)):
                out.append(key_of(model))
    return out


def _is_unexplained(simulation: SimulatedWorkload) -> bool:
    """Return whether the gathered run takes much longer than queues, the processors and the GIL explain."""
    m = simulation.measured
    # If the process hardly computes, its threads waited at the same time, just to wake up: count the wait once.
    at_once = 1 if m.cpu_gathered > _HARDLY * m.gathered else max(2, min(m.requests, _AT_ONCE))
    waited = m.waited_gathered // at_once
    spare = m.cores * m.gathered - m.cpu_gathered - waited
    return m.gathered - waited >= _SLOWER * simulation.now and spare >= _IDLE * m.cores * m.gathered


def _slowed_down(simulation: SimulatedWorkload) -> ModelKey | None:
    """Return the model whose requests take longer beside others than alone, while processors are idle."""
    if not _is_unexplained(simulation):
        return None
    alone, together = self_times(simulation.sequential), self_times(simulation.gathered)
    cost = {key: sum(together[key]) - len(together[key]) * median(alone[key]) for key in alone if key in together}

    def slowest(keys: Iterable[ModelKey], typical: Callable[[Sequence[int]], float]) -> ModelKey | None:
        slower = [
            key
            for key in keys
            if typical(together[key]) > _SLOWER * max(1, median(alone[key]))
            # If some take as long alone, the requests differ; they may not wait for each other.
            and max(together[key]) > _SLOWER * max(alone[key])
        ]
        return max(slower, key=cost.__getitem__, default=None)

    # The mean and not the median: an unfair lock makes a few requests wait very long. A pool of threads that the
    # requests of an instance share may make only the last ones wait.
    return slowest(cost, mean) or slowest((key for key in cost if simulation.models[key].decoupled), max)


def _staircase(session: SessionData) -> ModelKey | None:
    """Return the model whose executions ran together and yet ended one after the other, at even steps.

    Each step is about as long as the shortest execution, so the executions took turns on something that they
    share. The caller has ruled out the processors.
    """
    tree = SpanTree.of(session)
    executions: dict[ModelKey, list[tuple[int, int]]] = {}
    for execution, (first, *_) in tree.members.items():
        if first.ran and not tree.is_ensemble(first):
            executions.setdefault(key_of(first), []).append((first.ended, total(tree.self_time(execution))))
    for key, ends_and_times in executions.items():
        times = [ns for _, ns in ends_and_times]
        steps = [b - a for a, b in pairwise(sorted(end for end, _ in ends_and_times))]
        waited = sum(times) - len(times) * min(times)
        if len(times) < 4 or median(times) < _SLOWER * min(times) or waited < _busy(session) / 2:
            continue
        step, shortest = median(steps), min(times)
        even = sum(abs(length - step) < _EVEN * step for length in steps) >= 0.7 * len(steps)
        if even and abs(step - shortest) < 0.5 * shortest:
            return key
    return None


class Waits(NamedTuple):
    """The requests of a model that waited for others, and the fraction of the time in which one did."""

    requests: int = 0
    share: float = 0.0


def waits_for(model: ModelKey | None, session: SessionData, wall: int) -> Waits:
    """Return the waits of a model's requests for other requests, in a run of this length (ns)."""
    spans = [s for s in session.spans if key_of(s) == model]
    # While all instances are idle, a request waits for a thread to wake up and not for other requests.
    idle = minus([(0, session.wall)], [holds(s) for s in spans])
    idle_begins = [begin for begin, _ in idle]
    idle_by_then = list(accumulate((end - begin for begin, end in idle), initial=0))

    def waited_until(moment: int) -> int:
        i = bisect_right(idle_begins, moment)
        return moment - idle_by_then[i] + (max(0, idle[i - 1][1] - moment) if i else 0)

    several = sum(waited_until(s.started) - waited_until(s.queued) > 0.02 * wall for s in spans)
    return Waits(several, total(minus([(s.queued, s.started) for s in spans], idle)) / max(1, wall))


class FailedRequests(NamedTuple):
    """The failed requests of a run to one ``model``: a sentence, and a remark if one call failed a whole batch."""

    model: str
    sentence: str
    batch: str


def failed_requests(session: SessionData) -> FailedRequests | None:
    """Return the failed requests of a run, which make its times meaningless; None if none failed."""
    unanswered = list(failed_roots(session))
    if not unanswered:
        return None
    model = unanswered[0].model
    roots = [s for s in session.spans if not s.parent and s.model == model]
    error = next((_first_line(s) for s in roots if s.error), "")
    bad = sum(s.model == model for s in unanswered)
    how = f"failed: {error}" if error else f"{'was' if bad == 1 else 'were'} cancelled"
    return FailedRequests(model, f"{bad} of {len(roots)} requests to `{model}` {how}", _spread(session))


def with_lost_errors(verdict: Verdict, session: SessionData) -> Verdict:
    """Begin a verdict with the calls that failed although their callers answered without an error, if there are any."""
    tree = SpanTree.of(session)
    lost: dict[str, list[Span]] = {}
    for execution, calls in tree.children.items():
        members = tree.members.get(execution, ())  # none: the notebook, or a caller that was not recorded
        if members and all(span.state == "ok" for span in members):
            lost.setdefault(members[0].model, []).extend(call for call in calls if call.state == "error")
    caller, failing = max(lost.items(), key=lambda item: len(item[1]), default=("", []))
    if not failing:
        return verdict
    callees = " and ".join(f"a call of {each}" if each[0] == "`" else each for each in calls_of(failing)[:_NAMED])
    error = _first_line(failing[0]).rstrip(".")
    words = f"`{caller}` answered without an error although {callees} failed: {error}."
    advice = (
        f"Unless `{caller}` replaces the failed response on purpose, it ignores the error: check has_error() after "
        f"each call, and pass the error on. {verdict.advice}".strip()
    )
    return replace(verdict, sentence=f"{words} {verdict.sentence}".strip(), advice=advice)


def _first_line(span: Span) -> str:
    """Return the error of a span without the traceback that Triton puts below a message."""
    return spoken(span.error).strip().partition("\n")[0]


def _spread(session: SessionData) -> str:
    """Name a batch whose requests all failed by an exception, though fewer calls failed than it has; or empty."""
    tree = SpanTree.of(session)
    for execution, members in tree.members.items():
        calls = tree.children.get(execution, ()) if execution else ()
        failing = [call for call in calls if call.state == "error"]
        # An error that the model passed on has the name of the callee's instance.
        raised = {span.error.startswith(execute_failed(span.instance, "")) and span.error for span in members}
        most = max(len(calls), len(members))  # the exception may have kept the other calls from being sent
        if len(members) > 1 and len(raised) == 1 and all(raised) and 0 < len(failing) < most:
            which = f"{len(failing)} of its {len(calls)} calls" if len(calls) > 1 else "its call"
            caller, callee = members[0].model, failing[0].model
            return (
                f"`{caller}` ran {len(members)} requests as one batch, and {which} failed (of `{callee}`): an "
                "exception raised from execute fails every request of the batch. If the error concerns only some of "
                "them, return InferenceResponse(error=...) for these, and answer the others."
            )
    return ""
