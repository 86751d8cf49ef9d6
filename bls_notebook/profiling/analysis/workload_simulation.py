"""Simulate a measured workload with other instance counts or with changed code. Pure.

The queues, the GIL and the processors are simulated (`queue_simulation`) from the requests of a sequential run; the
processor time of the whole process, and the measured share of the GIL, bound the result from below.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise, starmap

from bls_notebook.profiling.intervals import minus, total, union
from bls_notebook.profiling.records.spans import ModelSeen, SessionData, Span
from bls_notebook.profiling.records.verdicts import WORTH, Measured, WhatIf
from bls_notebook.records import grouped

from .batch_calls import AS_ONE, GATHERED, ONE_BY_ONE
from .queue_simulation import (
    NOT_SHARED,
    UNLIMITED,
    ModelKey,
    Recipe,
    Sent,
    Work,
    batches_seen,
    capacities,
    is_stuck,
    key_of,
    recipes,
    replay,
)
from .session_statistics import session_statistics
from .span_tree import SpanTree

DISTURBED = 0.1  # wait for processors over processor time: above it, other programs disturbed the run
BLOCKED = 0.5  # fraction of the time that an event loop runs the model's own code: above it, the loop is blocked
_EXPLAINED = 1.2  # measured over simulated time: above it, other instance counts are not predicted
_SOME = 0.02  # fraction of a model's own time: less processor time is not simulated
_MOST = 64  # instances, at most, that are predicted


def self_times(session: SessionData) -> dict[ModelKey, list[int]]:
    """Return the self time of each execution, by model, ns."""
    tree = SpanTree.of(session)
    return grouped((key_of(m[0]), total(tree.self_time(e))) for e, m in tree.members.items() if m[0].ran)


def python_times(session: SessionData) -> dict[ModelKey, int]:
    """Return the time in which samples saw the GIL held and executions of a model compute, ns; without zeros.

    A model in processes needs the GIL of the engine only to pass on its requests.
    """
    apart = {key_of(model) for model in session.models if model.processes}
    tree, times = SpanTree.of(session), Counter[ModelKey]()
    held = union((each.begin, each.end) for each in session.lock)
    computing = {thread for each in session.lock for thread in each.threads}
    for execution, (first, *_) in tree.members.items() if held else ():
        if key_of(first) in apart:
            continue
        if first.ran and not tree.is_ensemble(first) and (not computing or first.thread in computing):
            own = tree.self_time(execution)
            times[key_of(first)] += total(own) - total(minus(own, held))
    return {key: ns for key, ns in times.items() if ns}


def computing_times(session: SessionData) -> dict[ModelKey, int]:
    """Return the processor time that each model used itself, ns; without models of which it is unknown."""
    tree, used = SpanTree.of(session), Counter[ModelKey]()
    for execution, (first, *_) in tree.members.items():
        if first.ran and first.cpu >= 0:
            calls = tree.children.get(execution, ())
            used[key_of(first)] += first.cpu - sum(max(0, call.cpu) for call in calls if call.thread == first.thread)
    instances = {name: key_of(model) for model in session.models if model.processes for name in model.instances}
    for worker in session.workers:
        if worker.instance in instances:
            used[instances[worker.instance]] += worker.cpu
    return dict(used)


def needs_of_work(session: SessionData, python: int, cores: int) -> Work:
    """Return the needs of models' own work, if the GIL was held for `python` ns.

    Samples show the models that held it. They are few, so they are scaled to that time.
    """
    own = {key: sum(times) for key, times in self_times(session).items()}
    computing = computing_times(session)
    apart = {key_of(model) for model in session.models if model.processes}
    held = python_times(session) or {key: ns for key, ns in computing.items() if key not in apart}
    whole = max(1, sum(held.values()))
    scaled = {key: min(ns * python / whole, computing.get(key, own.get(key, 0))) for key, ns in held.items()}

    def shares(times: Mapping[ModelKey, float]) -> dict[ModelKey, float]:
        return {key: min(1.0, ns / own[key]) for key, ns in times.items() if ns > _SOME * own.get(key, ns)}

    return Work(shares(scaled), shares(computing), cores)


def _serial_loops(
    models: Iterable[ModelSeen], sequential: SessionData, gathered: SessionData, measured: Measured
) -> Iterator[ModelKey]:
    """Yield the decoupled async models whose coroutines block their event loop, so that requests run one by one.

    Samples of the event loops decide; for a model without samples, the times of its requests do.
    """
    shares = {(loop.model, loop.version): loop.share for loop in measured.loops}
    for model in models:
        key = key_of(model)
        if not (model.decoupled and model.is_async):
            continue
        if key in shares:
            if shares[key] > BLOCKED:
                yield key
            continue
        alone = total((s.started, s.ended) for s in sequential.spans if key_of(s) == key)
        spans = [(s.started, s.ended) for s in gathered.spans if key_of(s) == key and s.ran]
        covered = total(union(spans))
        if len(spans) > 1 and alone and covered > 0.7 * alone / max(1, len(model.instances)):
            yield key


# Code that calls in threads; an import alone shows no call.
THREADS = re.compile(r"(?<!import )\b(?:to_thread|run_in_executor|Thread(?:PoolExecutor)?)\b")


def _blocks(call: Span, caller: Span, session: SessionData) -> bool:
    """Return whether an async model sent a call by `exec` on its event loop's thread, and not on another thread."""
    if call.kind != "sync":
        return False
    if call.queued == call.started:  # without a queue, the callee ran on the thread of the call
        return call.thread == caller.thread
    if not call.source:  # code without a text sent it, such as a thread pool's, or the session has no texts
        return not session.sources
    return not THREADS.search(session.sources[call.source - 1].text)


