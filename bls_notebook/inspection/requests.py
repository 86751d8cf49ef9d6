"""What a profile and a memory track know of a request: found by when it was sent, and to whom."""

from __future__ import annotations

from bls_notebook.engine.recording.kept import on_at, profiles, tracks
from bls_notebook.lifetimes.records import Life
from bls_notebook.profiling.records.spans import Span
from bls_notebook.repository.requests.response import Response

from .records import RequestSeen

SPANS, LIVES = 200, 100  # that are shown


def request_seen(response: Response) -> RequestSeen | None:
    """Return what was recorded of the request that a response answers; None where its time is not known."""
    if not response._sent or response.seconds is None:
        return None
    sent = int(response._sent * 1e9)
    ended = sent + int(response.seconds * 1e9)
    profile, track = on_at(profiles, sent), on_at(tracks, sent)
    spans: tuple[Span, ...] = ()
    if profile is not None:
        spans = _tree(profile.record.spans, _root(profile.record.spans, response, sent - profile._start))
    lives: tuple[Life, ...] = ()
    begun = over = 0
    if track is not None:
        begun, over = sent - track._start, ended - track._start
        lives = tuple(life for life in track.record.lives if _within(life, begun, over))[:LIVES]
    return RequestSeen(
        _name(profile, "a profile") if spans else "",
        spans,
        _name(track, "a memory track") if track is not None else "",
        lives,
        begun,
        over,
    )


def _name(recorded: object, otherwise: str) -> str:
    return str(getattr(recorded, "name", "")) or otherwise


def _root(spans: tuple[Span, ...], response: Response, sent: int) -> Span | None:
    """The span that was sent first after the request was made, of those that it can be."""
    fit = [
        span
        for span in spans
        if span.model == response.model
        and span.request_id == response.request_id
        and span.sent >= sent
        and not (span.parent and span.kind == "ensemble")
    ]
    return min(fit, key=lambda span: span.sent, default=None)


def _tree(spans: tuple[Span, ...], root: Span | None) -> tuple[Span, ...]:
    """A span and all that it led to, callers before what they called."""
    if root is None:
        return ()
    children: dict[int, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)
    found: list[Span] = []
    todo = [root]
    while todo and len(found) < SPANS:
        span = todo.pop()
        found.append(span)
        todo += reversed(children.get(span.id, []))
    return tuple(found)


def _within(life: Life, begun: int, ended: int) -> bool:
    return begun <= life.born <= ended or any(begun <= stay.ns <= ended for stay in life.stays)
