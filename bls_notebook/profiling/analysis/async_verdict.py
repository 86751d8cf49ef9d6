"""Find the cause that async helped, or did not, from the sessions of a sequential and a gathered run. Pure.

The gathered run is simulated (`queue_simulation`) from the requests of the sequential run: with today's
instances, with unlimited instances, and with changed code. Processors and the GIL bound each result from
below. The cause is the limit whose removal makes the simulated workload faster. Other causes are found
without the simulation: requests that wait for each other, a blocked event loop, answers from the cache.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from statistics import mean, median
from typing import NamedTuple

from bls_notebook.profiling.intervals import minus, total, union
from bls_notebook.profiling.records import verdicts
from bls_notebook.profiling.records.spans import ModelSeen, SessionData, Span
from bls_notebook.profiling.records.verdicts import WORTH, Facts, LoopSeen, Measured, Verdict, WhatIf
from bls_notebook.records import grouped, quartiles

from .failed_calls import failed, with_lost_errors
from .queue_simulation import UNLIMITED, Key, Recipe, Sent, batches_seen, capacities, is_stuck, key_of, recipes, replay
from .session_statistics import session_statistics
from .span_tree import SpanTree, holds

CONTENDED = 1.7  # slowdown beside other requests above which requests wait for each other
_IDLE = 0.2  # processor time as a fraction of the wall time: below it, the process hardly computes
_AT_ONCE = 8  # the most threads that are assumed to wait for a processor at the same time
_BLOCKED = 0.5  # fraction of the time that an event loop runs the model's own code: above it, the loop is blocked


def self_times(session: SessionData) -> dict[Key, list[int]]:
    """Return the self time of each execution, by model, ns."""
    tree = SpanTree.of(session)
    return grouped((key_of(m[0]), total(tree.self_time(e))) for e, m in tree.members.items() if m[0].ran)


def contention(sequential: SessionData, gathered: SessionData, measured: Measured, expected: int) -> Key | None:
    """Return the model whose requests wait for each other on something other than a processor, or None.

    One of its requests takes longer beside others than alone. The gathered run takes much longer than
    `expected`, the time explained by queues, the processors and the GIL (ns), while processors are idle.
    """
    m = measured
    # If the process hardly computes, its threads waited at the same time, just to wake up: count the wait once.
    at_once = 1 if m.cpu_gathered > _IDLE * m.gathered else max(2, min(m.requests, _AT_ONCE))
    waited = m.waited_gathered // at_once
    spare = m.cores * m.gathered - m.cpu_gathered - waited
    if m.gathered - waited < CONTENDED * expected or spare < 0.25 * m.cores * m.gathered:
        return None
    alone, together = self_times(sequential), self_times(gathered)
    # The mean and not the median: an unfair lock makes a few requests wait very long.
    slower = {
        key: sum(times) - len(times) * median(alone[key])
        for key, times in together.items()
        if key in alone and mean(times) > CONTENDED * max(1, median(alone[key]))
    }
    return max(slower, key=slower.__getitem__, default=None)


def serial_loops(
    models: Iterable[ModelSeen], sequential: SessionData, gathered: SessionData, loops: Sequence[LoopSeen] = ()
) -> set[Key]:
    """Return the decoupled async models whose coroutines block their event loop, so that requests run one by one.

    Samples of the event loops (`loops`) decide; for a model without samples, the times of its requests do.
    """
    shares = {(loop.model, loop.version): loop.share for loop in loops}
    out = set()
    for model in models:
        key = key_of(model)
        if not (model.decoupled and model.is_async):
            continue
        if key in shares:
            if shares[key] > _BLOCKED:
                out.add(key)
            continue
        alone = total((s.started, s.ended) for s in sequential.spans if key_of(s) == key)
        spans = [(s.started, s.ended) for s in gathered.spans if key_of(s) == key and s.ran]
        covered = total(union(spans))
        if len(spans) > 1 and alone and covered > 0.7 * alone / max(1, len(model.instances)):
            out.add(key)
    return out


def blocked_loops(session: SessionData, cpu_waited: int) -> set[Key]:
    """Return the decoupled async models whose requests waited while an instance ran another request of the model.

    Coroutines of such a model share its instance, so a request waits for a coroutine that does not await, or for a
    processor: `cpu_waited` (ns) is left out. A batcher has other reasons to make it wait.
    """
    out = set()
    for model in session.models:
        spans = [s for s in session.spans if key_of(s) == key_of(model) and s.ran]
        if model.decoupled and model.is_async and model.scheduler == "default" and len(spans) > 1:
            waits = union((s.queued, s.started) for s in spans)
            running = union((s.started, s.ended) for s in spans)
            beside = total(waits) - total(minus(waits, running)) - cpu_waited
            alone = max(s.ended - s.started for s in spans)
            if beside > max(_BLOCKED * (total(running) - alone), (WORTH - 1) * total(running)):
                out.add(key_of(model))
    return out


_THREADS = re.compile(r"\b(?:to_thread|run_in_executor|Thread(?:PoolExecutor)?)\b")  # code that calls in threads


def _blocks(call: Span, caller: Span, session: SessionData) -> bool:
    """Return whether an async model sent a call by `exec` on its event loop's thread, and not on another thread."""
    if call.kind != "sync":
        return False
    if call.queued == call.started:  # without a queue, the callee ran on the thread of the call
        return call.thread == caller.thread
    if not call.source:  # code without a text sent it, such as a thread pool's, or the session has no texts
        return not session.sources
    return not _THREADS.search(session.sources[call.source - 1].text)