def calls_alone(sequential: SessionData, gathered: SessionData) -> dict[int, tuple[str, ...]]:
    """Return the models that each request of the gathered run, by its id, calls if it is served by itself.

    For requests of the notebook that is what the request in the same place of the sequential run called; for others,
    what all requests to their model called, if these called the same.
    """
    tree = SpanTree.of(sequential)
    single = {m[0].id: (key_of(m[0]), tree.children.get(e, ())) for e, m in tree.members.items() if len(m) == 1}
    called = {i: (key, tuple(call.model for call in calls)) for i, (key, calls) in single.items()}
    by_model = {key: each[0] for key, each in grouped(called.values()).items() if len(set(each)) == 1}
    roots = [span for span in gathered.spans if not span.parent]
    alone = {span.id: called[i][1] for span, i in zip(roots, _roots(sequential), strict=False) if i in called}
    others = {s.id: by_model[key_of(s)] for s in gathered.spans if s.parent and key_of(s) in by_model}
    return {**alone, **others}


def _groups(session: SessionData) -> list[slice]:
    """Return the places of the requests in each group; a group was sent when all earlier requests had been answered."""
    roots = [span for span in session.spans if not span.parent]
    answered = accumulate((span.ended for span in roots), max)
    begins = [i for i, (end, span) in enumerate(zip(answered, roots[1:], strict=False), 1) if span.sent >= end]
    return list(starmap(slice, pairwise([0, *begins, None])))


def _roots(session: SessionData) -> list[int]:
    return [span.id for span in session.spans if not span.parent]


