"""The figures of a part of a session's time; ``widgets/timeline_words.js`` works them out in the browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from bls_notebook.observe.analysis.intervals import Interval, total
from bls_notebook.observe.analysis.span_tree import SpanTree, serving
from bls_notebook.observe.records.session import Session
from bls_notebook.observe.visible import visible

__all__ = ["range_figures", "titles"]


def range_figures(session: Session, begin: float, end: float) -> dict[str, Any]:
    """Return what happened between two moments.

    Parameters
    ----------
    session : Session
    begin, end : float
        Nanoseconds since the session began.

    Returns
    -------
    dict
        ``requests`` and ``failed`` count the requests that were under way; ``queued`` sums their waits for an
        instance within the range, ``work`` the work on them, both in ns (``work / (end - begin)`` is how many
        were worked on at once, on average). ``models`` has the same for each model by its name, ``busy``
        summing over its instances instead of ``work``.
    """
    tree = SpanTree(session)

    def within(pieces: list[Interval]) -> int:
        return total((max(a, int(begin)), min(b, int(end))) for a, b in pieces if a < end and b > begin)

    models: dict[str, dict[str, Any]] = {}
    title = titles(session)
    for span in session.spans:
        if span.sent > end or span.ended < begin:
            continue
        name = visible(title(span))
        model = models.setdefault(name, {"model": name, "requests": 0, "failed": 0, "busy": 0, "queued": 0})
        model["requests"] += 1
        model["failed"] += span.state == "error"
        model["queued"] += within([(span.queued, span.started)])
        if tree.execution(span.id) == span.id:
            model["busy"] += within([serving(span)])
    figures = list(models.values())
    return {
        "requests": sum(model["requests"] for model in figures),
        "failed": sum(model["failed"] for model in figures),
        "queued": sum(model["queued"] for model in figures),
        "work": within(tree.working()),
        "models": figures,
    }


def titles(session: Session) -> Callable[[Any], str]:
    """Return what names the model of a span or lane: by its version too where the session has several."""
    served = {(span.model, span.version) for span in session.spans}
    several = {name for name, count in Counter(name for name, _ in served).items() if count > 1}

    def title(of: Any) -> str:
        return f"{of.model} v{of.version}" if of.model in several else str(of.model)

    return title
