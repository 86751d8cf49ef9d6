"""`FakeClock`: the time of delays, moved on by a test."""

from __future__ import annotations

import threading
from collections.abc import Callable

_LOOK = 0.01  # seconds after which a wait looks whether anybody waits for its end


class FakeClock:
    """Whose time stands still until a test moves it on: for the delays of `ModelRepository.stub`.

    Examples
    --------
    >>> clock = FakeClock()
    >>> with repo.stub("resize", {"OUT": image}, delay=5, clock=clock):
    ...     answer = pool.submit(repo.infer, "page", inputs)
    ...     clock.wait_for(1)
    ...     clock.advance(5)
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._now = 0.0
        self.waiting = 0
        """How many requests wait for it now."""

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._changed:
            self._now += seconds
            self._changed.notify_all()

    def wait(self, seconds: float, ended: Callable[[], bool]) -> None:
        """Return once so much time has passed, or soon after `ended` says so."""
        with self._changed:
            until = self._now + seconds
            self.waiting += 1
            self._changed.notify_all()
            try:
                while self._now < until and not ended():
                    self._changed.wait(_LOOK)
            finally:
                self.waiting -= 1
                self._changed.notify_all()

    def wait_for(self, requests: int = 1, timeout: float = 60.0) -> None:
        """Block until so many requests wait.

        Raises
        ------
        AssertionError
            They do not within `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.waiting >= requests, timeout):
                raise AssertionError(
                    f"{self.waiting} requests wait for the clock after {timeout:g} s, expected {requests}"
                )
