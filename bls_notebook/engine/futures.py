"""What `async_exec` returns: a future of the caller's loop, under way before it is awaited.

Guarantees: the future is completed in its own loop's thread; cancelling it cancels the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bls_notebook.pb_utils.iterator import ResponseIterator

from .loops import mailbox

if TYPE_CHECKING:
    from .ticket import Ticket

__all__ = ["RequestFuture"]


class RequestFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future of the response, or of the iterator, of one request."""

    ticket: Ticket | None = None

    def follow(
        self, ticket: Ticket, result: Callable[[], Any] | None = None
    ) -> None:
        """Complete when the ticket's first response is there; before the ticket is queued."""
        self.ticket = ticket
        box = mailbox(self.get_loop())
        called = False

        def complete() -> None:
            if self.done():
                return
            if result is not None:
                self.set_result(result())
            else:
                taken = ticket.take()
                if taken is not None:
                    self.set_result(taken[0])

        def on_response() -> None:
            nonlocal called
            if not called:
                called = True
                box.post(complete)

        ticket.on_response = on_response

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the future and the request behind it."""
        cancelled = super().cancel(msg)
        if cancelled and self.ticket is not None:
            self.ticket.cancel()
        return cancelled


def iterator_result(stream: Any) -> Callable[[], ResponseIterator]:
    """Return what makes the iterator that a decoupled request's future results in."""
    return lambda: ResponseIterator(stream)
