"""`Deadline`: interrupt model code on this thread after a time limit.

Guarantees: the deadline interrupts model code and waits, never the engine. No interrupt arrives after the block. The
deadline's interrupt is distinguished from the user's Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

from bls_notebook.engine.waiting import interrupts
from bls_notebook.extending import critical

_AGAIN = 1.0  # seconds until the next interrupt of code that continues
_SOON = 0.01  # seconds until the next attempt while a thread is in the engine


class Deadline:
    """Context manager; if the time limit has passed, `passed` is true and the block's interrupt is suppressed.

    On the main thread it raises SIGINT, which also ends sleeps and network waits; on other threads, and if the model's
    code has disabled SIGINT, it sets an asynchronous exception. It enables SIGINT meanwhile if a shell started this
    program in the background. Nothing interrupts native code that neither returns nor checks for signals.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._seconds = seconds
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.get_ident()
        self._main = threading.current_thread() is threading.main_thread()
        self._is_async = False  # whether it set an asynchronous exception
        self._ctrl_c = critical()
        self._ignored = self._main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    def __enter__(self) -> Deadline:
        if self._ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._ctrl_c.__enter__()
        threading.Thread(target=self._watch, name="bls-deadline", daemon=True).start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        try:
            with self._lock:
                self._over.set()
            if self.passed and self._main:
                interrupts.withdraw_deferred()  # the engine deferred it: after this block, it would be the user's
            if self._is_async:
                interrupts.clear_interrupt(self._thread)
            self._ctrl_c.__exit__(kind, error, traceback)
        except KeyboardInterrupt:
            if not self.passed:
                raise
            return True
        finally:
            if self._ignored:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self.passed and isinstance(error, (KeyboardInterrupt, interrupts.Interrupted))

    def _watch(self) -> None:
        seconds = self._seconds
        while not self._over.wait(seconds):
            with self._lock:
                if self._over.is_set():
                    return
                self.passed = True
                if self._main and callable(signal.getsignal(signal.SIGINT)):
                    interrupts.press()
                    seconds = _AGAIN
                else:  # the model's code ignores SIGINT, or would end Python with it
                    self._is_async = True
                    seconds = _AGAIN if interrupts.interrupt_thread(self._thread) else _SOON
