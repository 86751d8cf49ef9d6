"""What a profile of a cell says in a sentence: what its requests waited for, and what would make it faster.

The causes are those of comparisons (`analysis.verdict`). A cell runs once, so that what its requests would
take one after the other, or all at once, is told by replaying them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import median

from bls_notebook.profiling.analysis.replay import Key, capacities, key_of, recipes, replay
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.analysis.verdict import LITTLE, Case, failed
from bls_notebook.profiling.records.spans import SessionData, Span
from bls_notebook.profiling.records.verdicts import Measured, Verdict, failures
from bls_notebook.records.intervals import total, union

from . import words
from .lock_waits import lock_waits
from .parts import of_roots

_MOST = 2_000  # requests that are looked at: the first ones, with all that they led to
_OWN = 0.6  # of the time without a request: it is the notebook's
_LOCKED = 0.25  # of the time with requests, in which the lock was held and wanted
_TOGETHER = 1.5  # times as fast: worth to be sent together
_BUSY = 0.2  # of the processors idle: they are busy
_EVEN = 0.25  # how much steps of a staircase may differ
_SHORT = 5_000_000  # ns of a cell: too short to tell whose time it was
_HOLDS = 0.3  # of the time in which the lock was seen to be held: then it is all the time, but for the looks


def cell_verdict(session: SessionData) -> Verdict:
    """Return what the requests of a session waited for, and what would make them faster.

    ``speedup`` is how many times as fast it was as its requests one after the other, by a replay; ``best``
    and ``predicted`` count from the same. ``cause`` is empty where there were no requests.
    """
    session, note = _first(session)
    roots = [span for span in session.spans if not span.parent]
    if not roots:
        return Verdict("", "")
    if failures(session):
        return replace(failed(session), note=note)
    busy = total(union((span.sent, span.ended) for span in roots))
    if session.wall - busy > _OWN * session.wall and session.wall > _SHORT:
        verdict = Verdict("notebook", words.own_code(session, busy))
    else:
        at_once = sum(span.duration for span in roots) > 1.05 * busy
        facts = (_AtOnce if at_once else _InTurn)(session, roots, busy).facts()
        verdict = words.worded(facts, session, at_once)
    return replace(verdict, note=" ".join(filter(None, (words.rough(session), note))))


def _first(session: SessionData) -> tuple[SessionData, str]:
    """The first requests of a session that has very many, and a note that says so."""
    if len(session.spans) <= _MOST:
        return session, ""
    kept = {span.id for span in session.spans[:_MOST] if not span.parent}
    first = of_roots(replace(session, spans=session.spans[:_MOST]), kept)
    wall = max((span.ended for span in first.spans), default=session.wall)
    return replace(first, wall=wall), f"Judged by the first {len(first.spans):,} requests."


class _AtOnce(Case):
    """Requests that were under way together."""

    def __init__(self, session: SessionData, roots: list[Span], busy: int) -> None:
        now = capacities(session)
        alone = sum(replay([recipe], now) for recipe in recipes(session))
        super().__init__(session, session, _measured(session, roots, alone, busy))

    def _cause(self, limits: list[Key], best: float) -> tuple[str, Key | None]:
        session, measured = self.gathered, self.measured
        held = total(union((each.begin, each.end) for each in session.lock))
        if held > _LOCKED * measured.gathered:
            turns = [wait.span for wait in lock_waits(session) if not wait.queued]
            spans = {span.id: span for span in session.spans}
            return "gil", key_of(spans[turns[0]]) if turns else self._burner()
        stairs = None if self._spare() < 0.25 else _staircase(session)
        if stairs is not None:
            return "contention", stairs
        if self._spare() < _BUSY:
            return "cores", self._burner()
        return super()._cause(limits, best)


class _InTurn(Case):
    """Requests one after the other, and what would be if they were sent all at once."""

    def __init__(self, session: SessionData, roots: list[Span], busy: int) -> None:
        super().__init__(session, session, _measured(session, roots, busy, busy))
        self.serial_now = set()
        self.capacity = capacities(session)
        self.sent = [0] * len(roots)

    def _cause(self, limits: list[Key], best: float) -> tuple[str, Key | None]:
        root = self.requests[0].model
        if self.cached.spans:
            return "cached", key_of(self.cached.spans[0])
        if len(self.requests) < 2:
            return "one", root
        if self._each() < LITTLE:
            return "little", root
        if self.measured.sequential > _TOGETHER * self._wall(self.capacity):
            return "in_turn", root
        cause, key = super()._cause(limits, best)
        # Nothing queues while they are sent so.
        return ("in_turn", root) if cause in ("queue", "one_at_a_time", "helped", "partly") else (cause, key)

    def _by_code(self, cause: str) -> float:
        return self.measured.sequential / self._wall(self.capacity) if cause == "in_turn" else 0.0


def _measured(session: SessionData, roots: list[Span], alone: int, busy: int) -> Measured:
    held = total(union((each.begin, each.end) for each in session.lock))
    part = busy / max(1, session.wall)
    cpu, waited = round(session.cpu * part), round(session.cpu_waited * part)
    return Measured(
        requests=len(roots), sequential=alone, gathered=busy, cpu_sequential=cpu, cpu_gathered=cpu,
        waited_sequential=waited, waited_gathered=waited, cores=session.cores or 1 << 10,
        gil_share=1.0 if held > _HOLDS * busy else held / max(1, busy),
    )  # fmt: skip


def _staircase(session: SessionData) -> Key | None:
    """The model whose requests were let go one after the other, though each had an instance.

    They were under way together, and ended at even steps, each as long as the shortest of them took: so they
    took turns with something, and it was no processor.
    """
    tree = SpanTree(session)
    ends: dict[Key, list[tuple[int, int]]] = {}
    for execution, (first, *_) in tree.members.items():
        if first.ran and not tree.is_ensemble(first):
            ends.setdefault(key_of(first), []).append((first.ended, total(tree.self_time(execution))))
    for key, found in ends.items():
        times = [ns for _, ns in found]
        moments = sorted(end for end, _ in found)
        steps = [b - a for a, b in pairwise(moments)]
        if len(found) < 4 or median(times) < 1.7 * min(times):
            continue
        step, shortest = median(steps), min(times)
        even = sum(abs(each - step) < _EVEN * step for each in steps) >= 0.7 * len(steps)
        if even and abs(step - shortest) < 0.5 * shortest:
            return key
    return None
