"""How much of what models log a cell shows: a burst, and then a trickle.

Guarantees: whatever a model logs in a loop, a notebook stays small; a message that is left out is counted,
and the count is told. The clock is given, so that tests can set it. Not safe from several threads by itself.
"""

from __future__ import annotations

__all__ = ["Limit"]

BURST = 50  # messages at once
PER_SECOND = 5  # messages from then on
MOST = 2000  # messages of a cell, ever


class Limit:
    """Says which messages of one cell are shown.

    Attributes
    ----------
    left_out : int
        Messages that were not shown, and have not been told of.
    """

    def __init__(self, now: float) -> None:
        self.left_out = 0
        self._shown = 0
        self._room = float(BURST)
        self._then = now

    def take(self, now: float) -> bool:
        """Whether to show a message that comes now; counts it if not."""
        self._room = min(float(BURST), self._room + (now - self._then) * PER_SECOND)
        self._then = now
        if self._room < 1 or self._shown >= MOST:
            self.left_out += 1
            return False
        self._room -= 1
        self._shown += 1
        return True

    def told(self) -> int:
        """Return how many were left out since the last time."""
        count, self.left_out = self.left_out, 0
        return count
