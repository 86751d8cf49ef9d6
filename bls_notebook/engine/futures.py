"""What `async_exec` returns: a future of the caller's loop, under way before it is awaited.

Guarantees: the future is completed in its own loop's thread; cancelling it cancels the request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bls_notebook.pb_utils.iterator import ResponseIterator

from .loops import Mailbox, mailbox

if TYPE_CHECKING:
    from .ticket import Ticket

__all__ = ["RequestFuture"]


class RequestFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future of the response, or of the iterator, of one request."""

    ticket: Ticket | None = None
    _iterator: Any = None
    _box: Mailbox

    def follow(self, ticket: Ticket, stream: Any = None) -> None:
        """Complete when the ticket's first response is there: with it, or with an iterator.

        Parameters
        ----------
        ticket : Ticket
            Not queued yet.
        stream : ResponseStream, optional
            For a decoupled request: what its iterator reads.
        """
        self.ticket = ticket
        self._box = mailbox(self.get_loop())
        self._iterator = stream
        ticket.on_response = self._on_response

    def _on_response(self) -> None:
        ticket = self.ticket
        if ticket is not None and ticket.on_response is not None:
            ticket.on_response = None  # only the first response matters here
            self._box.post(self._complete)

    def _complete(self) -> None:
        ticket = self.ticket
        if ticket is None or self.done():
            return
        if self._iterator is not None:
            self.set_result(ResponseIterator(self._iterator))
            return
        taken = ticket.take()
        if taken is not None:
            response = taken[0]
            if response._error is not None and ticket.parent is not None:
                ticket.parent.note_error(response)
            self.set_result(response)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the future and the request behind it."""
        cancelled = super().cancel(msg)
        if cancelled and self.ticket is not None:
            self.ticket.cancel()
        return cancelled
