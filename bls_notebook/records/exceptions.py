"""The base of the errors that this package raises for misuse of its own API."""

from __future__ import annotations


class BLSError(Exception):
    """Base class: one clear line that says what, where, got, expected and what to do."""


class FileError(BLSError, ValueError):
    """A file of a record that cannot be read or written, or holds something else."""
