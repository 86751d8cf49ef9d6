"""Magics: each parses its line, calls the public API once, and shows what it got.

Adding this to a shell imports nothing heavy; models' displays are text and HTML together.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from IPython.core.interactiveshell import InteractiveShell

from .registry import add_magics

__all__ = ["load", "unload"]

_added: WeakKeyDictionary[InteractiveShell, Callable[[], None]] = WeakKeyDictionary()


def load(shell: InteractiveShell) -> None:
    """Add the magics to a shell; the second time, nothing."""
    if shell not in _added:
        _added[shell] = add_magics(shell)


def unload(shell: InteractiveShell) -> None:
    """Take the magics away again; models stay loaded."""
    _added.pop(shell, lambda: None)()
