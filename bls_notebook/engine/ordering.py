"""`Ordering`: responses in the order in which their requests were put into batches (preserve_ordering).

Guarantees: a response is given once every request before it has had its last one; responses of the first
request are given as they come. A request that one before it waits for is not held: on the real server
those two would wait for each other for ever. Every method needs the scheduler's
lock; `release` takes it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .execution import Execution
    from .ticket import Ticket

__all__ = ["Ordering", "release"]


class Ordering:
    """The requests whose answers are to come in order."""

    def __init__(self) -> None:
        self._line: deque[Ticket] = deque()

    def enrol(self, tickets: Sequence[Ticket]) -> None:
        """Put requests at the end of the line; called before they are run."""
        for ticket in tickets:
            if self._line and not self._is_awaited(ticket):
                ticket.held = True
            self._line.append(ticket)

    def _is_awaited(self, ticket: Ticket) -> bool:
        """Whether a request in the line runs the code that sent this one."""
        execution: Execution | None = ticket.parent
        while execution is not None:
            if any(t.execution is execution for t in self._line):
                return True
            execution = execution.parent
        return False

    def settled(self, ticket: Ticket) -> None:
        """A request has had its last response, or was never put into a batch."""
        if not ticket.held and self._line and self._line[0] is not ticket:
            try:
                self._line.remove(ticket)
            except ValueError:
                pass

    def advance(self) -> Ticket | None:
        """Return a request that need not be held any more; to be let go, and asked again. None for none."""
        while self._line:
            first = self._line[0]
            if first.held:
                return first
            if not first.done:
                return None
            self._line.popleft()
        return None


def release(ordering: Ordering, lock: threading.Lock) -> None:
    """Let go of every request whose turn has come; without the lock, as readers are woken."""
    while True:
        with lock:
            ticket = ordering.advance()
        if ticket is None:
            return
        ticket.let_go()
