"""The verdict of a profiled cell: what its requests waited for, and what would make it faster. Pure.

A comparison has the same causes (`verdict`). A cell runs once, so the times of its requests one after the
other, and all at once, are simulated.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import median

from bls_notebook.profiling.intervals import total, union
from bls_notebook.profiling.records import verdicts
from bls_notebook.profiling.records.spans import NOTEBOOK, SessionData, Span
from bls_notebook.profiling.records.verdicts import TEXTS, WORTH, Facts, Measured, Verdict, time_of, times

from .async_verdict import LITTLE, SimulatedWorkload, blocked_loops
from .critical_path import of_roots, shares
from .failed_calls import failed, with_lost_errors
from .queue_simulation import Key, capacities, key_of, recipes, replay
from .span_tree import SpanTree, lock_waits

_MANY = 8  # calls of one model by one `execute`: from here on, short ones could be one request
_NAMED = 4  # the most callees that a sentence names; it counts the others
_MUCH = 0.15  # fraction of a request's time that gathering its calls could save: less is not mentioned


def worded(f: Facts, session: SessionData, at_once: bool) -> Verdict:
    calls = "" if f.verdict.cause == "sync_exec" else _one_after_the_other(session)
    others = _perhaps_blocked(f, session), calls, _order_of_arrival(session)
    said = " ".join(filter(None, (_advice(f, session.sender), *others)))
    return replace(f.verdict, sentence=_sentence(f, session, at_once), advice=said)


def rough(session: SessionData) -> str:
    """Return why the figures are rough; empty if they are not."""
    if session.cpu_waited / max(1, session.wall) < verdicts.ROUGH or session.cpu_waited < verdicts.ROUGH * session.cpu:
        return ""
    return (
        f"Other programs or threads used the processors: runnable threads waited {time_of(session.cpu_waited)} for one."
    )


def _sentence(f: Facts, session: SessionData, at_once: bool) -> str:
    v, m = f.verdict, f.measured
    took = f"{m.requests} requests took {time_of(m.gathered)}, {'' if at_once else 'one '}"
    took += "under way together" if at_once else "after the other"
    if m.requests == 1:
        took = f"One request took {time_of(m.gathered)}"
    of_roots = any(span.model == v.model for span in session.spans if not span.parent)
    waiting = f"{f.waiting} of them" if of_roots else f"{f.waiting} call{'s' * (f.waiting != 1)}"
    instances = "one instance" if f.instances == 1 else f"{f.instances} instances"
    together = "{took}{faster}.{most}"
    in_turn = "{took}, each sent when the one before had been answered.{most}"
    words = TEXTS["cell"].get(v.cause, together if at_once else in_turn)
    fast = "as long" if m.speedup < WORTH else f"{times(m.speedup)} times as fast"
    faster = f"; they {'took' if m.speedup < WORTH else 'were'} {fast} as if sent one after the other" * at_once
    return words.format(
        took=took, name=f"`{v.model}`", waiting=waiting, instances=instances, queued=v.queued,
        faster=faster, would="" if at_once or m.requests == 1 else ", and together they would take as long",
        who=f"the {instances} of" if f.instances > 1 else "requests to", cached=f.cached, batch=f.batch,
        most=_most(session, v.model) if "{most}" in words else "",
    )  # fmt: skip


def _advice(f: Facts, sender: str) -> str:
    v = f.verdict
    gain = times(v.predicted / max(v.speedup, 1e-9))
    whom = verdicts.listed([f"`{name}`" for name in v.models])
    of_clients = " of clients" if v.cause == "in_turn" and sender != NOTEBOOK else ""
    more = f" with `instance_group.count` {v.count} for {whom}" if v.count else ""
    count = f"Set `instance_group.count` to {v.count} for {whom}: predicted {gain} times as fast as now."
    return (
        TEXTS["cell advice"].get(v.cause + of_clients, "{count}")
        .format(
            sender=sender, more=more, predicted=times(v.predicted), model=v.model,
            count=count if v.count and v.predicted > WORTH * v.speedup else "",
            each="instance" if f.instances > 1 else "request",
        ).strip()
    )  # fmt: skip


def _perhaps_blocked(f: Facts, session: SessionData) -> str:
    """Name a model whose coroutine may block its event loop, if threads also waited for processors; or empty."""
    names = sorted(name for name, _ in blocked_loops(session, 0))
    is_known = not names or f.verdict.cause == "blocking"
    return "" if is_known else TEXTS["cell"]["perhaps blocking"].format(name=f"`{names[0]}`")


def _most(session: SessionData, model: str) -> str:
    """Name the models that took most of the time; empty if that is the model of the verdict."""
    by_time = shares(session)
    whole = max(1, sum(share.ns for share in by_time))
    largest = [share for share in by_time[:3] if share.ns >= 0.1 * whole] or by_time[:1]
    if not largest or (largest[0].model == model and largest[0].ns > 0.9 * whole):
        return ""
    words = [f"{'waiting for ' * s.queued}`{s.model}` ({s.ns / whole:.0%})" for s in largest]
    return f" The time was spent in {', '.join(words)}."


def _one_after_the_other(session: SessionData) -> str:
    """Name the calls of an `execute` that could perhaps run together; empty if there are none."""
    tree = SpanTree.of(session)
    best: tuple[int, Span, list[Span]] | None = None
    for execution, calls in tree.children.items():
        if not execution or len(calls) < 2:
            continue
        caller = tree.members[execution][0]
        mine = [c for c in calls if c.kind in ("sync", "async") and c.ran]
        in_turn = all(one.ended <= after.sent for one, after in pairwise(mine))
        saved = sum(c.duration for c in mine) - max((c.duration for c in mine), default=0)
        alone = len(mine) == len(calls) and in_turn
        if alone and saved > _MUCH * (caller.duration - _delay(mine)) and (best is None or saved > best[0]):
            best = saved, caller, mine
    if best is None:
        return ""
    saved, caller, mine = best
    name, count = Counter(call.model for call in mine).most_common(1)[0]
    each = median(call.duration for call in mine if call.model == name)
    if count >= _MANY and mine[-1].ended - mine[0].sent < LITTLE * len(mine):  # the other calls are short, too
        return (
            f"`{caller.model}` sends {count} requests to `{name}`, one after the other, at {time_of(each)} each: so "
            "little work that sending it is a large part of the time. If the calls do not need each other's responses, "
            f"and `{name}` accepts it, send one request with all the data."
        )
    if any(call.kind == "async" for call in mine):
        return (
            f"`{caller.model}` waits for {called(mine)}: if they do not need each other's responses, asyncio.gather of "
            f"them may save up to {time_of(saved)}."
        )
    return (
        f"`{caller.model}` waits for {called(mine)}: `%blsprofile {caller.model} … --overlap` finds out whether "
        f"they need each other; running them together may save up to {time_of(saved)}."
    )


def _delay(calls: list[Span]) -> float:
    """Return how much longer one of many calls took than the others, as if another program had the processor."""
    name, count = Counter(call.model for call in calls).most_common(1)[0] if calls else ("", 0)
    steps = [after.sent - call.sent for call, after in pairwise(calls) if call.model == name]
    return max(steps) - median(steps) if count >= _MANY else 0


_ARRIVAL = re.compile(r"^[^#\n]*?\b(asyncio\.(?:as_completed|wait))(?=\()", re.MULTILINE)  # any order of responses


def _order_of_arrival(session: SessionData) -> str:
    """Name a model that perhaps took responses as they arrived, in another order than its calls; empty without one."""
    tree = SpanTree.of(session)
    for execution, calls in tree.children.items():
        text = session.sources[calls[0].source - 1].text if execution and calls[0].source else ""
        code = _ARRIVAL.search(text)
        if code is None:
            continue
        for name in dict.fromkeys(call.model for call in calls):
            ends = [call.ended for call in calls if call.model == name]
            if ends != sorted(ends):
                line, caller = text.count("\n", 0, code.end()) + 1, tree.members[execution][0].model
                return (
                    f"The responses of `{name}` did not arrive in the order of the calls, and the code of "
                    f"`{caller}` uses {code[1]} (line {line}). If `{caller}` uses each response as it arrives, and the "
                    "order matters, use asyncio.gather: it returns the responses in the order of the calls."
                )
    return ""


def called(spans: list[Span]) -> str:
    """Name the called models in order: ```resize`, then for `detect```."""
    names = verdicts.calls_of(spans)
    if len(names) > _NAMED + 1:
        names[_NAMED:] = [f"{len(names) - _NAMED} other models"]
    return ", then for ".join(names)


_MOST = 2_000  # spans that are judged: the first ones
_OWN = 0.6  # fraction of the time without a request: above it, the notebook's own code took the time
_LOCKED = 0.25  # fraction of the time with requests in which the GIL was held and wanted
_TOGETHER = 1.5  # predicted speedup above which sending requests together is worth it
_BUSY = 0.2  # idle fraction of the processors: below it, they are busy
_EVEN = 0.25  # tolerance for equal steps of a staircase
_SHORT = 5_000_000  # ns: a shorter cell does not show whose time it was
_HOLDS = 0.3  # fraction of the time in which samples saw the GIL held: above it, the GIL is taken as always held


def cell_verdict(session: SessionData) -> Verdict:
    """Return the cause of the requests' waits, with advice that would make them faster.

    ``speedup``, ``best`` and ``predicted`` are relative to the simulated time of the requests one after the
    other. ``cause`` is empty if there were no requests.
    """
    session, note = _first(session)
    roots = [span for span in session.spans if not span.parent]
    if not roots:
        return Verdict("", "")
    if verdicts.failures(session):
        return replace(failed(session), note=note)
    busy = total(union((span.sent, span.ended) for span in roots))
    if session.wall - busy > _OWN * session.wall and session.wall > _SHORT:
        whose = "the cell's own code" if session.sender == NOTEBOOK else "without a request"
        under_way = f"{busy / session.wall:.0%} of {time_of(session.wall)}"
        words = f"Most of the time was {whose}: requests were under way for {under_way}."
        verdict = Verdict("notebook", words, _one_after_the_other(session))
    else:
        at_once = sum(span.duration for span in roots) > 1.05 * busy
        facts = (_AtOnce if at_once else _InTurn)(session, roots, busy).facts()
        verdict = worded(facts, session, at_once)
    return with_lost_errors(replace(verdict, note=" ".join(filter(None, (rough(session), note)))), session)


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


class _Recorded(SimulatedWorkload):
    """Requests of a cell, which were recorded once."""

    def __init__(self, session: SessionData, measured: Measured) -> None:
        super().__init__(session, session, measured)
        self.serial_now = blocked_loops(session, session.cpu_waited)
        self.capacity = capacities(session, self.serial_now)


class _AtOnce(_Recorded):
    """Requests that were in flight together."""

    def __init__(self, session: SessionData, roots: list[Span], busy: int) -> None:
        now = capacities(session)
        alone = sum(replay([recipe], now) for recipe in recipes(session))
        super().__init__(session, _measured(session, roots, alone, busy))

    def _cause(self, limits: list[Key], best: float) -> tuple[str, Key | None]:
        session, measured = self.gathered, self.measured
        if total(union((each.begin, each.end) for each in session.lock)) > _LOCKED * measured.gathered:
            turns = [wait.span for wait in lock_waits(session) if not wait.queued]
            spans = {span.id: span for span in session.spans}
            return "gil", key_of(spans[turns[0]]) if turns else self._burner()
        stairs = None if self._spare() < 0.25 else _staircase(session)
        if stairs is not None:
            return "contention", stairs
        if self._spare() < _BUSY:
            return "cores", self._burner()
        return super()._cause(limits, best)


class _InTurn(_Recorded):
    """Requests sent one after the other; simulates sending them at once."""

    def __init__(self, session: SessionData, roots: list[Span], busy: int) -> None:
        super().__init__(session, _measured(session, roots, busy, busy))
        self.sent = [0] * len(roots)

    def _cause(self, limits: list[Key], best: float) -> tuple[str, Key | None]:
        root = self.requests[0].model
        if self.cached.spans:
            return "cached", key_of(self.cached.spans[0])
        if len(self.requests) < 2:
            return (self._each() > LITTLE and self._removable(limits)) or ("one", root)
        if self._each() < LITTLE:
            return "little", root
        if self.measured.sequential > _TOGETHER * self._wall(self.capacity):
            return "in_turn", root
        cause, key = super()._cause(limits, best)
        # Requests that are sent one after the other never queue.
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
    """Return the model whose executions ran together and yet ended one after the other, at even steps.

    Each step is about as long as the shortest execution, so the executions took turns on something that they
    share. The caller has ruled out the processors.
    """
    tree = SpanTree.of(session)
    executions: dict[Key, list[tuple[int, int]]] = {}
    for execution, (first, *_) in tree.members.items():
        if first.ran and not tree.is_ensemble(first):
            executions.setdefault(key_of(first), []).append((first.ended, total(tree.self_time(execution))))
    for key, ends_and_times in executions.items():
        times = [ns for _, ns in ends_and_times]
        steps = [b - a for a, b in pairwise(sorted(end for end, _ in ends_and_times))]
        if len(times) < 4 or median(times) < 1.7 * min(times):
            continue
        step, shortest = median(steps), min(times)
        even = sum(abs(length - step) < _EVEN * step for length in steps) >= 0.7 * len(steps)
        if even and abs(step - shortest) < 0.5 * shortest:
            return key
    return None
