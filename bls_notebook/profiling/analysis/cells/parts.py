"""Parts of a session: what some requests of the notebook led to; and what their time was spent on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from bls_notebook.profiling.analysis.critical_path import critical_path
from bls_notebook.profiling.records.spans import SessionData, Span


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
