"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Alarm:
    def __init__(self, when: int, call: Callable[[], None]) -> None:
        self.when = when
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class FakeClock:
    """Alarms ring, in order, in the thread that moves the clock on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 10**9
        self._alarms: list[_Alarm] = []

    def now(self) -> int:
        return self._now

    def call_at(self, when: int, call: Callable[[], None]) -> _Alarm:
        alarm = _Alarm(when, call)
        with self._lock:
            self._alarms.append(alarm)
        return alarm

    @property
    def pending(self) -> int:
        """How many alarms are set."""
        with self._lock:
            return sum(a.call is not None for a in self._alarms)

    def advance(self, seconds: float) -> None:
        until = self._now + round(seconds * 1e9)
        for _ in range(10_000):
            with self._lock:
                due = [a for a in self._alarms if a.call is not None and a.when <= until]
                if not due:
                    self._now = until
                    return
                first = min(due, key=lambda a: a.when)
                self._alarms.remove(first)
                self._now = max(self._now, first.when)
            if first.call is not None:
                first.call()
        raise AssertionError("alarms without end: one that asks to be called at once, again and again")
