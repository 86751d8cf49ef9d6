"""`NameLock`: one thread at a time changes the models of one name; a reentrant lock.

Guarantees: Ctrl-C interrupts a wait for it, and it is not taken then; taking it is one assignment under an
inner lock that is held for no more than that.
"""

from __future__ import annotations

import threading

from bls_notebook.engine.waiting.parking import Parker


class NameLock:
    """A lock that a thread may take again, and whose wait can be interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._waiting: list[Parker] = []

    def __enter__(self) -> None:
        me = threading.get_ident()
        while True:
            with self._lock:
                if self._owner in (0, me):
                    self._owner, self._depth = me, self._depth + 1
                    return
                parker = Parker()
                self._waiting.append(parker)
            parker.park()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            self._owner = 0
            woken, self._waiting = self._waiting, []
        for parker in woken:
            parker.unpark()
