"""Response streams: the engine's side of a `ResponseIterator`, which waits for a request's next response."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.ticket import Ticket
from bls_notebook.pb_utils.response import InferenceResponse, ResponseStream, StreamEnded

from .deadlock import wait_for
from .event_loops import mailbox


class AsyncResponseStream(ResponseStream, Protocol):
    """A stream of responses that can also be awaited."""

    async def next_response_async(self) -> tuple[InferenceResponse, bool]:
        """Await the next response; True with the last one."""


def _note(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


class AnsweredStream:
    """A stream of one response that exists already."""

    def __init__(self, response: InferenceResponse) -> None:
        self._left = [response]

    def next_response(self) -> tuple[InferenceResponse, bool]:
        try:
            return self._left.pop(), True
        except IndexError:
            raise StreamEnded from None

    async def next_response_async(self) -> tuple[InferenceResponse, bool]:
        return self.next_response()

    def cancel(self) -> None:
        """Do nothing: no request is in flight."""

    def discard(self) -> None:
        """Do nothing: no request is in flight."""


class TicketStream:
    """The responses of a ticket in the order in which they were sent."""

    def __init__(self, ticket: Ticket, reader: Execution) -> None:
        self._ticket = ticket
        self._reader = reader

    def next_response(self) -> tuple[InferenceResponse, bool]:
        while True:
            taken = self._ticket.take()
            if taken is not None:
                if taken[0]._error is not None:
                    self._reader.note_error(taken[0])
                return taken
            if self._ticket.is_over():
                raise StreamEnded
            wait_for(self._ticket)

    async def next_response_async(self) -> tuple[InferenceResponse, bool]:
        """Await the next response; True with the last. The wait occupies no thread."""
        ticket = self._ticket
        while True:
            loop = asyncio.get_running_loop()
            arrived = loop.create_future()
            ticket.on_response = partial(mailbox(loop).post, partial(_note, arrived))
            taken = ticket.take()  # after setting `on_response`, which is not called for earlier responses
            if taken is None and not ticket.is_over():
                await arrived
                taken = ticket.take()
            if taken is not None:
                ticket.on_response = None
                if taken[0]._error is not None:
                    self._reader.note_error(taken[0])
                return taken
            if ticket.is_over():
                raise StreamEnded

    def cancel(self) -> None:
        self._ticket.abandon()

    def discard(self) -> None:
        self._ticket.discard()
