"""What the notebook does meanwhile: it waits for requests that it has sent, or does work of its own."""

from __future__ import annotations

from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.session import Session
from bls_notebook.records.intervals import Interval, gaps, union


def notebook_time(session: Session, tree: SpanTree) -> tuple[list[Interval], list[Interval]]:
    """Return when the notebook did its own work, and when it had requests under way; each in order.

    What it does beside requests that it awaits is not known: that counts as waiting.
    """
    sent = tree.in_flight(0)
    return gaps(0, session.wall, sent), union(sent)
