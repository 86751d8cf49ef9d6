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
from dataclasses import dataclass

from bls_notebook.observe.plain import Record
from bls_notebook.observe.relations import Relations, holds
from bls_notebook.observe.session import Session, Span

__all__ = ["Step", "critical_path"]


@dataclass(frozen=True, slots=True)
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


def critical_path(session: Session) -> tuple[Step, ...]:
    """Return the steps that bounded the wall time of a session, in order."""
    return _Search(session).steps()


class _Search:
    """Goes back from the end; what is still to be looked into is kept in a list, as calls may be deep."""

    def __init__(self, session: Session) -> None:
        self._wall = session.wall
        self._relations = relations = Relations(session)
        self._found: list[Step] = []
        self._todo: list[tuple[Span | None, int, int, int, bool]] = []
        # Of each execution, when the requests that it sent gave an answer: in order.
        self._answers: dict[int, list[tuple[int, int]]] = {}
        # Of each instance, who left it when: in order.
        self._left: dict[tuple[str, int, str], list[tuple[int, int]]] = {}
        for execution, children in relations.children.items():
            answers = [(c.ended, c.id) for c in children]
            answers += [(m.ns, c.id) for c in children for m in c.marks if m.kind == "response"]
            self._answers[execution] = sorted(answers)
        for members in relations.members.values():
            span = members[0]
            if span.ran and not relations.is_ensemble(span):
                place = (span.model, span.version, span.instance)
                self._left.setdefault(place, []).append((holds(span)[1], span.id))
        for left in self._left.values():
            left.sort()

    def steps(self) -> tuple[Step, ...]:
        """Return the path."""
        self._scope(None, 0, self._wall, 0, "notebook")
        while self._todo:
            span, begin, end, behind, holder = self._todo.pop()
            assert span is not None
            if holder:
                self._holder(span, begin, end, behind)
            else:
                self._request(span, begin, end, behind)
        return tuple(_joined(sorted(self._found, key=lambda s: (s.begin, s.end))))

    def _add(self, span: Span | None, phase: str, begin: int, end: int, behind: int) -> None:
        if begin >= end:
            return
        if span is None:
            self._found.append(Step(begin, end))
        else:
            self._found.append(
                Step(begin, end, span.id, phase, span.model, span.version, span.instance, behind)
            )

    def _request(self, span: Span, begin: int, end: int, behind: int) -> None:
        """Look into a request, between two moments of its life."""
        self._served(span, begin, end, behind, span.ended)
        self._queue(span, max(begin, span.queued), min(end, span.started), behind)
        self._add(span, "compute_input", begin, min(end, span.queued), behind)

    def _holder(self, span: Span, begin: int, end: int, behind: int) -> None:
        """Look into what an instance did for a request while another one was queued for it."""
        self._served(span, begin, end, behind, end)

    def _served(self, span: Span, begin: int, end: int, behind: int, last: int) -> None:
        """Look into `execute` and what follows, until `last`."""
        stream = span.kind == "stream"
        inferred = last if stream else span.inferred
        self._add(span, "compute_output", max(begin, inferred), min(end, last), behind)
        self._scope(span, max(begin, span.started), min(end, inferred), behind, "compute_infer")

    def _scope(self, span: Span | None, begin: int, end: int, behind: int, phase: str) -> None:
        """Look into a model's `execute`, or the notebook: whom did it wait for?"""
        now = end
        execution = 0 if span is None else self._relations.execution(span.id)
        answers = self._answers.get(execution, [])
        at = bisect_right(answers, (now, 1 << 62))
        while at and now > begin:
            at -= 1
            answered, child_id = answers[at]
            if answered <= begin:
                break
            child = self._relations.spans[child_id]
            if answered > now or child.sent >= answered:
                continue
            self._add(span, phase, answered, now, behind)
            now = max(begin, child.sent)
            at = bisect_right(answers, (now, 1 << 62), 0, at)
            self._todo.append((child, now, answered, behind, False))
        self._add(span, phase, begin, now, behind)

    def _queue(self, span: Span, begin: int, end: int, behind: int) -> None:
        """Look into a wait for an instance: what did that do meanwhile?"""
        now = end
        left = self._left.get((span.model, span.version, span.instance), [])
        at = bisect_right(left, (now, 1 << 62))
        while at and now > begin:
            at -= 1
            gone, holder_id = left[at]
            if gone <= begin:
                break
            holder = self._relations.spans[holder_id]
            same = self._relations.execution(span.id) == self._relations.execution(holder_id)
            if same or gone > now or holder.started >= gone:
                continue
            self._add(span, "queue", gone, now, behind)
            now = max(begin, holder.started)
            at = bisect_right(left, (now, 1 << 62), 0, at)
            self._todo.append((holder, now, gone, behind or span.id, True))
        self._add(span, "queue", begin, now, behind)


def _joined(steps: list[Step]) -> list[Step]:
    """Put neighbours together that say the same."""
    out: list[Step] = []
    for step in steps:
        last = out[-1] if out else None
        if last is not None and last.end == step.begin:
            same = (last.span, last.phase, last.behind) == (step.span, step.phase, step.behind)
            if same:
                out[-1] = Step(
                    last.begin, step.end, step.span, step.phase, step.model, step.version, step.instance,
                    step.behind,
                )  # fmt: skip
                continue
        out.append(step)
    return out
