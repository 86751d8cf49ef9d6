"""Keep a model's code from ending this process."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_HARMLESS = frozenset(
    getattr(signal, name)
    for name in ("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGTSTP", "SIGTTIN", "SIGTTOU")
    if hasattr(signal, name)
)


def keep_process(is_models: Callable[[FrameType], bool]) -> None:
    """Keep code for which `is_models`, given its frame, is true from ending this process, from now on."""
    home = os.getpid()

    def guarded(function: Callable[..., Any], ends: Callable[..., bool]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == home and ends(*args, **kwargs) and is_models(sys._getframe(1)):
                given = ", ".join(map(repr, (*args, *kwargs.values())))
                raise SystemExit(
                    f"os.{function.__name__}({given}) would end this process; on Triton the model has its own"
                )
            return function(*args, **kwargs)

        return call

    def always(*_: Any, **__: Any) -> bool:
        return True

    def by_signal(whom: object, number: int) -> bool:
        return whom in (0, -1, home, os.getppid(), -os.getpgrp()) and _fatal(number)

    def by_group_signal(group: object, number: int) -> bool:
        return group in (0, os.getpgrp()) and _fatal(number)

    for name, ends in (
        ("_exit", always), ("abort", always), ("kill", by_signal), ("killpg", by_group_signal)
    ):  # fmt: skip
        if hasattr(os, name):
            setattr(os, name, guarded(getattr(os, name), ends))


def _fatal(number: int) -> bool:
    """Whether a signal ends a process that does nothing about it, as this one does not."""
    try:
        return number not in _HARMLESS and signal.getsignal(number) in (signal.SIG_DFL, None)
    except (TypeError, ValueError):  # 0, or none at all
        return False
