"""`Deadline`: ends what model code does on this thread when it takes too long.

Guarantees: model code and waits are ended, the engine never is (`waiting/ctrl_c.py`); nothing arrives once it
is over; a Ctrl-C of the person is told from its own.
"""

from __future__ import annotations

import signal
import threading
from types import TracebackType

from bls_notebook.engine.waiting.ctrl_c import press
from bls_notebook.engine.waiting.interrupt import Interrupted, clear_interrupt, interrupt_thread
from bls_notebook.extending import critical

_AGAIN = 1.0  # seconds after which code that goes on all the same is interrupted once more
_SOON = 0.01  # seconds after which a thread in the engine is looked at again


class Deadline:
    """Context manager; `passed` says whether the time was up, and what it ended is not raised then.

    On the main thread the key is pressed for the person, which also ends a sleep and a wait for the network;
    elsewhere an exception is set for the thread. A program that a shell has begun in the background ignores
    the key: for as long as this lasts it does not.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._seconds = seconds
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.get_ident()
        self._main = threading.current_thread() is threading.main_thread()
        self._ctrl_c = critical()
        self._ignored = self._main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    def __enter__(self) -> Deadline:
        if self._ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._ctrl_c.__enter__()
        threading.Thread(target=self._watch, name="bls-deadline", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            with self._lock:
                self._over.set()
            if self.passed and not self._main:
                clear_interrupt(self._thread)
            self._ctrl_c.__exit__(kind, error, traceback)
        except KeyboardInterrupt:
            if not self.passed:
                raise
            return True
        finally:
            if self._ignored:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self.passed and isinstance(error, (KeyboardInterrupt, Interrupted))

    def _watch(self) -> None:
        seconds = self._seconds
        while not self._over.wait(seconds):
            with self._lock:
                if self._over.is_set():
                    return
                self.passed = True
                if self._main:
                    press()
                    seconds = _AGAIN
                else:
                    seconds = _AGAIN if interrupt_thread(self._thread) else _SOON
