"""What `async_exec` returns: a future of the caller's loop, under way before it is awaited.

Guarantees: the future is completed in its own loop's thread; cancelling it cancels the request.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bls_notebook.engine.ticket import Ticket

from .event_loops import Mailbox, mailbox


class RequestFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future of the response, or of the iterator, of one request."""

    __slots__ = ("_box", "_stream", "ticket")

    ticket: Ticket
    _box: Mailbox
    _stream: Any

    def _on_response(self) -> None:
        ticket = self.ticket
        if ticket.on_response is not None:
            ticket.on_response = None  # only the first response matters here
            self._box.post(self._complete)

    def _complete(self) -> None:
        if self.done():
            return
        if self._stream is not None:
            self.set_result(self._stream)
            return
        ticket = self.ticket
        taken = ticket.take()
        if taken is not None:
            response = taken[0]
            if response._error is not None and ticket.parent is not None:
                ticket.parent.note_error(response)
            self.set_result(response)

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self.ticket.abandon()
        return cancelled


def response_of(ticket: Ticket, loop: asyncio.AbstractEventLoop, stream: Any = None) -> RequestFuture:
    """Return a future of a ticket's first response, or of `stream`; the ticket is not queued yet."""
    future = RequestFuture(loop=loop)
    future.ticket = ticket
    future._box = mailbox(loop)
    future._stream = stream
    ticket.on_response = future._on_response
    return future