class Cached(NamedTuple):
    """The requests that the response cache answered, of ``asked``; none unless it answered most of them."""

    spans: Sequence[Span] = ()
    asked: int = 0

    @property
    def words(self) -> str:
        """Their number in words, such as "3 of 4 requests"."""
        noun = "calls by models" if self.spans and self.spans[0].parent else "requests"
        return f"{len(self.spans)} of {self.asked} {noun}"


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


COUNTS = (1, 2, 4)
LITTLE = 300_000  # ns of a request: below it, sending and task switches are a large part of the time
_CACHED = 1_000_000  # ns of a request whose calls the cache answered: below it, nothing else took long
GAIN = WORTH  # the smallest speedup that makes a change worth it
_EXPLAINED = 1.3  # measured over simulated time: above it, larger instance counts are not predicted
NEAR = 0.8  # fraction of the best speedup that counts as near it
DISTURBED = 0.1  # wait for processors over processor time: above it, other programs disturbed the run


def verdict(
    sequential: SessionData, gathered: SessionData, measured: Measured, counts: Iterable[int] = COUNTS
) -> Verdict:
    """Return whether async helped, the cause, and predictions for these instance counts.

    The sessions record one workload: sequential `exec`, and `async_exec` all at once.
    """
    for session in gathered, sequential:
        if verdicts.failures(session):
            return failed(session)
    facts = SimulatedWorkload(sequential, gathered, measured).facts(tuple(counts))
    found = replace(
        facts.verdict, sentence=verdicts.sentence(facts), advice=verdicts.advice(facts), note=verdicts.roughness(facts)
    )
    return with_lost_errors(found, gathered)


