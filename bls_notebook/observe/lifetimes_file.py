"""Lifetimes in a file: JSON, with the version of what is in it."""

from __future__ import annotations

from pathlib import Path

from bls_notebook.observe.record_file import RecordFile
from bls_notebook.observe.records.lifetimes import SCHEMA, Lifetimes

__all__ = ["load_lifetimes", "save_lifetimes"]

_FILE = RecordFile(Lifetimes, "bls_notebook.lifetimes", SCHEMA, "a file of lifetimes", "lifetimes")


def save_lifetimes(record: Lifetimes, path: str | Path) -> Path:
    """Write lifetimes to a file; compressed where its name ends with ``.gz``."""
    return _FILE.save(record, path)


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
    BLSError
        The file cannot be read, holds something else, or was written by a newer version; the message says
        which.
    """
    return _FILE.load(path)
