"""`Ordering`: responses in the order in which their requests were put into batches (preserve_ordering).

Guarantees: a response is given once whoever waits for each request before it has been told of its last one;
responses of the first request are given as they come. A request that one before it waits for is not held:
on the real server those two would wait for each other for ever. Every method needs the scheduler's
lock; `release` takes it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.ticket import Ticket


class Ordering:
    """The requests whose answers are to come in order."""

    def __init__(self) -> None:
        self._line: dict[Ticket, bool] = {}  # and whether who waits for it has been told
        self.releasing = False

    def enrol(self, tickets: Sequence[Ticket]) -> None:
        """Put requests at the end of the line; called before they are run."""
        for ticket in tickets:
            if self._line and not self._is_awaited(ticket):
                ticket.held = True
            self._line[ticket] = False

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
        if not ticket.held and ticket in self._line and next(iter(self._line)) is not ticket:
            del self._line[ticket]

    def told(self, ticket: Ticket) -> None:
        """Who waits for a request has been told of its last response, or will be when it is let go."""
        if ticket in self._line:
            self._line[ticket] = True

    def advance(self) -> Ticket | None:
        """Return a request that need not be held any more; to be let go, and asked again. None for none."""
        while self._line:
            first = next(iter(self._line))
            if first.held:
                return first
            if not self._line[first]:
                return None
            del self._line[first]
        return None


def release(ordering: Ordering, ticket: Ticket, lock: threading.Lock) -> None:
    """Let go of every request whose turn has come now that one has been told; without the lock.

    One thread at a time does, or readers would be woken in another order.
    """
    with lock:
        ordering.told(ticket)
        if ordering.releasing:
            return  # who is at it asks once more
        ordering.releasing = True
    while True:
        with lock:
            following = ordering.advance()
            if following is None:
                ordering.releasing = False
                return
        following.let_go()