class SimulatedWorkload:
    """One workload measured in both ways, and simulated with other instance counts or other code."""

    def __init__(self, sequential: SessionData, gathered: SessionData, measured: Measured) -> None:
        self.sequential, self.gathered, self.measured = sequential, gathered, measured
        self.models: dict[Key, ModelSeen] = {key_of(m): m for m in (*sequential.models, *gathered.models)}
        self.requests = recipes(sequential)
        self.speedup = measured.speedup
        self.batches = batches_seen(self.gathered)
        self.serial_now = serial_loops(self.models.values(), sequential, gathered, measured.loops)
        self.capacity = capacities(self.gathered, self.serial_now)
        self.cached = answered_by_cache(sequential, gathered)
        tree = SpanTree.of(sequential)
        self.sync_callers = {
            key_of(span)
            for span in sequential.spans
            if (model := self.models.get(key_of(span))) is not None  # the model was loaded
            and model.is_async
            and any(_blocks(child, span, sequential) for child in tree.children.get(span.id, ()))
        }
        roots = [s for s in gathered.spans if not s.parent]
        first = roots[0].sent if roots else 0
        self.sent = [s.sent - first for s in roots]
        gil_share = self._gil_share()
        # The processor time of one thread, plus its wait for a processor, but no more than the run took.
        needed = min(measured.cpu_sequential + measured.waited_sequential, measured.sequential)
        needed = max(needed, measured.cpu_sequential)
        self.python = min(round(gil_share * measured.sequential), needed)
        self.cpu = round(needed / max(1.0, measured.parallel or measured.cores))
        # Lower bounds (ns) of the wall time for any number of instances: here, and if instances are processes.
        self.bound, self.bound_apart = max(self.python, self.cpu), self.cpu
        # The search for the cause ignores the processor time that other programs took.
        self.disturbed = measured.waited_sequential > DISTURBED * measured.cpu_sequential
        own = round(measured.cpu_sequential / max(1, measured.cores))
        self.own_cpu = own if self.disturbed else self.cpu
        # A batch computes once, so the cost of its requests one by one is no bound.
        if self.batches:
            self.bound = self.bound_apart = self.own_cpu = 0

    @property
    def _work(self) -> int:
        """The time that the GIL and the processors need at least, ns."""
        return max(self.python, self.own_cpu)

    @cached_property
    def _now(self) -> int:
        """The simulated time with today's instances and code, ns."""
        return max(self._queues(self.capacity), self._work)

    def _gil_share(self) -> float:
        """Return the fraction of the sequential time in which the GIL was held."""
        m = self.measured
        if m.gil_share >= 0:
            return m.gil_share
        # n overlapping requests, each n times slower, on one processor: they took turns.
        alone, together = self._mean_self_time(self.sequential), self._mean_self_time(self.gathered)
        figures = session_statistics(self.gathered)
        if not alone or m.cpu_sequential < 0.7 * m.sequential or figures.concurrency < 1.5:
            return 0.0
        turns = together / alone > 0.7 * figures.concurrency
        return 1.0 if turns and m.cpu_gathered < 1.3 * m.gathered else 0.0

    @staticmethod
    def _mean_self_time(session: SessionData) -> float:
        tree = SpanTree.of(session)
        own = [total(tree.self_time(execution)) for execution in tree.members]
        return sum(own) / len(own) if own else 0.0

    def _waited(self, key: Key) -> tuple[int, float]:
        """Count the requests that waited for others of a model; also return the fraction of the gathered time."""
        spans = [s for s in self.gathered.spans if key_of(s) == key]
        # While all instances are idle, a request waits for a thread to wake up and not for other requests.
        idle = minus([(0, self.gathered.wall)], [holds(s) for s in spans])
        idle_begins = [begin for begin, _ in idle]
        idle_by_then = list(accumulate((end - begin for begin, end in idle), initial=0))

        def waited_until(moment: int) -> int:
            i = bisect_right(idle_begins, moment)
            return moment - idle_by_then[i] + (max(0, idle[i - 1][1] - moment) if i else 0)

        least = 0.02 * self.measured.gathered
        several = sum(waited_until(s.started) - waited_until(s.queued) > least for s in spans)
        together = minus([(s.queued, s.started) for s in spans], idle)
        return several, total(together) / max(1, self.measured.gathered)

    def _wall(
        self, capacity: Mapping[Key, int], requests: tuple[Recipe, ...] | None = None, *, apart: bool = False
    ) -> int:
        return max(self._queues(capacity, requests), self.bound_apart if apart else self.bound, 1)

    def _queues(self, capacity: Mapping[Key, int], requests: tuple[Recipe, ...] | None = None) -> int:
        """Return the time that instances and queues allow, whatever the processors do."""
        return replay(requests or self.requests, capacity, self.batches, self.sent)

    def _limits(self) -> list[Key]:
        """Return the models whose instance counts limit the workload, the strongest limit first."""
        capacity = dict(self.capacity)
        wall = self._queues(capacity)
        out: list[Key] = []
        while len(out) < len(capacity):
            tries = {key: self._queues({**capacity, key: UNLIMITED}) for key, n in capacity.items() if n < UNLIMITED}
            if not tries:
                break
            key = min(tries, key=tries.__getitem__)
            # Two models may limit only together: a caller and its callee with equally many instances.
            limits = [key] if tries[key] * GAIN <= wall else self._pair(capacity, wall)
            if not limits:
                break
            capacity |= dict.fromkeys(limits, UNLIMITED)
            out += limits
            wall = self._queues(capacity)
        return out

    def _pair(self, capacity: Mapping[Key, int], wall: int) -> list[Key]:
        limited = [key for key, n in capacity.items() if n < UNLIMITED]
        if self._queues({**capacity, **dict.fromkeys(limited, UNLIMITED)}) * GAIN > wall:
            return []
        needed = list(limited)
        for key in limited:
            rest = [k for k in needed if k != key]
            if self._queues({**capacity, **dict.fromkeys(rest, UNLIMITED)}) * GAIN <= wall:
                needed = rest
        return needed

    def _gathering(self) -> tuple[Recipe, ...]:
        """Return the requests as if coroutines that call `exec` gathered these calls."""

        def changed(recipe: Recipe) -> Recipe:
            sent = tuple(replace(s, recipe=changed(s.recipe)) for s in recipe.sent)
            if recipe.model in self.sync_callers and sent:
                sent = tuple(Sent(s.recipe, (), sent[0].gap) for s in sent)
                return replace(recipe, sent=sent, waited=tuple(range(len(sent))))
            return replace(recipe, sent=sent)

        return tuple(changed(r) for r in self.requests)

    def facts(self, counts: tuple[int, ...] = COUNTS) -> Facts:
        """Return the verdict without its sentences, and the figures for these."""
        chain = max((replay([r], {}) for r in self.requests), default=0)
        free = dict.fromkeys(self.models, UNLIMITED)
        best = max(self.measured.sequential / max(self._wall(free), chain, 1), self.speedup)
        limits = self._limits()
        cause, key = self._cause(limits, best)
        what_ifs = () if cause in ("contention", "cached") else self._what_ifs(limits, counts, cause)
        chosen = min((w for w in what_ifs if w.wall <= 1.05 * min(x.wall for x in what_ifs)),
                     key=lambda w: w.count, default=None)  # fmt: skip
        if cause not in ("queue", "one_at_a_time", "partly", "chain", "batched", "in_turn"):
            chosen = None
        count = 0
        # Compare with the prediction for today's instances: a run slow by chance is no reason for a change.
        now = self._wall(self.capacity)
        if chosen is not None and now > GAIN * chosen.wall:
            count = chosen.count
        elif cause == "queue" and self._work * GAIN * GAIN > now:
            # The processors are the limit: with more instances, requests would wait for these instead.
            cause, key = self._busy(best)
        waiting, part = self._waited(key) if key else (0, 0.0)
        result = Verdict(
            cause,
            sentence="",
            model=key[0] if key else "",
            speedup=self.speedup,
            best=self.speedup if cause == "contention" else best,  # contention: more instances bring nothing
            chain=chain,
            queued=part,
            models=tuple(name for name, version in limits if not 0 < count <= self.capacity.get((name, version), 1)),
            count=count,
            predicted=chosen.speedup if chosen is not None and count else self._by_code(cause),
            what_ifs=what_ifs,
        )
        seen = self.models.get(key) if key else None
        batch = max((batcher.most for batcher in self.batches.values()), default=0)
        alone, together = (
            median(self_times(run).get(key, [0]) if key else [0]) for run in (self.sequential, self.gathered)
        )
        return Facts(result, self.measured, seen, self.python, waiting, batch, self.cached.words, alone, together)

    def _spare(self) -> float:
        """Return the fraction of the processors that was idle during the gathered run."""
        m = self.measured
        return 1.0 - (m.cpu_gathered + m.waited_gathered) / max(1, m.cores * m.gathered)

    def _by_code(self, cause: str) -> float:
        """Return the predicted speedup of a change to the code, 0 if unknown."""
        if cause not in ("sync_exec", "blocking"):
            return 0.0
        requests = self._gathering() if cause == "sync_exec" else self.requests
        return self.measured.sequential / self._wall(capacities(self.gathered), requests)

    def _what_ifs(self, limits: list[Key], counts: tuple[int, ...], cause: str) -> tuple[WhatIf, ...]:
        roots = {r.model for r in self.requests} & self.models.keys()
        # On a server each instance is a process, so every model that holds the GIL gains from more instances.
        keys = limits or [
            k for k in (self.models if cause == "gil" else roots) if self.models[k].scheduler != "ensemble"
        ]
        out = []
        now = self.capacity
        more: set[int] = set()
        explained = _EXPLAINED * self._wall(now) > self.measured.gathered - self.measured.waited_gathered
        if limits and explained and cause in ("queue", "one_at_a_time", "batched"):
            # The model already has as many instances as the given counts: try twice and four times as many,
            # but no more than there are requests.
            key = limits[0]
            requests = sum(key_of(span) == key for span in self.sequential.spans)
            if now.get(key, 1) >= max(counts, default=1):
                more = {min(64, requests, now[key] * factor) for factor in (2, 4)} - {now[key]}
        for count in sorted({*counts, *more}):
            # Advice to change the first model takes no instances from the others.
            changed = {k: count if k == keys[0] else max(count, now.get(k, 1)) for k in keys}
            capacity = {**now, **{k: n for k, n in changed.items() if now.get(k, 0) < UNLIMITED}}
            if is_stuck(self.requests, capacity) and not is_stuck(self.requests, now):
                continue
            wall = self._wall(capacity)
            apart = self._wall(capacity, apart=True)
            out.append(WhatIf(count, wall, self.measured.sequential / wall, self.measured.sequential / apart))
        return tuple(out)

    def _cause(self, limits: list[Key], best: float) -> tuple[str, Key | None]:
        speedup = self.speedup
        root = self.requests[0].model if self.requests else None
        if len(self.requests) < 2:
            return "one", root
        if self.batches and speedup > GAIN:
            return "batched", max(self.batches, key=lambda key: self.batches[key].most)
        cached = self.cached.spans
        if cached and (not cached[0].parent or self._each() < _CACHED):  # or the rest is only sending these calls
            return "cached", key_of(cached[0])
        if self._each() < LITTLE and speedup < 1.5:
            return "little", root
        contended = contention(self.sequential, self.gathered, self.measured, self._now)
        if contended is not None:
            return "contention", contended
        removable = self._removable(limits)
        if removable is not None:
            return removable
        if self._work * GAIN > self._now:
            return self._busy(best)
        if self._near(best):
            return "helped", root
        return ("partly" if speedup > GAIN else "chain"), root

    def _removable(self, limits: list[Key]) -> tuple[str, Key] | None:
        """Return the cause that other code or more instances would remove, and its model; None without one."""
        for key in self.sync_callers:
            wall = self._queues(capacities(self.gathered, self.serial_now - {key}), self._gathering())
            if max(wall, self._work) * GAIN < self._now:
                return "sync_exec", key
        # If the GIL or the processors allow no shorter time, nothing else can help.
        if self._work * GAIN > self._now:
            return None
        for key in self.serial_now:
            return "blocking", key
        if limits:
            model = self.models[limits[0]]
            waiting = model.is_async and not model.decoupled and len(model.instances) == 1
            return ("one_at_a_time" if waiting else "queue"), limits[0]
        return None

    def _busy(self, best: float) -> tuple[str, Key | None]:
        """Return the bound of the work itself (GIL, event loop or processors), and the model."""
        # The GIL first: work that holds it keeps at most one processor busy.
        if self.python * GAIN > self.own_cpu:
            return "gil", self._burner()
        if self.serial_now and self._spare() > 0.4:  # the one thread of the loop leaves the other cores idle
            return "blocking", next(iter(self.serial_now))
        return ("helped" if self._near(best) else "cores"), self._burner()

    def _each(self) -> float:
        """Return the duration of a request by itself, ns."""
        durations = quartiles(s.duration for s in self.sequential.spans if not s.parent)
        # Other programs make a few requests take very long, which would distort the mean.
        return durations.q3 if self.disturbed else durations.total / max(1, durations.count)

    def _near(self, best: float) -> bool:
        """Whether the speedup is near the best one, not counting the time that other programs took."""
        measured = self.measured
        wall = measured.sequential / best + measured.waited_gathered
        return self.speedup > GAIN and NEAR * measured.gathered < wall

    def _burner(self) -> Key | None:
        """Return the model with the most self time."""
        own = self_times(self.sequential)
        return max(own, key=lambda key: sum(own[key]), default=None)
