"""Keep a model's code from ending this process.

On Triton, a model that calls `os._exit` or kills its process group ends its own process. Here the call raises
`SystemExit` in the model's code, or runs the handler that the model set for the signal. A forked child has Python's own
functions.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from bls_notebook.engine.waiting.main_thread import handler_of_process, raise_here

_HARMLESS = frozenset(
    getattr(signal, name)
    for name in ("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGTSTP", "SIGTTIN", "SIGTTOU")
    if hasattr(signal, name)
)


def keep_process(is_models: Callable[[FrameType], bool]) -> None:
    """Replace the functions that end this process; they raise SystemExit if `is_models(frame)` of their caller."""
    home = os.getpid()

    def guarded(function: Callable[..., Any], ends: Callable[..., bool]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == home and ends(*args, **kwargs) and is_models(sys._getframe(1)):
                arguments = ", ".join(map(repr, (*args, *kwargs.values())))
                raise SystemExit(
                    f"os.{function.__name__}({arguments}) would end this process; a model on Triton ends only its own"
                )
            return function(*args, **kwargs)

        return call

    def always(*_: Any, **__: Any) -> bool:
        return True

    def by_signal(pid: object, number: int) -> bool:
        return pid in (0, -1, home, os.getppid(), -os.getpgrp()) and _fatal(number)

    def by_group_signal(group: object, number: int) -> bool:
        return group in (0, os.getpgrp()) and _fatal(number)

    for name, ends in (("_exit", always), ("abort", always), ("kill", by_signal), ("killpg", by_group_signal)):
        if hasattr(os, name):
            setattr(os, name, guarded(getattr(os, name), ends))
    guarded_kill = os.kill

    @functools.wraps(guarded_kill)
    def kill(pid: int, number: int, /) -> None:
        if pid != home or not raise_here(number):
            guarded_kill(pid, number)

    os.kill = kill


def _fatal(number: int) -> bool:
    """Return whether a signal ends this process: one with no handler, whose default action is to terminate."""
    try:
        return number not in _HARMLESS and handler_of_process(number) in (signal.SIG_DFL, None)
    except (TypeError, ValueError):  # not a signal number
        return False
