"""Makes a session of what was recorded: spans whose times are in order and within the session."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.observe import recording as at
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
    raws = sorted((r for r in rows if isinstance(r, list)), key=lambda r: (r[at.SENT], r[at.NUMBER]))
    inside = {id(raw) for raw in raws}
    marks: dict[int, list[Mark]] = {}
    for row in rows:
        if isinstance(row, tuple) and id(row[0]) in inside and row[1] <= end:
            marks.setdefault(id(row[0]), []).append(Mark(max(0, row[1] - start), row[2]))
    batches: dict[int, int] = {}
    spans = tuple(_span(raw, start, end, inside, marks.get(id(raw), []), batches) for raw in raws)
    models: dict[ModelSeen, None] = dict.fromkeys(raw[at.SEEN] for raw in raws if raw[at.SEEN].version)
    return Session(spans, tuple(models), max(0, end - start), began, name, dropped)


def _span(
    raw: RawSpan, start: int, end: int, inside: set[int], marks: list[Mark], batches: dict[int, int]
) -> Span:
    end = max(start, end)
    is_open = not raw[at.ENDED] or raw[at.ENDED] > end
    last = end if is_open else max(start, raw[at.ENDED])
    # What has not happened is as late as what would have followed; clocks never run backwards here.
    begun = raw[at.STARTED]
    ran = bool(begun) and begun <= end and bool(raw[at.PLACE][0])
    begun = begun or last
    now = start
    times = []
    for time in (raw[at.SENT], raw[at.QUEUED] or begun, begun, raw[at.INFERRED] or last):
        now = min(max(now, time), last)
        times.append(now - start)
    sent, queued, started, inferred = times
    released = min(raw[at.RELEASED] or end, end) - start
    seen, parent, batch, timer = raw[at.SEEN], raw[at.PARENT], raw[at.BATCH], raw[at.DEVICE_TIME]
    name, device = raw[at.PLACE] if ran else at.NOWHERE
    return Span(
        id=raw[at.NUMBER],
        model=seen.name,
        version=seen.version,
        parent=parent[at.NUMBER] if parent is not None and id(parent) in inside else 0,
        instance=name,
        device=device,
        kind=raw[at.KIND],
        batch=0 if batch is None else batches.setdefault(id(batch), len(batches) + 1),
        sent=sent,
        queued=queued,
        started=started,
        inferred=inferred,
        ended=last - start,
        state="open" if is_open else raw[at.STATE],
        error="" if is_open else raw[at.ERROR],
        request_id=raw[at.REQUEST_ID],
        rows=raw[at.ROWS],
        thread=raw[at.THREAD],
        bytes_in=raw[at.BYTES_IN],
        bytes_out=raw[at.BYTES_OUT],
        crossings=raw[at.CROSSINGS],
        device_ns=-1 if timer is None else timer.ns(),
        marks=tuple(sorted(marks, key=_when)),
        released=max(started, released) if ran else 0,
        cached=raw[at.CACHED],
        responses=raw[at.RESPONSES],
    )


def _when(mark: Mark) -> int:
    return mark.ns
