"""`InflightLimit`: the slots of one step of an ensemble (`max_inflight_requests`), shared by all requests to it.

Guarantees: at most `most` requests of the step are in flight, and the others start in the order in which they came. One
that has waited for five minutes starts without a slot, as on Triton, so no cycle of ensembles waits forever. No lock is
held while a request starts.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from bls_notebook.engine.waiting.clock import Alarm, system_clock
from bls_notebook.engine.waiting.worker_threads import start_in_thread

_PATIENCE = 300 * 10**9
_logger = logging.getLogger("bls_notebook")


class InflightLimit:
    """The requests of one step that are in flight, and those that wait; `step` is its name in the log."""

    def __init__(self, most: int, step: str) -> None:
        self._most = most
        self._step = step
        self._lock = threading.Lock()
        self._in_flight = 0
        self._waiting: deque[tuple[Callable[[], None], Alarm]] = deque()
        self._starting = False

    def enter(self, start: Callable[[], None]) -> None:
        """Start a request now, or when a slot is free."""
        with self._lock:
            waits = self._in_flight >= self._most
            if waits:
                alarm = system_clock.call_at(system_clock.now() + _PATIENCE, partial(self._give_slot, start))
                self._waiting.append((start, alarm))
            else:
                self._in_flight += 1
        if not waits:
            start()

    def leave(self) -> None:
        """Free the slot of a request that has its final response, and start waiting ones."""
        with self._lock:
            self._in_flight -= 1
            if self._starting:  # the loop below, which runs on this thread or another, goes on
                return
            self._starting = True
        while True:
            with self._lock:
                if not self._waiting or self._in_flight >= self._most:
                    self._starting = False
                    return
                start, alarm = self._waiting.popleft()
                self._in_flight += 1
            alarm.cancel()
            start()

    def _give_slot(self, start: Callable[[], None]) -> None:
        with self._lock:
            waiting = next((entry for entry in self._waiting if entry[0] is start), None)
            if waiting is None:
                return
            self._waiting.remove(waiting)
            self._in_flight += 1
        _logger.error("%s: unable to schedule a request for 300 seconds; proceeding to avoid a deadlock", self._step)
        start_in_thread(start)
