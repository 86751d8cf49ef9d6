"""A session in Chrome's trace format, for ui.perfetto.dev and chrome://tracing.

A trace viewer draws a slice inside the one before it on the same thread, so the slices of a thread either nest or do
not touch. An instance may serve several requests at once and a queue holds many, so they get several threads of the
same name.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bls_notebook.profiling.intervals import Interval, Rows
from bls_notebook.records import plain

from .analysis.span_tree import SpanTree, lock_waits
from .records.spans import SessionData, Span

_Place = dict[str, int]
"""The process and thread of an event."""


def chrome_trace(session: SessionData) -> str:
    """Return a session as JSON in Chrome's trace format; a process is a model, a thread an instance or a queue.

    Times are microseconds since the session began, as the format requires.
    """
    tree, threads = SpanTree.of(session), _Threads()
    places = {0: threads.place("notebook", "notebook", 0, session.wall)}  # of executions; 0 is the notebook
    turns, waits = ({w.span: w.pieces for w in lock_waits(session) if w.queued is queued} for queued in (False, True))
    events: list[dict[str, Any]] = []
    executions = [members for members in tree.members.values() if members[0].ran]
    for members in sorted(executions, key=lambda members: members[0].started):
        first, end = members[0], max(s.ended for s in members)
        place = places[first.id] = threads.place(_model(first), first.instance, first.started, end)
        events += _execution(members, end, turns.get(first.id, ()), place)
    for span in sorted(session.spans, key=lambda span: span.sent):
        if span.queue or not span.ran or tree.execution(span.id) != span.id:  # else it ran at once
            end = span.started if span.ran else span.ended
            place = threads.place(_model(span), f"queue of {_model(span)}", span.sent, end)
            places.setdefault(span.id, place)
            events += _wait(span, end, waits.get(span.id, ()), place)
        sender = tree.execution(span.parent)
        place = places.get(sender, places[0]) if not sender or tree.members[sender][0].ran else places[0]
        events.append(_point(span.sent, f"call {_model(span)}", "call", span.id, place))
        events.append(_arrow("s", span.id, span.sent, place))
    for span in session.spans:
        here = places.get(tree.execution(span.id), places[0])
        events += (_point(mark.ns, mark.kind, mark.kind, span.id, here) for mark in span.marks)
    for named in session.marks:
        here = places.get(tree.execution(named.span), places[0])
        events.append(_point(named.ns, named.name, "mark", named.span, here))
    about = {"name": session.name, "began": session.began, "dropped": session.dropped}
    whole = {"traceEvents": [*threads.names, *events], "displayTimeUnit": "ns", "otherData": about}
    return json.dumps(whole, separators=(",", ":"))


class _Threads:
    """The threads of a trace: an instance or a queue has as many as it serves requests at once."""

    def __init__(self) -> None:
        self.names: list[dict[str, Any]] = []  # the events that name processes and threads
        self._processes: dict[str, int] = {}
        self._rows: defaultdict[tuple[str, str], Rows] = defaultdict(Rows)
        self._threads: dict[tuple[str, str, int], int] = {}

    def place(self, process: str, thread: str, begin: int, end: int) -> _Place:
        """Return a thread of this name that is free from `begin` to `end`; call it in the order of `begin`."""
        if process not in self._processes:
            self._processes[process] = pid = len(self._processes) + 1
            self.names.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": process}})
        key = process, thread, self._rows[process, thread].take(begin, end)
        is_new = key not in self._threads
        here = {"pid": self._processes[process], "tid": self._threads.setdefault(key, len(self._threads) + 1)}
        if is_new:
            self.names.append({"ph": "M", "name": "thread_name", "args": {"name": thread}, **here})
        return here


def _model(span: Span) -> str:
    return span.model if span.version == 1 else f"{span.model}/{span.version}"


def _execution(members: list[Span], end: int, turns: Sequence[Interval], place: _Place) -> Iterator[dict[str, Any]]:
    """Yield one `execute`: the whole, its phases, and its turns with the GIL."""
    first, inferred = members[0], max(s.inferred for s in members)
    name = first.model if len(members) == 1 else f"{first.model} (batch of {len(members)})"
    yield _slice(first.started, end, name, "execute", place, _facts(members))
    yield from (_arrow("f", member.id, first.started, place) for member in members)
    if first.started < inferred < end:
        yield _slice(first.started, inferred, "compute_infer", "compute_infer", place)
        yield _slice(inferred, end, "compute_output", "compute_output", place)
    for begin, last in turns:
        if begin < min(last, inferred):
            yield _slice(begin, min(last, inferred), "turns with the GIL", "lock", place)


def _wait(span: Span, end: int, lock: Sequence[Interval], place: _Place) -> Iterator[dict[str, Any]]:
    """Yield the time before `execute`: passing inputs, then waiting."""
    yield _slice(span.sent, end, _model(span), "request" if span.ran else span.state, place, _facts([span]))
    if not span.ran:
        yield _arrow("f", span.id, span.sent, place)
    if span.sent < span.queued <= end:
        yield _slice(span.sent, span.queued, "compute_input", "compute_input", place)
    if span.queued < span.started:
        yield _slice(span.queued, span.started, "queue", "queue", place)
    yield from (_slice(*piece, "waits for the GIL", "lock", place) for piece in lock)


def _slice(
    begin: int, end: int, name: str, kind: str, place: _Place, facts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {"ph": "X", "ts": begin / 1e3, "dur": (end - begin) / 1e3, "args": facts or {}, "name": name, "cat": kind,
            **place}  # fmt: skip


def _point(at: int, name: str, kind: str, span: int, place: _Place) -> dict[str, Any]:
    args = {"request": span} if span else {}
    return {"ph": "i", "s": "t", "ts": at / 1e3, "args": args, "name": name, "cat": kind, **place}


def _arrow(end: str, span: int, at: int, place: _Place) -> dict[str, Any]:
    """Return an end of a request's arrow: ``s`` where it was sent, ``f`` where it arrived."""
    bound = {"bp": "e"} if end == "f" else {}
    return {"ph": end, **bound, "ts": at / 1e3, "name": "request", "cat": "request", "id": span, **place}


# Fields of spans that slices show by their place and name.
_DRAWN = ("id", "model", "instance", "sent", "queued", "started", "inferred", "ended", "released", "marks")
_NONE = ("", 0, -1, False)


def _facts(spans: Sequence[Span]) -> dict[str, Any]:
    """Return the facts that viewers show about a slice besides its name and times; sizes of a batch are summed."""
    facts = {name: value for name, value in plain(spans[0]).items() if name not in _DRAWN and value not in _NONE}
    sums = {name: sum(getattr(span, name) for span in spans) for name in ("rows", "bytes_in", "bytes_out")}
    request = spans[0].id if len(spans) == 1 else ", ".join(str(span.id) for span in spans)
    return {"request": request, "parent": spans[0].parent, **facts, **sums}
