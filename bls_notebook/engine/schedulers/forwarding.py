"""The scheduler of models on a remote server: forwards every request at once.

Guarantees: any number of requests may be in flight; awaited ones block no thread of the kernel. Requests of one
sequence are sent one after the other, in the order of arrival. Every accepted request is answered. Cancelling ends a
request here at once, and on the server if the protocol supports it. Once closed, the scheduler accepts no request, and
calls `on_drained` when the last one has been answered. The log reports a long wait once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import cast

from bls_notebook.backends.protocol import Exchange, RemoteBackend
from bls_notebook.engine import observer
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.model_counters import FOLD_AT
from bls_notebook.engine.error_responses import cancelled_response, error_response, with_warnings
from bls_notebook.engine.errors import running
from bls_notebook.engine.tensors.outputs import answer
from bls_notebook.engine.tensors.received_inputs import rows_of
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.clock import Recheck
from bls_notebook.engine.waiting.interrupts import need_room
from bls_notebook.engine.waiting.worker_threads import start_in_thread
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.response import InferenceResponse

from .lifecycle import Lifecycle

REPORT_SECONDS = 10.0  # the log reports a longer wait for a response

log = logging.getLogger("bls_notebook")


class _Sent:
    """A request in flight."""

    __slots__ = ("exchange", "reported", "rows", "started")

    def __init__(self, exchange: Exchange, rows: int) -> None:
        self.exchange = exchange
        self.rows = rows
        self.reported = False  # whether the log has reported its long wait
        self.started = perf_counter_ns()


class ForwardingScheduler(Lifecycle):
    """Scheduler of one version of a remote model."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model)
        self._idle = list(model.instances)
        self._queue: set[Ticket] = set()  # tickets that wait for an earlier request of their sequence
        self._sequences: dict[int | str, deque[Ticket]] = {}  # waiting tickets, by sequence with a request in flight
        self._under_way: dict[Ticket, _Sent] = {}
        self._in_sequence: dict[Ticket, int | str] = {}
        backend = cast(RemoteBackend, model.instances[0].backend)
        self._send, self._link = backend.send, backend.link
        self._batching = model.spec.max_batch_size > 0

    def submit(self, ticket: Ticket) -> None:
        need_room()
        if self._accepted(ticket):
            self._start(ticket)

    def _accepted(self, ticket: Ticket) -> bool:
        """Return whether to send a request now; otherwise it waits, or is passed to the model's next version."""
        request = ticket.request
        sequence = 0 if request is None else request._options.correlation_id
        with self._lock:
            closed = self._closed
            if not closed and sequence:
                line = self._sequences.get(sequence)
                self._in_sequence[ticket] = sequence
                if line is not None:
                    line.append(ticket)
                    ticket.queued = True
                    self._queue.add(ticket)
                    return False
                self._sequences[sequence] = deque()
            if not closed:
                self._open.add(ticket)
        if closed:
            ticket.pass_on()
        return not closed

    def _start(self, ticket: Ticket) -> None:
        """Send a request, or answer it with an error."""
        request, ticket.request = ticket.request, None
        if request is None or ticket.cancelled:
            ticket.finish(cancelled_response(self._model.name))
            return
        try:
            sent = self._under_way[ticket] = _Sent(self._send(request), rows_of(request) if self._batching else 1)
        except (ValueError, MemoryError) as error:
            ticket.finish(error_response(running(self._model.name, str(error)), ErrorCode.UNSUPPORTED))
            return
        del request
        ticket.serving = self._model.instances[0].serving
        ticket.serving.add(ticket)
        if (watching := observer.active) is not None:
            watching.began((ticket.observed,), (sent.rows,), self._model.instances[0].place, sent.started)
        if ticket.cancelled:  # just before the request was in `_under_way`
            sent.exchange.cancel()
        _waits.add(ticket, REPORT_SECONDS)
        sent.exchange.start(partial(self._answered, ticket), start_in_thread)

    def _answered(self, ticket: Ticket, responses: list[InferenceResponse], final: bool) -> None:
        model, sent = self._model, self._under_way.get(ticket)
        box = [responses.pop()]  # the only reference to the response, so its memory can move
        failed = box[0]._error is not None
        received = perf_counter_ns()
        out = answer(box, 0, ticket.requested, True, model.outputs, model.instances[0].name, ticket.observed)
        if model.decoupled:
            ticket.note_unread(out)
        if out._warnings:
            out = with_warnings(out, model, None, ticket.parent)
        if final and sent is not None:
            self._note_times(ticket, sent, received, failed)
        if model.decoupled and not ticket.done:
            ticket._sent += 1
        ticket.finish(out, final)

    def _note_times(self, ticket: Ticket, sent: _Sent, received: int, failed: bool) -> None:
        statistics, ended = self._model.statistics, perf_counter_ns()
        if failed:
            statistics.execution(sent.rows, 0, received - sent.started, 0)
            statistics.failed(ended - ticket.arrived)
        else:
            times = (ticket.arrived, ticket.queued_at, sent.started, received, ended)
            statistics.alone.append((sent.rows, *times))
            if len(statistics.alone) >= FOLD_AT:
                statistics.fold()
        if (watching := observer.active) is not None:
            watching.ended((ticket.observed,), received, sent.started)  # the instance was never occupied

    def withdraw(self, ticket: Ticket) -> bool:
        """Remove a waiting request; cancel one in flight."""
        if super().withdraw(ticket):
            return True
        sent = self._under_way.get(ticket)
        if sent is not None:
            sent.exchange.cancel()
        return False

    def drop_cancelled(self, ticket: Ticket) -> bool:
        return self.withdraw(ticket)

    def _remove(self, ticket: Ticket) -> None:
        line = self._sequences.get(self._in_sequence.pop(ticket, 0))
        if line is not None and ticket in line:
            line.remove(ticket)

    def settled(self, ticket: Ticket) -> Callable[[], None] | None:
        """Count a ticket as answered; send the next request of its sequence."""
        following: Ticket | None = None
        with self._lock:
            self._under_way.pop(ticket, None)
            sequence = self._in_sequence.pop(ticket, 0)
            line = self._sequences.get(sequence) if ticket in self._open else None
            self._open.discard(ticket)
            if line:
                following = line.popleft()
                following.queued = False
                self._queue.discard(following)
                self._open.add(following)
            elif line is not None:
                del self._sequences[sequence]
        if ticket.serving is not None:
            ticket.serving.discard(ticket)
        if self._watch:
            self._notify()
        return None if following is None else partial(self._start, following)

    def _look(self) -> None:
        """Do nothing: no instance waits for work."""

    def report_waits(self) -> None:
        """Log requests that have waited long for the server, each once."""
        now = perf_counter_ns()
        long = [
            (ticket, sent)
            for ticket, sent in self._under_way.copy().items()
            if not sent.reported and now - sent.started >= REPORT_SECONDS * 1e9
        ]
        if not long:
            return
        for _, sent in long:
            sent.reported = True
        ticket, sent = min(long, key=lambda wait: wait[1].started)
        sender = "?" if ticket.parent is None else ticket.parent.model_name
        others = f", and {len(long) - 1} more have been waiting too" if len(long) > 1 else ""
        log.warning(
            f"A request from '{sender}' to '{self._model.name}' has been waiting for {self._link.address} "
            f"for {(now - sent.started) / 1e9:.1f} s{others}. If models there wait for models here in "
            "turn, this never ends; interrupt (Ctrl-C) to get out, or give bls.connect a timeout=."
        )


def _report_waits() -> None:
    for scheduler in {ticket.model.scheduler for ticket in _waits.watched()}:
        scheduler.report_waits()


_waits = Recheck(_report_waits)  # the requests in flight, weakly
