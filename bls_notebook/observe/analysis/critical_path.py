"""The critical path: what bounded the wall time of a session, found backwards from its end.

At every moment one thing kept the whole from being further on. From the end of a session backwards it is:

- of the notebook, or of a model's `execute`: the request that it sent and that was answered last before this
  moment; what is left between is its own work. (Requests that were answered earlier went on beside it.)
- of a request: its phases from the last to the first. While it was queued, what counts is what its instance
  did meanwhile for others, those that had been queued before it included; what is left is the queue itself (a
  batcher that waits for more, the way to a thread).

The steps found cover the wall time once, without gaps. Of a stream, an answer on the way counts as an end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

from bls_notebook.observe.analysis.span_tree import SpanTree, holds
from bls_notebook.observe.records.plain import Record
from bls_notebook.observe.records.spans import SessionData, Span

__all__ = ["Fields", "Step", "critical_path", "path"]


@dataclass(frozen=True, slots=True, repr=False)
class Step(Record):
    """A part of the critical path, from ``begin`` to ``end`` (ns).

    ``span`` is whose time it was (0 for the notebook's) and ``phase`` what it did: compute_input, queue,
    compute_infer (its own work in `execute`), compute_output, or notebook. ``behind`` is the request that
    was queued behind this one meanwhile, which is how it came to be on the path; 0 for none.
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
    return tuple(Step(*fields) for fields in path(session, SpanTree(session)))


def path(session: SessionData, tree: SpanTree) -> list[Fields]:
    """Return the steps as tuples: where there are many, records take as long as finding them."""
    return _Search(session, tree).steps()


class _Search:
    """Goes back from the end; what is still to be looked into is kept in a list, as calls may be deep."""

    def __init__(self, session: SessionData, tree: SpanTree) -> None:
        self._wall = session.wall
        self._tree = tree
        self._found: list[Fields] = []
        self._todo: list[tuple[Span | None, int, int, int, bool]] = []
        # A moment is ns * ids + the id of a span: such numbers are in order of time, and the garbage
        # collector never looks at them.
        self._ids = max(tree.spans, default=0) + 1
        self._answered: dict[int, list[int]] = {}
        # Of each instance, who left it when: in order.
        self._left: defaultdict[tuple[str, int, str], list[int]] = defaultdict(list)
        for members in tree.members.values():
            span = members[0]
            if span.instance and not tree.is_ensemble(span):
                moment = holds(span)[1] * self._ids + span.id
                self._left[span.model, span.version, span.instance].append(moment)
        for left in self._left.values():
            left.sort()

    def steps(self) -> list[Fields]:
        """Return the path."""
        self._scope(None, 0, self._wall, 0, "notebook")
        while self._todo:
            span, begin, end, behind, holder = self._todo.pop()
            assert span is not None
            # A holder worked for a request while another one was queued for its instance.
            self._served(span, begin, end, behind, end if holder else span.ended)
            if not holder:
                self._queue(span, max(begin, span.queued), min(end, span.started), behind)
                self._add(span, "compute_input", begin, min(end, span.queued), behind)
        return _joined(sorted(self._found))

    def _add(self, span: Span | None, phase: str, begin: int, end: int, behind: int) -> None:
        if begin >= end:
            return
        if span is None:
            self._found.append((begin, end, 0, "notebook", "", 0, "", 0))
        else:
            self._found.append((begin, end, span.id, phase, span.model, span.version, span.instance, behind))

    def _served(self, span: Span, begin: int, end: int, behind: int, last: int) -> None:
        """Look into `execute` and what follows, until `last`."""
        stream = span.kind == "stream"
        inferred = last if stream else span.inferred
        self._add(span, "compute_output", max(begin, inferred), min(end, last), behind)
        self._scope(span, max(begin, span.started), min(end, inferred), behind, "compute_infer")

    def _scope(self, span: Span | None, begin: int, end: int, behind: int, phase: str) -> None:
        """Look into a model's `execute`, or the notebook: whom did it wait for?"""
        now = end
        execution = 0 if span is None else self._tree.execution(span.id)
        answers = self._answers(execution)
        ids = self._ids
        at = bisect_right(answers, now * ids + ids - 1)
        while at and now > begin:
            at -= 1
            answered, child_id = divmod(answers[at], ids)
            if answered <= begin:
                break
            child = self._tree.spans[child_id]
            if answered > now or child.sent >= answered:
                continue
            self._add(span, phase, answered, now, behind)
            now = max(begin, child.sent)
            at = bisect_right(answers, now * ids + ids - 1, 0, at)
            self._todo.append((child, now, answered, behind, False))
        self._add(span, phase, begin, now, behind)

    def _answers(self, execution: int) -> list[int]:
        """Return when the requests that an execution sent gave an answer, and whose it was: in order."""
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

    def _queue(self, span: Span, begin: int, end: int, behind: int) -> None:
        """Look into a wait for an instance: what did that do meanwhile?"""
        now = end
        if begin >= end:
            return
        left = self._left.get((span.model, span.version, span.instance), [])
        ids = self._ids
        at = bisect_right(left, now * ids + ids - 1)
        while at and now > begin:
            at -= 1
            gone, holder_id = divmod(left[at], ids)
            if gone <= begin:
                break
            holder = self._tree.spans[holder_id]
            same = self._tree.execution(span.id) == self._tree.execution(holder_id)
            if same or gone > now or holder.started >= gone:
                continue
            self._add(span, "queue", gone, now, behind)
            now = max(begin, holder.started)
            at = bisect_right(left, now * ids + ids - 1, 0, at)
            self._todo.append((holder, now, gone, behind or span.id, True))
        self._add(span, "queue", begin, now, behind)


def _joined(steps: list[Fields]) -> list[Fields]:
    """Put neighbours together that say the same."""
    out: list[Fields] = []
    for step in steps:
        if out and out[-1][1] == step[0] and out[-1][2:] == step[2:]:
            step = (out.pop()[0], *step[1:])
        out.append(step)
    return out
