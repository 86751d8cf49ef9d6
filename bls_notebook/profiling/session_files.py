"""Save sessions to files and read them: JSON, and traces for viewers.

The end of the file name selects the format. A JSON file is one object: ``format``, the version of the
``schema``, and the fields of `SessionData`; fields that have their default value are left out.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bls_notebook.records.base import plain
from bls_notebook.records.errors import BLSError
from bls_notebook.records.record_file import read_json, told, write_file

from .records.spans import SCHEMA, SessionData
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
        f"session {told(file.name)!r}: {told(why)}; expected a file that session.save(...) wrote as .json or .json.gz"
    )


# The first ending that fits counts.
_WRITERS: dict[str, Callable[[SessionData], bytes]] = {
    ".trace.json": lambda session: chrome_trace(session).encode(),
    ".json": json_bytes,
    ".json.gz": lambda session: json_bytes(session, compressed=True),
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
