"""Let a thread run code that expects to be on the main thread of its process: on Triton, a model's code is.

`as_main_thread` encloses the life of such a thread. Inside, `asyncio.get_event_loop` makes the thread's loop as it does
on a main thread (until Python 3.14, where no thread gets one), and `signal.signal` records a handler instead of raising
ValueError. No signal reaches a model in a notebook, so a handler runs only if the model itself raises the signal, and
an alarm never comes: it would end the kernel.

Guarantees: all other threads, and forked children, have the behaviour of Python's own functions. The functions are
replaced when the first such thread starts. Code that imported a function before that has the original.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from bls_notebook import progress

log = logging.getLogger("bls_notebook")
handler_of_process = signal.getsignal  # Python's own function
_lock = threading.Lock()
_installed = False


class _Process:
    """State that a process keeps for its main thread: signal handlers, and the event loop that asyncio made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.handlers: dict[int, Any] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    def close(self) -> None:
        if self.loop is not None and not self.loop.is_running():
            self.loop.close()


_processes: dict[int, _Process] = {}  # by the idents of their threads


@contextmanager
def as_main_thread(name: str) -> Iterator[None]:
    """Let the current thread act as a process's main thread; `name` is the instance's, for the log."""
    install()
    ident = threading.get_ident()
    _processes[ident] = process = _Process(name)
    progress.threads.add(ident)
    try:
        yield
    finally:
        progress.threads.discard(ident)
        del _processes[ident]
        process.close()


def install() -> None:
    """Replace the functions that ask for the main thread; once."""
    global _installed
    with _lock:
        if _installed:
            return
        _installed = True
        _replace_signals()
        if sys.version_info < (3, 14):
            _replace_get_event_loop()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_processes.clear)


def raise_here(number: int) -> bool:
    """Run the handler that this thread's model set for a signal; return False if there is none."""
    process = _processes.get(threading.get_ident())
    handler = None if process is None else process.handlers.get(number)
    if callable(handler):
        handler(number, sys._getframe(1))
    return callable(handler) or handler is signal.SIG_IGN


def _replace_signals() -> None:
    def in_models(original: Callable[..., Any], replacement: Callable[..., Any]) -> None:
        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            process = _processes.get(threading.get_ident())
            return original(*args, **kwargs) if process is None else replacement(process, *args, **kwargs)

        setattr(signal, original.__name__, call)

    raise_signal = signal.raise_signal

    set_signal = signal.signal

    def set_handler(process: _Process, signalnum: int, handler: Any, /) -> Any:
        if sys._getframe(2).f_globals.get("__name__") == "pdb":  # the prompt of a person: no model's handler
            return set_signal(signalnum, handler)
        before = get_handler(process, signalnum)  # raises ValueError for other numbers
        if not callable(handler) and handler not in (signal.SIG_IGN, signal.SIG_DFL):
            raise TypeError("signal handler must be signal.SIG_IGN, signal.SIG_DFL, or a callable object")
        if signalnum not in process.handlers:
            log.warning(
                "%s set a handler for signal %d (%s): in a notebook, signals do not reach a model",
                process.name, signalnum, signal.strsignal(signalnum),
            )  # fmt: skip
        process.handlers[int(signalnum)] = handler
        return before

    def get_handler(process: _Process, signalnum: int, /) -> Any:
        before = handler_of_process(signalnum)
        return process.handlers.get(int(signalnum), before)

    def raise_one(process: _Process, signalnum: int, /) -> None:
        if not raise_here(signalnum):
            raise_signal(signalnum)

    def set_alarm(process: _Process, *times: float) -> Any:
        log.warning("%s set an alarm: in a notebook, it never comes", process.name)
        return 0

    def set_timer(process: _Process, which: int, seconds: float, interval: float = 0.0, /) -> tuple[float, float]:
        set_alarm(process)
        return 0.0, 0.0

    in_models(signal.signal, set_handler)
    in_models(handler_of_process, get_handler)
    in_models(raise_signal, raise_one)
    if sys.platform != "win32":
        in_models(signal.alarm, set_alarm)
        in_models(signal.setitimer, set_timer)


def _replace_get_event_loop() -> None:
    """Replace the method of asyncio's policies: uvloop's inherits it."""
    policy: Any = asyncio.events.BaseDefaultEventLoopPolicy
    original = policy.get_event_loop

    @wraps(original)
    def get_event_loop(self: Any) -> Any:
        process = _processes.get(threading.get_ident())
        if process is not None and self._local._loop is None and not self._local._set_called:
            process.loop = self.new_event_loop()
            self.set_event_loop(process.loop)
        return original(self)

    policy.get_event_loop = get_event_loop
