"""Files of records: one JSON object with its kind and schema, gzipped or not.

Guarantees: reading any path returns a record or raises a `FileError` of one line, whatever the file contains. A gzipped
file is not unpacked beyond the size that a record can have.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from bls_notebook.capabilities import registry

from .base import Record, plain
from .errors import FileError
from .regular_file import open_regular_file
from .visible_text import visible

RATIO = 64  # largest ratio of unpacked to packed size; a profile's is 8, a memory recording's 20
ALWAYS = 1 << 25  # unpacked bytes that are allowed at any ratio
MOST = 1 << 31  # bytes of a file, unpacked
_GZIP = b"\x1f\x8b"
_Record = TypeVar("_Record", bound=Record)


def json_of(data: bytes) -> Any:
    """Parse JSON text; raise OSError or ValueError with the reason."""
    try:
        return json.loads(data, parse_constant=_no_number, parse_float=_number)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    except RecursionError:
        raise ValueError("it is not JSON (nested too deeply)") from None
    except MemoryError:
        raise OSError("there is not enough memory to read it") from None


def read_bytes(path: str | Path, is_whole: bool = True, first: int = 0) -> bytes:
    """Return a file's bytes, unpacked, or the `first` ones; if not `is_whole`, the start if the file was truncated."""
    try:
        with open_regular_file(path) as file:
            packed = file.peek(2)[:2] == _GZIP
            most = first or min(MOST, max(ALWAYS, RATIO * os.fstat(file.fileno()).st_size) if packed else MOST)
            unpacked: Any = gzip.GzipFile(fileobj=file) if packed else file
            data = bytearray()
            with contextlib.suppress(*() if is_whole else (EOFError,)):
                while len(data) <= most and (piece := unpacked.read1(min(most, 1 << 20))):
                    data += piece
        if len(data) > most and not first:
            verb = "unpacks to" if packed else "has"
            raise OSError(f"it {verb} more than {most:,} bytes, the limit of a record")
        return bytes(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    except MemoryError:
        raise OSError("there is not enough memory to read it") from None
    except OSError as error:
        raise OSError(error.strerror or str(error)) from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"it is not JSON ({text} is not a JSON number)")


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it is not JSON (a number of {len(text)} digits is out of range)")
    return number


def write_file(path: Path, data: bytes, what: str) -> Path:
    try:
        path.write_bytes(data)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"{what}: cannot save to {told(path.name)!r}: {why}") from error
    return path


def ending_of(path: Path, endings: Iterable[str], content: str, hint: str) -> str:
    """Return the first of `endings` that a file's name has, or raise a FileError; `content` is what would be saved."""
    allowed = list(endings)
    for ending in allowed:
        if path.name.endswith(ending) and path.name != ending:
            return ending
    raise FileError(
        f"{content}: cannot save to {told(path.name)!r}: the name must end with {', '.join(allowed)}; {hint}"
    )


def told(text: object) -> str:
    """Return text from a file, or its name, as one short visible line for a message."""
    shown = visible(str(text))
    return shown if len(shown) <= 300 else f"{shown[:300]}…"


@dataclass(frozen=True)
class RecordFile(Generic[_Record]):
    """The files of one type of record; messages call a file `a_file` and its content `content`."""

    record: type[_Record]
    kind: str
    schema: int
    a_file: str
    content: str

    def save(self, record: _Record, path: str | Path) -> Path:
        """Write a record without fields that have their default; compressed if the file's name ends with ``.gz``."""
        target = Path(path)
        ending_of(target, (".json", ".json.gz"), self.content, "bls.open_file reads it")
        try:
            fields = {"schema": self.schema, **plain(record, defaults=False)}
            text = json.dumps({"kind": self.kind, **fields}, separators=(",", ":"), allow_nan=False)
        except ValueError as error:
            raise FileError(f"{self.content}: cannot save to {told(target.name)!r}: {error}") from None
        data = text.encode()
        return write_file(target, gzip.compress(data, 6, mtime=0) if target.suffix == ".gz" else data, self.content)

    def load(self, path: str | Path) -> _Record:
        """Read a saved record, or raise a `FileError` with the reason."""
        if not isinstance(path, (str, os.PathLike)):
            raise FileError(f"expected the path of a file, got {type(path).__name__}")
        name = told(Path(path).name)
        foreign = f"{name}: not {self.a_file}"
        try:
            content: Any = json_of(read_bytes(path))
        except OSError as error:
            raise FileError(f"{name}: {self.a_file} cannot be read from it: {told(error)}") from None
        except ValueError as error:
            raise FileError(f"{foreign}: {told(error)}") from None
        kind = content.pop("kind", None) if isinstance(content, dict) else None
        if kind != self.kind:
            got = f"its kind is {told(repr(kind))}" if kind is not None else "it has no kind"
            raise FileError(f"{foreign}: {got}, expected {self.kind!r}")
        schema = content.get("schema")
        if type(schema) is not int or schema != self.schema:
            raise FileError(
                f"{name}: {self.content} of schema {told(repr(schema))}, expected {self.schema}: "
                "read it with the version of bls_notebook that wrote it"
            )
        try:
            return self.record.from_dict(content)
        except ValueError as error:
            raise FileError(f"{foreign}: {told(error)}") from None


_BEGINNING = 1 << 16  # bytes
_KIND = re.compile(rb'\s*\{\s*"kind"\s*:\s*"([\w .]+)"')


def open_file(path: str | Path, **options: Any) -> Any:
    """Read a saved file: a session, a comparison, lifetimes, a recording, or a server's trace.

    Parameters
    ----------
    path : str or Path
        A file that a `save` method or `bls.record` wrote, or a trace that tritonserver wrote (also several
        files, ``trace.json.0`` and so on).
    **options
        For a server's trace: `limit`, how many requests are kept.

    Returns
    -------
    Session, Comparison, Lifetimes or Recording
        A server's trace is a session.

    Raises
    ------
    BLSError
        The file cannot be read, is of no known kind, or is damaged.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise FileError(f"open_file: expected the path of a file, got {type(path).__name__}")
    kind = _kind(Path(path))
    try:
        loader = registry().load("loaders", kind)
    except KeyError:
        raise FileError(
            f"{told(Path(path).name)}: not a file that bls.open_file reads: "
            + (f"its kind is {told(repr(kind))}" if kind else "it has no kind")
            + f"; the kinds are {', '.join(registry().keys('loaders'))}"
        ) from None
    return loader(path, **options)


def _kind(path: Path) -> str:
    """Return the kind that a file declares, or a guess from the first bytes of other programs' files."""
    beginning = _beginning(path)
    named = _KIND.match(beginning)
    if named is not None:
        return named[1].decode()
    if beginning.startswith(b"PK\x03\x04"):
        return "bls_notebook.recording"
    if beginning.startswith(b'{"traceEvents"'):
        return "Chrome trace"
    return "server trace" if beginning.lstrip()[:1] == b"[" else ""


def _beginning(path: Path) -> bytes:
    try:
        if not path.exists() and path.with_name(f"{path.name}.0").exists():
            path = path.with_name(f"{path.name}.0")  # tritonserver numbers the files of a trace
        return read_bytes(path, is_whole=False, first=_BEGINNING)
    except (OSError, ValueError) as error:
        raise FileError(f"{told(path.name)}: cannot be read: {told(error)}") from None
