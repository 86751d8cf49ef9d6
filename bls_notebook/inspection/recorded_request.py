"""Find a request in the profile and the memory recording that were on when it was sent."""

from __future__ import annotations

from bls_notebook.engine.recording.log import on_at, profiles, tracks
from bls_notebook.lifetimes.records import Life
from bls_notebook.profiling.records.spans import Span
from bls_notebook.repository.requests.response import Response

from .records import RequestSeen

SPANS, LIVES = 200, 100  # limits


def request_seen(response: Response) -> RequestSeen | None:
    """Return the recorded part of a response's request; None if its time is unknown."""
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
    """Return the first matching span that was sent after the request was made."""
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
    """Return a span and its descendants, callers before callees."""
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
