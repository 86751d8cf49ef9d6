"""Reads any saved file: finds its kind, and leaves reading it to what is registered for that kind."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from pathlib import Path
from typing import Any

from bls_notebook.capabilities import registry

from .errors import FileError
from .record_file import told

_BEGINNING = 1 << 16  # bytes
_KIND = re.compile(rb'\s*\{\s*"(?:kind|format)"\s*:\s*"([\w .]+)"')
_INPUTS = re.compile(rb'"inputs"\s*:')


def load(path: str | Path, **options: Any) -> Any:
    """Read a saved file: a session, a comparison, lifetimes, a recording, or a server's trace.

    Parameters
    ----------
    path : str or Path
        A file that a `save` method or `bls.record` wrote; a trace that tritonserver wrote (also several
        files, ``trace.json.0`` and so on); or requests as JSON: bodies of KServe v2 requests (one, a list,
        or one a line), or perf_analyzer's input data.
    **options
        For requests as JSON: `model`, the name of the model that they are for, and `repo`. For a server's
        trace: `limit`, how many requests are kept.

    Returns
    -------
    Session, Comparison, Lifetimes or Recording
        A server's trace is a session, requests as JSON are a recording.

    Raises
    ------
    BLSError
        The file cannot be read, is of no known kind, or is damaged; or the capability that reads files of its
        kind is not installed.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise FileError(f"load: expected the path of a file, got {type(path).__name__}")
    kind = _kind(Path(path))
    try:
        loader = registry().load("loaders", kind)
    except KeyError:
        raise FileError(
            f"{told(Path(path).name)}: not a file that bls.load reads: "
            + (f"its kind is {told(repr(kind))}" if kind else "it has no kind")
            + f"; the kinds are {', '.join(registry().keys('loaders'))}"
        ) from None
    return loader(path, **options)


def _kind(path: Path) -> str:
    """Return the kind that a file says it has, or, of other programs' files, the one it looks like."""
    beginning = _beginning(path)
    named = _KIND.match(beginning)
    if named is not None:
        return named[1].decode()
    if beginning.startswith(b"PK\x03\x04"):
        return "bls_notebook.recording"
    first = beginning.lstrip()[:1]
    if first == b"{" or (first == b"[" and _INPUTS.search(beginning)):
        return "requests"
    return "server trace" if first == b"[" else ""


def _beginning(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked if it is gzipped."""
    try:
        if not path.exists() and path.with_name(f"{path.name}.0").exists():
            path = path.with_name(f"{path.name}.0")  # tritonserver numbers the files of a trace
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return (gzip.GzipFile(fileobj=file) if packed else file).read(_BEGINNING)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(f"{told(path.name)}: cannot be unpacked: {told(error)}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"{told(path.name)}: cannot be read: {told(why)}") from None
