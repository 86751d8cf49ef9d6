"""Threads that a debugger holds at a breakpoint, where somebody presses Ctrl-C.

An exception that strikes code of pydevd (the debugger of JupyterLab, VS Code and PyCharm) ends the tracing of
that thread: no breakpoint would stop it any more. So all threads are let go first, as by "continue", and
interrupted where they come to code of their own. What somebody has the debugger evaluate is such code too.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

__all__ = ["in_debugger", "let_go"]

_LIFE = "_pydevd_bundle.pydevd_thread_lifecycle"
_PARTS = ("pydevd", "_pydev_bundle")


def in_debugger(stack: Iterable[FrameType]) -> bool:
    """Whether a thread, by its frames, runs code of a debugger, or is held by it."""
    if _LIFE not in sys.modules:
        return False
    for frame in stack:
        file = frame.f_code.co_filename
        if any(part in file for part in _PARTS):
            return True
        if os.path.basename(file) != "threading.py":  # where it waits
            return False
    return False


def let_go() -> None:
    """Have the debugger let all threads go that it holds; not in a thread that it holds."""
    life: Any = sys.modules.get(_LIFE)
    for thread in threading.enumerate():
        if thread.ident is not None and hasattr(thread, "additional_info"):  # what the debugger knows of it
            life.internal_run_thread(thread, life.set_additional_thread_info)
