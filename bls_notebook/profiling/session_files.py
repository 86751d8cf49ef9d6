"""Save sessions to files and read them: JSON, traces for viewers, and CSV with a row a span.

The end of the file name selects the format. A JSON file is one object: ``format``, the version of the
``schema``, and the fields of `SessionData`; fields that have their default value are left out.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bls_notebook.records.exceptions import BLSError
from bls_notebook.records.intervals import total
from bls_notebook.records.plain import plain
from bls_notebook.records.record_file import read_json, told, write_file
from bls_notebook.records.visible import encodable

from .analysis.gil_waits import lock_waits
from .records.spans import SCHEMA, SessionData, Span
from .trace_export import chrome_trace

FORMAT = "bls_notebook session"
_Session = TypeVar("_Session", bound=SessionData)


def json_bytes(session: SessionData, compressed: bool = False) -> bytes:
    """Return a session as JSON text in UTF-8, gzipped if `compressed`."""
    data = {"format": FORMAT, "schema": SCHEMA, **plain(session, defaults=False)}
    # ASCII escapes: a model's name or error may hold half a surrogate pair, which has no UTF-8.
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:
        raise BLSError(f"session: cannot be saved: {error}") from None
    return gzip.compress(text, 6, mtime=0) if compressed else text


def read_session(path: str | Path, kind: type[_Session]) -> _Session:
    """Read a session from a file; see `bls.load`."""
    if not isinstance(path, (str, os.PathLike)):
        raise BLSError(f"load: expected the path of a file, got {type(path).__name__}")
    file = Path(path)
    try:
        found = read_json(file)
    except OSError as error:
        raise _foreign(file, f"it cannot be read: {error}") from None
    except ValueError as error:
        raise _foreign(file, str(error)) from None
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        is_chrome = isinstance(found, dict) and "traceEvents" in found
        hint = " (a Chrome trace; save the session as .json)" if is_chrome else ""
        raise _foreign(file, f"its format is not {FORMAT!r}{hint}")
    schema = found.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise BLSError(
            f"session {told(file.name)!r}: its schema is {told(repr(schema))}, expected {SCHEMA}: read it "
            "with the version of bls_notebook that wrote it"
        )
    try:
        return kind.from_dict(found)
    except ValueError as error:
        raise _foreign(file, str(error)) from None


def _foreign(file: Path, why: str) -> BLSError:
    return BLSError(
        f"session {told(file.name)!r}: {told(why)}; expected a file that session.save(...) wrote as .json or "
        ".json.gz"
    )


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


# The first ending that fits counts.
_WRITERS: dict[str, Callable[[SessionData], bytes]] = {
    ".trace.json": lambda session: chrome_trace(session).encode(),
    ".json": json_bytes,
    ".json.gz": lambda session: json_bytes(session, compressed=True),
    ".csv": lambda session: csv_text(session).encode(),
}


def save_session(session: SessionData, path: str | Path) -> Path:
    """Write a session to a file, in the form that the end of its name stands for.

    Raises BLSError: the name ends with none of them, or the file cannot be written.
    """
    file = Path(path)
    for ending, write in _WRITERS.items():
        if file.name.endswith(ending) and file.name != ending:
            data = write(session)  # before the file is opened: what fails leaves a file as it was
            return write_file(file, data, "session")
    raise BLSError(
        f"session: cannot save to {file.name!r}: the name must end with {', '.join(_WRITERS)}; "
        "use .json to load it again"
    )
