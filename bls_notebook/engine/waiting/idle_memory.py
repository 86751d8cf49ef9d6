"""Return the memory that instances have freed to the operating system, once no instance works.

glibc keeps the memory that a thread frees in a heap for that thread: 20 models with temporaries of 8 MB kept 1.2 GB.

Guarantees: an execution reads one attribute (`armed`), and calls `arm` at most once in `IDLE_SECONDS`. Nothing happens
while the executions follow each other faster than that, nor before the process has grown by `WORTH_BYTES` since the
last return. One alarm serves all instances; none is set while they are idle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from bls_notebook.devices.host_memory import resident_bytes, return_free_memory

from .clock import Clock, system_clock
from .worker_threads import start_in_thread

IDLE_SECONDS = 2.0
WORTH_BYTES = 32 << 20


class IdleMemory:
    """Returns free memory after work. An execution that ends while `armed` is false must call `arm`."""

    def __init__(
        self,
        clock: Clock = system_clock,
        give_back: Callable[[], bool] = return_free_memory,
        resident: Callable[[], int] = resident_bytes,
        start: Callable[[Callable[[], None]], None] = start_in_thread,
    ) -> None:
        self.armed = False
        self._clock, self._give_back, self._resident, self._start = clock, give_back, resident, start
        self._lock = threading.Lock()
        self._is_waiting = False  # whether an alarm is set
        self._least = 0  # resident bytes after the last return

    def arm(self) -> None:
        """Note that an execution has ended."""
        self.armed = True
        with self._lock:
            if self._is_waiting:
                return
            self._is_waiting = True
        self._set_alarm()

    def _set_alarm(self) -> None:
        self._clock.call_at(self._clock.now() + int(IDLE_SECONDS * 1e9), self._ring)

    def _ring(self) -> None:
        with self._lock:
            was_busy, self.armed = self.armed, False
            self._is_waiting = was_busy
        if was_busy:
            self._set_alarm()
        else:
            self._start(self._return)

    def _return(self) -> None:
        now = self._resident()
        self._least = min(self._least, now)
        if now - self._least >= WORTH_BYTES:
            is_possible = self._give_back()
            self._least = self._resident()
        else:
            is_possible = now >= 0
        if not is_possible:
            self.armed = True  # from now on: this system returns no memory


idle_memory = IdleMemory()
