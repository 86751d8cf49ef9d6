"""Sequences in a recorded session, for the claim ``sequences == 3 of tracker``. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.pb_utils import TRITONSERVER_REQUEST_FLAG_SEQUENCE_END as END
from bls_notebook.pb_utils import TRITONSERVER_REQUEST_FLAG_SEQUENCE_START as START
from bls_notebook.profiling.records.spans import Span
from bls_notebook.records import count


def complete_sequences(spans: Sequence[Span]) -> tuple[int, str]:
    """Return the number of sequences with one START and an END, and a hint about the others; empty if there are none.

    Refused requests count: their sender has to change too.
    """
    running: dict[tuple[str, int | str], Span] = {}
    restarted = set()
    complete, hints = 0, []
    for span in sorted(spans, key=lambda span: span.sent):
        key = (span.model, span.correlation_id)
        if not span.correlation_id:
            hints.append("A request had no correlation ID, so it belongs to no sequence: pass `correlation_id=`.")
        elif span.flags & START and key in running:
            hints.append(_restarted(running[key], span))
            restarted.add(key)
        elif span.flags & START:
            running[key] = span
        elif key not in running:
            hints.append(f"The first request of sequence {span.correlation_id} had no START flag.")
        if span.flags & END and running.pop(key, None) is not None:
            complete += key not in restarted
            restarted.discard(key)
    if running and not hints:
        hints.append(
            f"{count(len(running), 'sequence').capitalize()} had no END: each keeps its slot, and the model its state, "
            "until the sequence has been idle for too long."
        )
    return complete, next(iter(hints), "")


def _restarted(earlier: Span, later: Span) -> str:
    """Return the hint for a START in a running sequence."""
    name = f"sequence {later.correlation_id}"
    if earlier.parent != later.parent:
        return f"Several callers use {name} at the same time: give each sequence a unique correlation ID."
    return f"A START in the running {name} began it again: send START with its first request only."
