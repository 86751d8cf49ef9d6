"""Requests of a cell, grouped by model and size, with what most of their time was spent on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from bls_notebook.profiling.records.spans import SessionData, Span
from bls_notebook.records.base import Record
from bls_notebook.records.intervals import total, union
from bls_notebook.records.measurements import NONE, Quartiles, quartiles

from .critical_path import critical_path
from .gil_waits import lock_waits


def of_roots(session: SessionData, roots: Collection[int]) -> SessionData:
    """Return what is recorded of some requests of the notebook (by their ids) and of what they led to."""
    known = set(roots)
    kept: list[Span] = []
    for span in session.spans:  # in the order of sending: who sends comes first
        if span.id in known or span.parent in known:
            known.add(span.id)
            kept.append(span)
    return replace(session, spans=tuple(kept), ghosts=tuple(g for g in session.ghosts if g.span in known))


class Share(NamedTuple):
    """So much of the critical path (ns) was a model's own work, or a wait for it (``queued``)."""

    ns: int
    model: str
    queued: bool


def shares(session: SessionData) -> list[Share]:
    """Return what the answers were waited for, the most first; what is the notebook's is left out."""
    spent: Counter[tuple[str, bool]] = Counter()
    for step in critical_path(session):
        if step.span:
            # Behind another one in the queue: the path is the other's work then.
            spent[step.model, step.phase == "queue" or step.behind > 0] += step.end - step.begin
    return [Share(ns, model, queued) for (model, queued), ns in spent.most_common()]


_SIZES = 4  # sizes of a model's requests that are told apart: of more, they are one kind
_LOCKED = 0.3  # of the time at work: it took turns with the lock


@dataclass(frozen=True, slots=True, repr=False)
class RequestKind(Record):
    """The requests of the notebook to one model, of one size: ``bytes_in``, -1 for any.

    ``took`` are the quartiles of their times, ``under_way`` the time with one of them at least, and
    ``queued`` the sum of the waits in queues, their calls' included (ns). ``waited`` says what their answers
    were waited for: the `cause` of it (queue, gil, cached, failed or work), the ``model``, and which part
    (0 to 1) of the time.
    """

    model: str
    version: int = 1
    bytes_in: int = -1
    requests: int = 0
    took: Quartiles = NONE
    under_way: int = 0
    queued: int = 0
    cause: str = ""
    of: str = ""
    part: float = 0.0


def request_kinds(session: SessionData) -> tuple[RequestKind, ...]:
    """Return the kinds of requests that the notebook sent, those that took most of the time first."""
    models: dict[tuple[str, int], dict[int, list[Span]]] = {}
    for span in session.spans:
        if not span.parent:
            sizes = models.setdefault((span.model, span.version), {})
            sizes.setdefault(span.bytes_in, []).append(span)
    found = []
    for (model, version), sizes in models.items():
        if not 1 < len(sizes) <= _SIZES:
            sizes = {-1: [span for spans in sizes.values() for span in spans]}
        for size, spans in sizes.items():
            found.append(_kind(session, model, version, size, spans))
    return tuple(sorted(found, key=lambda kind: -kind.took.total))


def _kind(session: SessionData, model: str, version: int, size: int, spans: list[Span]) -> RequestKind:
    part = of_roots(session, {span.id for span in spans})
    cause, of, share = _waited_for(part, spans)
    return RequestKind(
        model,
        version,
        size,
        len(spans),
        quartiles(span.duration for span in spans),
        total(union((span.sent, span.ended) for span in spans)),
        sum(span.queue for span in part.spans if span.ran),
        cause,
        of,
        share,
    )


def _waited_for(part: SessionData, roots: list[Span]) -> tuple[str, str, float]:
    failed = sum(span.state in ("error", "cancelled") for span in roots)
    cached = sum(span.cached for span in roots)
    if failed:
        return "failed", roots[0].model, failed / len(roots)
    if 2 * cached > len(roots):
        return "cached", roots[0].model, cached / len(roots)
    found = shares(part)
    if not found:
        return "", "", 0.0
    most = found[0]
    share = most.ns / max(1, sum(each.ns for each in found))
    if most.queued:
        return "queue", most.model, share
    its = {span.id for span in part.spans if span.model == most.model}
    turns = union(p for wait in lock_waits(part) if not wait.queued and wait.span in its for p in wait.pieces)
    if total(turns) > _LOCKED * most.ns:
        return "gil", most.model, share
    return "work", most.model, share
