"""Comparisons in a file: JSON, with the version of what is in it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from bls_notebook.observe.comparison import SCHEMA, Comparison

__all__ = ["load_comparison", "save_comparison"]

_KIND = "bls_notebook.comparison"


def save_comparison(record: Comparison, path: str | Path) -> Path:
    """Write a comparison to a file; compressed where its name ends with ``.gz``."""
    target = Path(path)
    text = json.dumps({"kind": _KIND, **record.to_dict()}, separators=(",", ":"), allow_nan=False)
    data = text.encode()
    target.write_bytes(gzip.compress(data, mtime=0) if target.suffix == ".gz" else data)
    return target


def load_comparison(path: str | Path) -> Comparison:
    """Read a comparison that was saved.

    Parameters
    ----------
    path : str or Path
        Of a file that `save` has written.

    Returns
    -------
    Comparison

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
        raise ValueError(f"{source.name}: not a comparison: it is no JSON ({error})") from None
    kind = plain.pop("kind", None) if isinstance(plain, dict) else None
    if kind != _KIND:
        raise ValueError(f"{source.name}: not a comparison: its kind is {kind!r}, expected {_KIND!r}")
    if plain.get("schema") != SCHEMA:
        raise ValueError(
            f"{source.name}: a comparison of schema {plain.get('schema')!r}, expected {SCHEMA}: "
            "read it with the version of bls_notebook that wrote it"
        )
    try:
        return Comparison.from_dict(plain)
    except ValueError as error:
        raise ValueError(f"{source.name}: not a comparison: {error}") from None
