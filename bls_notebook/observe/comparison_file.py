"""Comparisons in a file: JSON, with the version of what is in it."""

from __future__ import annotations

from pathlib import Path

from bls_notebook.observe.record_file import RecordFile
from bls_notebook.observe.records.comparison import SCHEMA, Comparison

__all__ = ["load_comparison", "save_comparison"]

_FILE = RecordFile(Comparison, "bls_notebook.comparison", SCHEMA, "a comparison", "a comparison")


def save_comparison(record: Comparison, path: str | Path) -> Path:
    """Write a comparison to a file; compressed where its name ends with ``.gz``."""
    return _FILE.save(record, path)


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
    BLSError
        The file cannot be read, holds something else, or was written by a newer version; the message says
        which.
    """
    return _FILE.load(path)
