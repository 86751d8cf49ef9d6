"""Waiting for the responses to a request, and response streams: the engine's side of a `ResponseIterator`.

Guarantees: a request that could never be answered is refused before a thread waits for it. Ctrl-C ends a wait and
interrupts the request. An awaited response occupies no thread.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Protocol

from bls_notebook.pb_utils.response import InferenceResponse, ResponseStream, StreamEnded

from .core.execution import Execution
from .deadlocks import reports
from .deadlocks.detection import check, check_again
from .deadlocks.wait_graph import lock
from .ticket import Ticket
from .waiting.busy_code import name_line, running_line
from .waiting.clock import LONGEST_PAUSE
from .waiting.event_loops import mailbox
from .waiting.parker import blocked


def wait_for(ticket: Ticket) -> None:
    """Wait until the ticket has a response; on Ctrl-C, interrupt the request and raise KeyboardInterrupt."""
    parker = ticket.parker()
    if parker is None:
        return
    thread, pause = threading.get_ident(), reports.REPORT_AFTER
    try:
        with lock:
            blocked[thread] = ticket
        check([ticket])
        while not parker.park(pause):
            check_again([ticket])
            pause = min(pause * 2, LONGEST_PAUSE)
    except BaseException as error:
        name_line(error, running_line(ticket))
        ticket.interrupt()
        raise
    finally:  # an entry that an exception leaves here does no harm: its ticket is done
        with lock:
            blocked.pop(thread, None)


def first_response(ticket: Ticket) -> InferenceResponse:
    while True:
        taken = ticket.take()
        if taken is not None:
            return taken[0]
        wait_for(ticket)


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
        self._ticket.cancel()
        self._ticket.stop_on_ctrl_c()

    def discard(self) -> None:
        self._ticket.discard()
