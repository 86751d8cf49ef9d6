"""Sessions as files: JSON that can be read again, traces for Perfetto and Chrome, CSV for tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bls_notebook.profiling.records.spans import SessionData
from bls_notebook.records.exceptions import BLSError
from bls_notebook.records.record_file import write_file

from .chrome import chrome_trace
from .perfetto import perfetto_trace
from .session_json import json_bytes
from .span_table import csv_text

__all__ = ["chrome_trace", "csv_text", "perfetto_trace", "save_session"]

# The first ending that fits counts.
_WRITERS: dict[str, Callable[[SessionData], bytes]] = {
    ".trace.json": lambda session: chrome_trace(session).encode(),
    ".json": json_bytes,
    ".json.gz": lambda session: json_bytes(session, compressed=True),
    ".pftrace": perfetto_trace,
    ".perfetto-trace": perfetto_trace,
    ".csv": lambda session: csv_text(session).encode(),
}


def save_session(session: SessionData, path: str | Path) -> Path:
    """Write a session to a file, in the form that the end of its name stands for.

    Raises BLSError: the name ends with none of them, the file cannot be written, or the package `perfetto` is
    not there.
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
