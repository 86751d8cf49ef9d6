"""Magics: each parses its line, calls the public API once, and shows what it got.

Adding this to a shell imports nothing heavy; models' displays are text and HTML together.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from IPython.core.interactiveshell import InteractiveShell

from .registry import Extension

__all__ = ["load", "unload"]

_extensions: WeakKeyDictionary[InteractiveShell, Extension] = WeakKeyDictionary()


def load(shell: InteractiveShell) -> None:
    """Add the magics to a shell; the second time, nothing."""
    if shell not in _extensions:
        _extensions[shell] = Extension(shell)


def unload(shell: InteractiveShell) -> None:
    """Take the magics away again; models stay loaded."""
    extension = _extensions.pop(shell, None)
    if extension is not None:
        extension.remove()
