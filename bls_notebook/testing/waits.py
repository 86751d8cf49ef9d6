"""The waits of a model for its callees, one after the other: the claim ``waits <= 2 of page``. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Span


def chain_of(session: Session, span: Span, until_first: bool = False) -> list[Span]:
    """Return the calls that a request waited for in turn, the first call first.

    It is found backwards: the call answered last, then the call answered last before that one was sent, and so on.
    `until_first`: only the calls before the request's first response.
    """
    tree = SpanTree.of(session)
    now = next((mark.ns for mark in span.marks if mark.kind == "response"), span.ended) if until_first else span.ended
    chain: list[Span] = []
    for call in sorted(tree.children.get(tree.execution(span.id), ()), key=lambda call: -call.ended):
        if call.ended <= now:
            chain.insert(0, call)
            now = call.sent
    return chain


def longest_chain(session: Session, model: str = "", until_first: bool = False) -> list[Span]:
    """Return the longest chain of a request to `model`, by default of any request of the notebook."""
    spans = [span for span in session.spans if (span.model == model if model else not span.parent)]
    return max((chain_of(session, span, until_first) for span in spans), key=len, default=[])


def why_waits(chain: Sequence[Span], most: int, until_first: bool) -> str:
    """Return a hint for a chain of more than `most` calls."""
    if until_first:
        return (
            f"The first response came after {len(chain)} calls in turn: send each response as soon as it is known, "
            "before the next call."
        )
    how = "Each `await` waits for its response before the next call is sent"
    if chain[-1].kind == "sync":
        how = "`exec` blocks until its response arrives, so the next call is sent after it"
    not_needed = "1 of these waits is" if len(chain) - most == 1 else f"{len(chain) - most} of these waits are"
    return f"{how}. {not_needed} not needed: send calls that need no response of each other together."
