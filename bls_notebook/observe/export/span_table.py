"""The spans of a session as CSV, a row each, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io

from bls_notebook.observe.records.profiles.spans import SessionData, Span
from bls_notebook.observe.visible import encodable

# Times are ns since the session began; the phases are lengths, ns.
COLUMNS = (
    "id", "parent", "model", "version", "instance", "device", "kind", "state", "batch", "rows", "request_id",
    "thread", "sent", "queued", "started", "inferred", "ended", "released", "compute_input", "queue",
    "compute_infer", "compute_output", "duration", "device_ns", "bytes_in", "bytes_out", "crossings",
    "cached", "responses", "source", "line", "error",
)  # fmt: skip
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r")


def csv_text(session: SessionData) -> str:
    """Return the spans as CSV with a heading; lines end as RFC 4180 has them.

    A text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    writer.writerows([_cell(span, name) for name in COLUMNS] for span in session.spans)
    return encodable(out.getvalue())


def _cell(span: Span, name: str) -> str | int:
    value = getattr(span, name)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.startswith(_DANGEROUS):
        return f"'{value}"
    return value if isinstance(value, int) else str(value)
