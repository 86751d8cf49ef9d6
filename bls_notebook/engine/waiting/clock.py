"""The engine's clock: the time, alarms, and objects that are looked at again and again.

Guarantees: `call_at` never blocks, and no call comes early. One thread makes the calls, one after the other, so they
must be short; overdue calls keep their order. A cancelled alarm does not ring, unless it is ringing already, and is
removed soon. The thread sleeps until the next alarm.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

from .worker_threads import start_in_thread

log = logging.getLogger("bls_notebook")


class Alarm(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Clock(Protocol):
    """A monotonic clock, in nanoseconds."""

    def now(self) -> int:
        """Return the time."""

    def call_at(self, when: int, call: Callable[[], None]) -> Alarm:
        """Run `call()` once the time is `when` or later."""


_FEW = 64  # a heap with fewer alarms is not searched for cancelled ones


class _Alarm:
    """One entry of the heap; cancelled ones are dropped when their time comes, or when there are many."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class SystemClock:
    """The computer's clock, with one thread for all alarms; the first alarm starts it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[int, int, _Alarm]] = []
        self._number = itertools.count()
        self._started = False
        self._tidy_at = _FEW  # size of the heap at which cancelled alarms are removed

    def now(self) -> int:
        return time.monotonic_ns()

    def call_at(self, when: int, call: Callable[[], None]) -> _Alarm:
        alarm = _Alarm(call)
        with self._changed:
            if len(self._heap) >= self._tidy_at:
                self._heap = [entry for entry in self._heap if entry[2].call is not None]
                heapq.heapify(self._heap)
                self._tidy_at = max(_FEW, 2 * len(self._heap))
            heapq.heappush(self._heap, (max(when, self.now()), next(self._number), alarm))
            first = self._heap[0][2] is alarm
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="bls-clock", daemon=True).start()
            elif first:
                self._changed.notify()
        return alarm

    def _run(self) -> None:
        while True:
            call = self._next().call
            if call is not None:
                try:
                    call()
                except Exception:
                    log.exception("an alarm of a scheduler failed")
            del call

    def _next(self) -> _Alarm:
        with self._changed:
            while True:
                if not self._heap:
                    self._changed.wait()
                    continue
                left = self._heap[0][0] - self.now()
                if left <= 0 or self._heap[0][2].call is None:
                    return heapq.heappop(self._heap)[2]
                self._changed.wait(min(left / 1e9, threading.TIMEOUT_MAX))


system_clock = SystemClock()


class NextAlarm:
    """The single alarm of a scheduler, set to the earliest requested time. Every method needs the owner's lock."""

    def __init__(self, clock: Clock, call: Callable[[], None]) -> None:
        self._clock = clock
        self._call = call
        self._alarm: Alarm | None = None
        self._at = 0

    def at_latest(self, when: int) -> None:
        if self._alarm is None or when < self._at:
            self.cancel()
            self._at = when
            self._alarm = self._clock.call_at(when, self._call)

    def rung(self) -> None:
        self._alarm = None

    def cancel(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


LONGEST_PAUSE = 60.0


class Recheck:
    """Calls `look()` on a thread as long as an added object is not `done`: after a while, then less and less often.

    Objects are kept weakly. Calls take at most one part in `share` of the time.
    """

    share = 20

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._guard = threading.Lock()
        self._objects: WeakSet[Any] = WeakSet()
        self._pause = self._took = 0.0
        self._alarm = NextAlarm(system_clock, lambda: start_in_thread(self._rings))

    def add(self, watched: Any, seconds: float) -> None:
        """Watch an object; the next call comes within `seconds`, unless the last one took long."""
        with self._guard:
            self._objects.add(watched)
            self._pause = seconds
            self._set_alarm()

    def watched(self) -> list[Any]:
        """Return the objects that are not done."""
        with self._guard:
            return [each for each in self._objects if not each.done]

    def _set_alarm(self) -> None:
        self._alarm.at_latest(system_clock.now() + int(max(self._pause, self.share * self._took) * 1e9))

    def _rings(self) -> None:
        began = time.monotonic()
        if self.watched():
            self._look()
        with self._guard:
            self._took = time.monotonic() - began
            self._alarm.rung()
            self._objects = WeakSet(each for each in self._objects if not each.done)
            if self._objects:
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
                self._set_alarm()