class SimulatedWorkload:
    """One workload, measured in both ways, and simulated with other instance counts or other code.

    ``serial`` are the models whose coroutines block their event loop, by default the models of the two runs. The
    requests are sent at the times of the gathered run or, with ``at_once``, all at 0; groups of a single run that were
    sent one after the other stay so. The work of a ``crowded`` run has waits for the GIL and for processors in it, so
    these are not simulated.
    """

    def __init__(
        self, sequential: SessionData, gathered: SessionData, measured: Measured,
        serial: Collection[ModelKey] | None = None, *, at_once: bool = False, crowded: bool = False,
    ) -> None:  # fmt: skip
        self.sequential, self.gathered, self.measured = sequential, gathered, measured
        self.models: dict[ModelKey, ModelSeen] = {key_of(m): m for m in (*sequential.models, *gathered.models)}
        self.requests = recipes(sequential)
        self.batches = batches_seen(gathered, calls_alone(sequential, gathered))
        own = _serial_loops(self.models.values(), sequential, gathered, measured) if serial is None else serial
        self.serial = list(own)
        self.capacity = capacities(gathered, self.serial)
        tree = SpanTree.of(sequential)
        self.sync_callers: dict[ModelKey, int] = {}  # with the most calls by `exec` of one request
        for span in sequential.spans:
            model = self.models.get(key := key_of(span))
            if model is not None and model.is_async:  # the model was loaded
                number = sum(_blocks(child, span, sequential) for child in tree.children.get(span.id, ()))
                if number:
                    self.sync_callers[key] = max(number, self.sync_callers.get(key, 0))
        self._sent = [] if at_once else [span.sent for span in gathered.spans if not span.parent]
        self._groups = _groups(gathered) if sequential is gathered and not at_once else [slice(None)]
        # The processor time of one thread, plus its wait for a processor, but no more than the run took.
        needed = min(measured.cpu_sequential + measured.waited_sequential, measured.sequential)
        needed = max(needed, measured.cpu_sequential)
        # The search for the cause ignores the processor time that other programs took.
        self.disturbed = measured.waited_sequential > DISTURBED * measured.cpu_sequential
        self.python = min(round(self._gil_share() * measured.sequential), needed)
        # Threads of libraries use several processors for one request, so that `parallel` would count twice.
        width = measured.cpu_sequential / max(1, measured.cpu_sequential - sequential.beside)
        cpu = round(needed / max(1.0, measured.parallel or measured.cores, width))
        self.own_cpu = round(measured.cpu_sequential / max(1, measured.cores)) if self.disturbed else cpu
        # Lower bounds (ns) of the wall time for any number of instances: here, and if instances are processes.
        self._bound, self._bound_apart = max(self.python, cpu), cpu
        self._own_bound = max(min(self.python, measured.cpu_sequential), self.own_cpu)  # without other programs
        # A batch that computes once takes less than its requests one by one, which are no bound then.
        self.computes_once = any(batcher.way == AS_ONE for batcher in self.batches.values())
        if self.computes_once:
            self._bound = self._bound_apart = self._own_bound = self.own_cpu = 0
        self.needs = NOT_SHARED
        if not crowded and not self.computes_once:
            self.needs = needs_of_work(sequential, self.python, measured.cores)
        self.work = max(self.python, self.own_cpu)  # the time that the GIL and the processors need at least, ns
        self.now = max(self._queues(self.capacity), self.work)  # the time with today's instances and code, ns

    def _gil_share(self) -> float:
        """Return the fraction of the sequential time in which the GIL was held."""
        m = self.measured
        if m.gil_share >= 0:
            return m.gil_share
        # On a busy machine, a thread that waits for a processor looks like one that waits for the GIL.
        if self.disturbed or all(model.processes for model in self.models.values()):
            return 0.0
        if self.sequential.lock:
            return min(1.0, sum(python_times(self.sequential).values()) / max(1, m.sequential))
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

    def _queues(
        self, capacity: Mapping[ModelKey, int], requests: tuple[Recipe, ...] | None = None, apart: bool = False
    ) -> int:
        """Return the time that instances, queues, processors and the GIL allow; `apart`: each instance has a GIL."""
        needs, requests = self.needs.apart if apart else self.needs, requests or self.requests
        wall = 0
        for group in self._groups:
            sent = self._sent[group]
            since = [moment - sent[0] for moment in sent]
            wall += replay(requests[group], capacity, self.batches, since, needs)
        return wall

    def _wall(self, capacity: Mapping[ModelKey, int], requests: tuple[Recipe, ...] | None = None) -> int:
        return max(self._queues(capacity, requests), self._bound, 1)

    def is_sure(self, wall: float) -> bool:
        """Return whether a predicted time (ns) does not rest on the processor time that other programs took."""
        return not self.disturbed or wall > self._bound or self._bound <= WORTH * self._own_bound

    @property
    def explains(self) -> bool:
        """True if the requests sent together took about as long as they take in the simulation."""
        return self.measured.gathered - self.measured.waited_gathered <= _EXPLAINED * self.now

    @property
    def chain(self) -> int:
        """The time of the longest request by itself, ns."""
        return max((replay([r], {}) for r in self.requests), default=0)

    def speedup_of(self, change: str) -> float:
        """Return the predicted speedup of a change over sequential exec.

        The changes are "" (sent together, unchanged), "await" (no coroutine blocks its event loop), "gather" (also,
        coroutines that call `exec` gather these calls), and "instances" (an instance for each request).
        """
        if change == "instances":
            wall = self._queues(dict.fromkeys(self.models, UNLIMITED))
            # The time that other programs took is no part of the best.
            return self.measured.sequential / max(wall, self._own_bound, self.chain, 1)
        capacity = capacities(self.gathered) if change else self.capacity
        return self.measured.sequential / self._wall(capacity, self._gathering() if change == "gather" else None)

    @cached_property
    def with_gathered_batches(self) -> SimulatedWorkload | None:
        """The workload if models gathered the requests of a batch that they serve one by one; None without such one."""
        turns = {key: b._replace(way=GATHERED, in_loop=True) for key, b in self.batches.items() if b.way == ONE_BY_ONE}
        if not turns:
            return None
        changed = copy.copy(self)
        vars(changed).pop("limits", None)
        changed.batches = {**self.batches, **turns}
        return changed

    @cached_property
    def batch_in_turn(self) -> ModelKey | None:
        """The model that serves the requests of a batch one by one, though gathering them would make it faster.

        The gain may need more instances of its callees, too.
        """
        changed = self.with_gathered_batches
        if changed is None:
            return None
        most = dict.fromkeys(self.models, UNLIMITED) | {k: n for k, n in self.capacity.items() if k in self.batches}
        wall = max(changed._queues(most), self.work)
        in_turn = [key for key, batcher in self.batches.items() if batcher.way == ONE_BY_ONE]
        return in_turn[0] if wall * WORTH < self.now else None

    def _gathering(self) -> tuple[Recipe, ...]:
        """Return the requests as if coroutines that call `exec` gathered these calls."""

        def changed(recipe: Recipe) -> Recipe:
            sent = tuple(replace(s, recipe=changed(s.recipe)) for s in recipe.sent)
            if self.sync_callers.get(recipe.model, 0) > 1 and sent:  # one call after others that it awaited needs them
                sent = tuple(Sent(s.recipe, (), sent[0].gap) for s in sent)
                return replace(recipe, sent=sent, waited=tuple(range(len(sent))))
            return replace(recipe, sent=sent)

        return tuple(changed(r) for r in self.requests)

    @cached_property
    def sync_caller(self) -> ModelKey | None:
        """An async model that calls `exec` and whose calls, gathered, would make the workload faster."""
        for key in self.sync_callers:
            wall = self._queues(capacities(self.gathered, set(self.serial) - {key}), self._gathering())
            if max(wall, self.work) * WORTH < self.now:
                return key
        return None

    @cached_property
    def limits(self) -> list[ModelKey]:
        """The models whose instance counts limit the workload, the strongest limit first."""
        capacity = dict(self.capacity)
        wall = self._queues(capacity)
        out: list[ModelKey] = []
        while len(out) < len(capacity):
            tries = {key: self._queues({**capacity, key: UNLIMITED}) for key, n in capacity.items() if n < UNLIMITED}
            if not tries:
                break
            key = min(tries, key=tries.__getitem__)
            # Two models may limit only together: a caller and its callee with equally many instances.
            limits = [key] if tries[key] * WORTH <= wall else self._pair(capacity, wall)
            if not limits:
                break
            capacity |= dict.fromkeys(limits, UNLIMITED)
            out += limits
            wall = self._queues(capacity)
        return out

    def _pair(self, capacity: Mapping[ModelKey, int], wall: int) -> list[ModelKey]:
        limited = [key for key, n in capacity.items() if n < UNLIMITED]
        if self._queues({**capacity, **dict.fromkeys(limited, UNLIMITED)}) * WORTH > wall:
            return []
        needed = list(limited)
        for key in limited:
            rest = [k for k in needed if k != key]
            if self._queues({**capacity, **dict.fromkeys(rest, UNLIMITED)}) * WORTH <= wall:
                needed = rest
        return needed

    def what_ifs(
        self, keys: Collection[ModelKey], counts: Collection[int], *, further: bool = False
    ) -> tuple[WhatIf, ...]:
        """Predict the time with these instance counts of the models; the first one gets fewer, too.

        No more than there are requests. If the first model already has as many instances as the counts, `further` ones
        are tried: twice and four times as many.
        """
        keys = [key for key in keys if self.models[key].scheduler != "ensemble"]
        if any(self.models[key].scheduler == "sequence_batching" and key in self.batches for key in keys):
            return ()  # more instances share the sequences, so that batches are smaller
        now, seen = self.capacity, Counter(map(key_of, self.sequential.spans))
        most = min(_MOST, max((seen[key] for key in keys), default=0) or _MOST)
        tried = {min(count, most) for count in counts}
        if further and now.get(keys[0], 1) >= max(counts, default=1) and self.explains:
            tried |= {min(most, now[keys[0]] * factor) for factor in (2, 4)} - {now[keys[0]]}
        out = []
        for count in sorted(tried):
            # Advice to change the first model takes no instances from the others.
            changed = {k: count if k == keys[0] else max(count, now.get(k, 1)) for k in keys}
            capacity = {**now, **{k: n for k, n in changed.items() if now.get(k, 0) < UNLIMITED}}
            if is_stuck(self.requests, capacity) and not is_stuck(self.requests, now):
                continue
            here = max(self._queues(capacity), self._bound, 1)
            apart = max(self._queues(capacity, apart=True), self._bound_apart, 1)
            out.append(WhatIf(count, here, self.measured.sequential / here, self.measured.sequential / apart))
        return tuple(out)

    def worthwhile(self, what_ifs: Iterable[WhatIf]) -> WhatIf | None:
        """Return the smallest count near the best of them; None if it is hardly faster than today's.

        It is compared with the prediction for today's instances, too: a run slow by chance is no reason for a change.
        """
        walls = [what.wall for what in what_ifs]
        near = (what for what in what_ifs if what.wall <= 1.05 * min(walls))
        chosen = min(near, key=lambda what: what.count, default=None)
        now = min(self._wall(self.capacity), self.measured.gathered)
        return chosen if chosen is not None and now > WORTH * chosen.wall else None
