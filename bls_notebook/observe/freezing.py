"""Makes a session of what was recorded: spans whose times are in order and within the session."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.observe.recording import RawMark, RawSpan
from bls_notebook.observe.session import Mark, ModelSeen, Session, Span

__all__ = ["session_of"]


def session_of(
    rows: Sequence[RawSpan | RawMark], start: int, end: int, began: str = "", name: str = "", dropped: int = 0
) -> Session:
    """Return the session of what was recorded between two readings of the clock.

    Parameters
    ----------
    rows : sequence of RawSpan and RawMark
        The spans have their numbers; in any order.
    start, end : int
        Of the session. What happened after `end` is as if it had not happened yet.
    began, name, dropped
        As in `Session`.
    """
    raws = sorted((r for r in rows if isinstance(r, RawSpan)), key=lambda r: (r.sent, r.number))
    inside = set(raws)
    marks: dict[RawSpan, list[Mark]] = {}
    for row in rows:
        if isinstance(row, tuple) and row[0] in inside and row[1] <= end:
            marks.setdefault(row[0], []).append(Mark(max(0, row[1] - start), row[2]))
    batches: dict[int, int] = {}
    spans = tuple(_span(raw, start, end, inside, marks.get(raw, []), batches) for raw in raws)
    models: dict[ModelSeen, None] = dict.fromkeys(r.seen for r in raws if r.seen.version)
    return Session(spans, tuple(models), max(0, end - start), began, name, dropped)


def _span(
    raw: RawSpan, start: int, end: int, inside: set[RawSpan], marks: list[Mark], batches: dict[int, int]
) -> Span:
    ended = getattr(raw, "ended", 0)
    is_open = not ended or ended > end
    last = end if is_open else ended
    state = "open" if is_open else getattr(raw, "state", "ok")
    # What has not happened is as late as what would have followed; clocks never run backwards here.
    begun = getattr(raw, "started", 0) or last
    ran = begun <= end and hasattr(raw, "instance")
    times = [
        raw.sent,
        getattr(raw, "queued", 0) or begun,
        begun,
        getattr(raw, "inferred", 0) or last,
    ]
    at = start
    ordered = []
    for time in times:
        at = min(max(at, time), max(last, start))
        ordered.append(at - start)
    last = max(last, start) - start
    released = getattr(raw, "released", 0)
    batch = getattr(raw, "batch", None)
    error = "" if is_open else getattr(raw, "error", "")
    timer = getattr(raw, "device_time", None)
    parent = raw.parent
    return Span(
        id=raw.number,
        model=raw.seen.name,
        version=raw.seen.version,
        parent=parent.number if parent is not None and parent in inside else 0,
        instance=raw.instance if ran else "",
        device=raw.device if ran else "cpu",
        kind=raw.kind,
        batch=0 if batch is None else batches.setdefault(id(batch), len(batches) + 1),
        sent=ordered[0],
        queued=ordered[1],
        started=ordered[2],
        inferred=ordered[3],
        ended=last,
        state=state,
        error=error,
        request_id=getattr(raw, "request_id", ""),
        rows=getattr(raw, "rows", 1),
        thread=getattr(raw, "thread", 0),
        bytes_in=getattr(raw, "bytes_in", 0),
        bytes_out=getattr(raw, "bytes_out", 0),
        crossings=getattr(raw, "crossings", 0),
        device_ns=-1 if timer is None else timer.ns(),
        marks=tuple(sorted(marks, key=lambda m: m.ns)),
        released=max(ordered[2], min(released or end, end) - start) if ran else 0,
        cached=getattr(raw, "cached", False),
        responses=getattr(raw, "responses", 0),
    )
