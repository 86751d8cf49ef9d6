"""`FakeClock`: a clock for the delays of stubs that a test advances."""

from __future__ import annotations

import threading
from collections.abc import Callable

_POLL = 0.01  # seconds after which `wait` asks again whether its request has ended


class FakeClock:
    """A clock that runs only when a test advances it: for the delays of `ModelRepository.stub`.

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
        """Number of requests that wait for the clock now."""

    def advance(self, seconds: float) -> None:
        """Advance the time by `seconds`."""
        with self._changed:
            self._now += seconds
            self._changed.notify_all()

    def wait(self, seconds: float, ended: Callable[[], bool]) -> None:
        """Return when `seconds` of this clock have passed, or soon after `ended` becomes true."""
        with self._changed:
            until = self._now + seconds
            self.waiting += 1
            self._changed.notify_all()
            try:
                while self._now < until and not ended():
                    self._changed.wait(_POLL)
            finally:
                self.waiting -= 1
                self._changed.notify_all()

    def wait_for(self, requests: int = 1, timeout: float = 60.0) -> None:
        """Block until at least `requests` requests wait for the clock.

        Raises
        ------
        AssertionError
            Fewer wait after `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.waiting >= requests, timeout):
                raise AssertionError(
                    f"{self.waiting} requests wait for the clock after {timeout:g} s, expected {requests}"
                )
