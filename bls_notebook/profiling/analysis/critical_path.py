"""The critical path of a session: the steps that bounded its wall time, found backwards from its end. Pure.

At every moment one request, or the notebook, bounds the wall time of the whole. Backwards from the end of a
session, that is:

- in the notebook or in a model's `execute`: the request it sent that was answered last before this moment. The
  time since that answer is its own work; requests answered earlier ran beside it.
- in a request: its phases from last to first. While it was queued, the path follows its instance's work for
  other requests, including those queued before it. The rest is the queue itself: a batcher that waits for more
  requests, or the switch to a thread.

The steps cover the wall time once, without gaps. Each response of a stream counts as an answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from bls_notebook.profiling.records.spans import SessionData, Span
from bls_notebook.records import Record

from .span_tree import SpanTree, holds


@dataclass(frozen=True, slots=True, repr=False)
class Step(Record):
    """A part of the critical path, from ``begin`` to ``end`` (ns).

    ``span`` is the span that took the time (0 for the notebook) and ``phase`` its phase: compute_input, queue,
    compute_infer (its own work in `execute`), compute_output, or notebook. If the step is on the path because
    another request was queued behind it, ``behind`` is that request's span; else 0.
    """

    begin: int
    end: int
    span: int = 0
    phase: str = "notebook"
    model: str = ""
    version: int = 0
    instance: str = ""
    behind: int = 0


Fields = tuple[int, int, int, str, str, int, str, int]
"""The fields of a step, in order."""


def critical_path(session: SessionData) -> tuple[Step, ...]:
    """Return the steps that bounded the wall time of a session, in order."""
    return tuple(Step(*fields) for fields in path(session, SpanTree.of(session)))


def path(session: SessionData, tree: SpanTree) -> list[Fields]:
    """Return the steps as tuples: making records would take as long as finding the steps."""
    return _Search(session, tree).steps()


class _Search:
    """Walks back from the end; open work is kept in a list, because calls may be nested deeply."""

    def __init__(self, session: SessionData, tree: SpanTree) -> None:
        self._wall = session.wall
        self._tree = tree
        self._found: list[Fields] = []
        self._todo: list[tuple[Span, int, int, int, bool]] = []
        # A moment is ns * ids + the id of a span. These numbers sort by time, and unlike tuples they cost the
        # garbage collector nothing.
        self._ids = max(tree.spans, default=0) + 1
        self._answered: dict[int, list[int]] = {}
        # For each instance, the ends of its executions with their spans, in order.
        self._left: defaultdict[tuple[str, int, str], list[int]] = defaultdict(list)
        for members in tree.members.values():
            span = members[0]
            if span.instance and not tree.is_ensemble(span):
                self._left[span.model, span.version, span.instance].append(holds(span)[1] * self._ids + span.id)
        for left in self._left.values():
            left.sort()

    def steps(self) -> list[Fields]:
        self._walk(self._answers(0), None, "notebook", 0, self._wall, 0)
        while self._todo:
            # `holder`: the span occupied the instance that the request `behind` was queued for.
            span, begin, end, behind, holder = self._todo.pop()
            ended = end if holder else span.ended
            inferred = ended if span.kind == "stream" else span.inferred
            self._add(span, "compute_output", max(begin, inferred), min(end, ended), behind)
            answers = self._answers(self._tree.execution(span.id))
            self._walk(answers, span, "compute_infer", max(begin, span.started), min(end, inferred), behind)
            if not holder:
                left = self._left.get((span.model, span.version, span.instance), [])
                self._walk(left, span, "queue", max(begin, span.queued), min(end, span.started), behind)
                self._add(span, "compute_input", begin, min(end, span.queued), behind)
        return _joined(sorted(self._found))

    def _add(self, span: Span | None, phase: str, begin: int, end: int, behind: int) -> None:
        if begin >= end:
            return
        if span is None:
            self._found.append((begin, end, 0, "notebook", "", 0, "", 0))
        else:
            self._found.append((begin, end, span.id, phase, span.model, span.version, span.instance, behind))

    def _walk(self, moments: list[int], span: Span | None, phase: str, begin: int, end: int, behind: int) -> None:
        """Walk back along the moments at which other requests were done; the time between is the span's own.

        While the span was queued, the others are requests that its instance served; otherwise, requests that it sent.
        """
        now, ids, execution = end, self._ids, self._tree.execution
        queued = span if phase == "queue" else None
        at = bisect_right(moments, now * ids + ids - 1)
        while at and now > begin:
            at -= 1
            done, other_id = divmod(moments[at], ids)
            if done <= begin:
                break
            other = self._tree.spans[other_id]
            since = other.sent if queued is None else other.started
            together = queued is not None and execution(queued.id) == execution(other_id)
            if together or done > now or since >= done:
                continue
            self._add(span, phase, done, now, behind)
            now = max(begin, since)
            at = bisect_right(moments, now * ids + ids - 1, 0, at)
            waiting = behind if queued is None else behind or queued.id
            self._todo.append((other, now, done, waiting, queued is not None))
        self._add(span, phase, begin, now, behind)

    def _answers(self, execution: int) -> list[int]:
        """Return the times of the responses to an execution's calls, each with the call's id, in order."""
        answers = self._answered.get(execution)
        if answers is None:
            ids, children = self._ids, self._tree.children.get(execution)
            if not children:
                return []
            answers = [child.ended * ids + child.id for child in children]
            answers += [m.ns * ids + c.id for c in children for m in c.marks if m.kind == "response"]
            answers.sort()
            self._answered[execution] = answers
        return answers


def _joined(steps: list[Fields]) -> list[Fields]:
    out: list[Fields] = []
    for step in steps:
        if out and out[-1][1] == step[0] and out[-1][2:] == step[2:]:
            step = (out.pop()[0], *step[1:])
        out.append(step)
    return out


def of_roots(session: SessionData, roots: Collection[int]) -> SessionData:
    """Return the part of a session with these requests (ids of spans) and all requests that they caused."""
    known = set(roots)
    kept: list[Span] = []
    for span in session.spans:  # in the order of sending: callers come before their callees
        if span.id in known or span.parent in known:
            known.add(span.id)
            kept.append(span)
    return replace(session, spans=tuple(kept), ghosts=tuple(g for g in session.ghosts if g.span in known))


class Share(NamedTuple):
    """The part of the critical path (ns) that was a model's own work or, if ``queued``, a wait for the model."""

    ns: int
    model: str
    queued: bool


def shares(session: SessionData) -> list[Share]:
    """Return the models' shares of the critical path, the largest first; the notebook's own time is left out."""
    spent: Counter[tuple[str, bool]] = Counter()
    for step in critical_path(session):
        if step.span:
            # A request queued behind this one: the time is a wait for the model.
            spent[step.model, step.phase == "queue" or step.behind > 0] += step.end - step.begin
    return [Share(ns, model, queued) for (model, queued), ns in spent.most_common()]
