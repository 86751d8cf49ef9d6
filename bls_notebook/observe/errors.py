"""The base of the errors that this package raises for misuse of its own API."""

from __future__ import annotations

__all__ = ["BLSError"]


class BLSError(Exception):
    """Base class: one clear line that says what, where, got, expected and what to do."""
