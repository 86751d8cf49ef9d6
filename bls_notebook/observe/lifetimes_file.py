"""Lifetimes in a file: JSON, with the version of what is in it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from bls_notebook.observe.lifetimes import SCHEMA, Lifetimes

__all__ = ["load_lifetimes", "save_lifetimes"]

_KIND = "bls_notebook.lifetimes"


def save_lifetimes(record: Lifetimes, path: str | Path) -> Path:
    """Write lifetimes to a file; compressed where its name ends with ``.gz``."""
    target = Path(path)
    text = json.dumps({"kind": _KIND, **record.to_dict()}, separators=(",", ":"), allow_nan=False)
    data = text.encode()
    target.write_bytes(gzip.compress(data, mtime=0) if target.suffix == ".gz" else data)
    return target


def load_lifetimes(path: str | Path) -> Lifetimes:
    """Read lifetimes that were saved.

    Parameters
    ----------
    path : str or Path
        Of a file that `save` has written.

    Returns
    -------
    Lifetimes

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It holds something else, or was written by a newer version; the message says which.
    """
    source = Path(path)
    data = source.read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        plain: Any = json.loads(data)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{source.name}: not a file of lifetimes: it is no JSON ({error})") from None
    kind = plain.pop("kind", None) if isinstance(plain, dict) else None
    if kind != _KIND:
        what = f"its kind is {kind!r}" if kind is not None else "it has no kind"
        raise ValueError(f"{source.name}: not a file of lifetimes: {what}, expected {_KIND!r}")
    schema = plain.get("schema")
    if schema != SCHEMA:
        raise ValueError(
            f"{source.name}: lifetimes of schema {schema!r}, expected {SCHEMA}: "
            "read it with the version of bls_notebook that wrote it"
        )
    try:
        return Lifetimes.from_dict(plain)
    except ValueError as error:
        raise ValueError(f"{source.name}: not a file of lifetimes: {error}") from None
