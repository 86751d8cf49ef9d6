"""Sessions as JSON, to be read again: drawn and compared without the models.

A file is one object: ``format`` says what it is, ``schema`` is the version of the schema, the rest are the
fields of `Session`. Fields that have their default value are left out.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from bls_notebook.observe.errors import BLSError
from bls_notebook.observe.plain import Record
from bls_notebook.observe.record_file import read_json
from bls_notebook.observe.session import SCHEMA, Session

__all__ = ["FORMAT", "json_bytes", "load_session"]

FORMAT = "bls_notebook session"


def json_bytes(session: Session, compressed: bool = False) -> bytes:
    """Return a session as JSON text in UTF-8, gzipped if `compressed`."""
    data = {"format": FORMAT, "schema": SCHEMA, **_short(session)}
    # ASCII escapes: a model's name or error may hold half a surrogate pair, which has no UTF-8.
    text = json.dumps(data, separators=(",", ":")).encode()
    return gzip.compress(text, 6, mtime=0) if compressed else text


def _short(record: Record) -> dict[str, Any]:
    """A record as plain data, without the fields that have their default."""
    out: dict[str, Any] = {}
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if field.default is not MISSING and value == field.default:
            continue
        if isinstance(value, tuple):
            value = [_short(item) if isinstance(item, Record) else item for item in value]
        out[field.name] = value
    return out


def load_session(path: str | Path) -> Session:
    """Read a session that `Session.save` wrote as ``.json`` or ``.json.gz``.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Session

    Raises
    ------
    BLSError
        It cannot be read, is no session, or is one of a newer schema.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise _foreign(file, f"it cannot be read: {error.strerror}") from None
    try:
        found = read_json(data)
    except ValueError:
        raise _foreign(file, "it is no JSON") from None
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        hint = " (a Chrome trace; save the session as .json)" if _is_chrome(found) else ""
        raise _foreign(file, f"its format is not {FORMAT!r}{hint}")
    schema = found.get("schema")
    if type(schema) is not int or schema < 1:
        raise _foreign(file, f"its schema is {schema!r}, expected a number up to {SCHEMA}")
    if schema > SCHEMA:
        raise BLSError(
            f"session {file.name!r}: its schema is {schema}, this version reads up to {SCHEMA}; "
            "upgrade bls_notebook to load it"
        )
    try:
        return Session.from_dict(found)
    except ValueError as error:
        raise _foreign(file, str(error)) from None


def _foreign(file: Path, why: str) -> BLSError:
    return BLSError(
        f"session {file.name!r}: {why}; expected a file that session.save(...) wrote as .json or .json.gz"
    )


def _is_chrome(found: object) -> bool:
    return isinstance(found, dict) and "traceEvents" in found
