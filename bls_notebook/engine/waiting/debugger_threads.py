"""Threads that a debugger holds at a breakpoint, where somebody presses Ctrl-C.

While one stands there, pydevd (the debugger of JupyterLab, VS Code and PyCharm) holds every thread as soon as
it runs code that is traced. So all of them are let go, as by "continue", when some are interrupted.

Before Python 3.12, an exception that strikes code of pydevd ends the tracing of the thread: no breakpoint
would stop it any more. There they are let go first, and interrupted where they come to code of their own; in
the debugger all the same where they never do, as in a loop that meets one breakpoint after the other.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from time import monotonic
from types import FrameType
from typing import Any

PATIENCE = 0.5  # seconds
_LIFE = "_pydevd_bundle.pydevd_thread_lifecycle"
_asked = [0.0, 0.0]  # when it was first asked for this Ctrl-C, and when last


def held(stack: Iterable[FrameType]) -> bool:
    """Whether a thread, by its frames, is in the debugger, and is better let go before it is interrupted."""
    if sys.version_info >= (3, 12) or _LIFE not in sys.modules or not _in_debugger(stack):
        return False
    now = monotonic()
    if now - _asked[1] > PATIENCE:
        _asked[0] = now
    _asked[1] = now
    return now - _asked[0] < PATIENCE


def _in_debugger(stack: Iterable[FrameType]) -> bool:
    for frame in stack:
        file = frame.f_code.co_filename
        if "pydevd" in file or "_pydev_bundle" in file:
            return True
        if not file.endswith("threading.py"):  # where it waits; what it evaluates for somebody is not its own
            return False
    return False


def let_go() -> None:
    """Have the debugger let all threads go that it holds; not from a handler of signals."""
    life: Any = sys.modules.get(_LIFE)
    if life is None:
        return
    for thread in threading.enumerate():
        if thread.ident is not None and hasattr(thread, "additional_info"):  # what the debugger knows of it
            life.internal_run_thread(thread, life.set_additional_thread_info)


def let_go_soon() -> None:
    """Have it done in a moment: the debugger may hold a lock of its own in this thread."""
    if _LIFE in sys.modules:
        threading.Timer(0, let_go).start()
