"""The spans of a session as CSV, a row each, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections import Counter

from bls_notebook.profiling.analysis.cells.lock_waits import lock_waits
from bls_notebook.profiling.records.spans import SessionData, Span
from bls_notebook.records.intervals import total
from bls_notebook.records.visible import encodable

# Times are ns since the session began; the phases are lengths, ns, and `lock_ns` is how long it waited for
# Python's lock, or took turns with it.
COLUMNS = (
    "id", "parent", "model", "version", "instance", "device", "kind", "state", "batch", "rows", "request_id",
    "thread", "sent", "queued", "started", "inferred", "ended", "released", "compute_input", "queue",
    "compute_infer", "compute_output", "duration", "device_ns", "bytes_in", "bytes_out", "crossings",
    "cached", "responses", "source", "line", "lock_ns", "error",
)  # fmt: skip
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r")


def csv_text(session: SessionData) -> str:
    """Return the spans as CSV with a heading; lines end as RFC 4180 has them.

    A text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    lock: Counter[int] = Counter()
    for wait in lock_waits(session):
        lock[wait.span] += total(wait.pieces)
    for span in session.spans:
        writer.writerow(lock[span.id] if name == "lock_ns" else _cell(span, name) for name in COLUMNS)
    return encodable(out.getvalue())


def _cell(span: Span, name: str) -> str | int:
    value = getattr(span, name)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.startswith(_DANGEROUS):
        return f"'{value}"
    return value if isinstance(value, int) else str(value)
