"""Send a drill's request within time limits, also while a callee does not respond.

`TimedRequest` sends the request and returns its outcome; `DelayedResponse` keeps a callee's request unanswered and
reports whether its senders have a time limit. A drill does not wait long: the engine knows at once which senders
have no time limit (`limitless`), and `advanced_clocks` lets the time limits of event loops expire now.

Guarantee: `send` returns within its time limits whatever a model does, and the request has ended by then; otherwise it
raises `UnstoppableError`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic, perf_counter
from typing import Any

from bls_notebook.engine import BLSError, Execution, Parker, Ticket, blocked, caller_var, is_suspended, line_of
from bls_notebook.extending import Host
from bls_notebook.profiling.profiler import profile
from bls_notebook.records import FrameRecord
from bls_notebook.repository import (
    ModelRepository,
    SentRequest,
    Waiter,
    correlation_ids,
    sequence_options,
    sequence_spec,
)

from .verdicts import Outcome, facts_of, place_of

_HOUR = 3600.0


class DelayedResponse:
    """Keeps requests unanswered until `release`."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._on_entered: Callable[[], object] = self.entered.is_set
        self._released = False
        self._senders: list[Execution] = []  # callers of the first request, innermost first
        self._thread = 0

    def wait(self, wait: Waiter) -> None:
        """Wait until `release`, or until the request is cancelled."""
        if not self.entered.is_set():
            execution = caller_var.get()
            self._thread = threading.get_ident()
            parent = execution.parent if isinstance(execution, Execution) else None
            while parent is not None:
                if parent.model is not None:
                    self._senders.append(parent)
                parent = parent.parent
            self.entered.set()
            self._on_entered()
        wait.until(lambda: self._released)

    def when_entered(self, function: Callable[[], None]) -> None:
        """Call a function when the first request has come, or now."""
        self._on_entered = function
        if self.entered.is_set():
            function()

    def release(self) -> None:
        self._released = True

    @property
    def limitless(self) -> bool:
        """True if every caller waits in the engine, which has no time limit."""
        return bool(self._senders) and all(map(self._waits_in_engine, self._senders))

    def _waits_in_engine(self, sender: Execution) -> bool:
        if sender.combined:
            return True
        if is_suspended(sender):
            return False  # its loop may have a time limit
        return sender.thread == self._thread or isinstance(blocked.get(sender.thread), Ticket)

    @property
    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """The event loops in which a sender waits for the response."""
        tasks = [sender.task for sender in self._senders if sender.task is not None]
        return list({id(task.get_loop()): task.get_loop() for task in tasks}.values())

    def line(self) -> FrameRecord | None:
        """Return the line at which the innermost visible caller waits."""
        return next(filter(None, map(line_of, self._senders)), None)


@contextmanager
def advanced_clocks(loops: list[asyncio.AbstractEventLoop], seconds: float) -> Iterator[None]:
    """Advance the clocks of event loops, so that timers due within `seconds` expire now."""
    changed: list[Any] = []
    for loop in loops:
        untyped: Any = loop
        clock = loop.time
        untyped.time = lambda clock=clock: clock() + seconds
        changed.append(untyped)
        loop.call_soon_threadsafe(lambda: None)  # wakes it
    try:
        yield
    finally:
        for loop in changed:
            del loop.time


_SLICE = 0.005
_PATIENCE = 3
_STOPPING = 2.0  # seconds
_FIRST = 60.0  # seconds for the first request, in which models may import packages


class UnstoppableError(BLSError):
    """A model ignores the interrupt and continues to run."""


class TimedRequest:
    """One request of a drill: each `send` sends ``inputs`` and ``options`` to ``model``.

    ``timeout`` (s) is how much later than usual a response may come.
    """

    def __init__(
        self,
        repository: ModelRepository,
        model: str,
        inputs: Mapping[str, Any],
        options: Mapping[str, Any],
        timeout: float,
    ) -> None:
        self.host = Host(repository)
        loaded = self.host.ready(model)
        self.repository, self.model, self.server = repository, model, loaded.server
        self.decoupled, self.spec = loaded.decoupled, loaded.spec
        self.sequence = sequence_spec(model, lambda name: self.host.ready(name).spec)
        self.timeout = timeout
        self.usual = _FIRST  # latency (s) without a fault
        self.inputs, self.options = inputs, options

    @property
    def limit(self) -> float:
        """Timeout (s) of a request without an injected delay."""
        return self.timeout + 10 * self.usual

    def send(self, delay: DelayedResponse | None = None, calls: Callable[[], Mapping[str, int]] = dict) -> Outcome:
        """Send the request; raise an UnstoppableError if the model cannot be interrupted.

        ``delay`` keeps a callee's request unanswered, and is released before this returns; ``calls`` counts the
        requests that failing callees got.
        """
        began = perf_counter()
        sent = self._sent()
        news = Parker()  # the response, or a delayed request
        sent.add_done_callback(lambda _: news.unpark())
        if delay is not None:
            delay.when_entered(news.unpark)
        state, line, limitless = "answered", None, False
        try:
            # A busy machine gets a second chance before the model counts as hanging.
            if not (news.park(self.limit) or news.park(_PATIENCE * self.limit)):
                state, line = "stuck", self._line(sent)
            elif delay is not None and not sent.done():
                limitless = self._waits_without_limit(delay, sent)
                if not sent.done():
                    state, line = "waited", delay.line()
                    delay.release()
                    if not sent.wait((1 + _PATIENCE) * self.limit):
                        state, line = "stuck", self._line(sent) or line
        finally:
            if delay is not None:
                delay.release()
            if sent.cancel() and not sent.wait(_STOPPING):
                raise UnstoppableError(f"drill: model {self.model!r} continues to run: an interrupt did not stop it")
        at = None if line is None else place_of(line)
        answers = () if state == "stuck" else tuple(map(facts_of, _listed(sent.result())))
        return Outcome(answers, state, at, limitless, calls(), seconds=perf_counter() - began)

    def send_together(self, inputs: Sequence[Mapping[str, Any]]) -> tuple[list[Outcome | None], bool]:
        """Send requests at once; return their outcomes (None: no response), and whether they formed a batch."""
        with profile() as profiled:
            until = monotonic() + (1 + _PATIENCE) * self.limit
            sent = [self._sent(each) for each in inputs]
            done = [request.wait(max(0.0, until - monotonic())) for request in sent]
            for request in sent:
                request.cancel()
        outcomes = [
            Outcome(tuple(map(facts_of, _listed(request.result())))) if is_done else None
            for request, is_done in zip(sent, done, strict=True)
        ]
        return outcomes, any(span.batch for span in profiled.record.spans if span.model == self.model)

    def cancel(self, delay: DelayedResponse) -> bool:
        """Send the request and cancel it while a callee is silent; return whether that callee was reached."""
        sent = self._sent()
        news = Parker()
        delay.when_entered(news.unpark)
        reached = news.park(self.limit)
        sent.cancel()
        sent.wait(_STOPPING)
        delay.release()
        sent.wait(_STOPPING)
        return reached

    def _sent(self, inputs: Mapping[str, Any] | None = None) -> SentRequest:
        options = dict(self.options)
        if "flags" not in options:
            options |= sequence_options(self.sequence, next(correlation_ids))
        return self.host.send(self.host.request(self.model, inputs or self.inputs, **options), self.decoupled)

    def _waits_without_limit(self, delay: DelayedResponse, sent: SentRequest) -> bool:
        """Give the callers time to reach their time limits; return whether they certainly have none."""
        until = monotonic() + self.timeout
        settled = monotonic() + 10 * _SLICE
        while not sent.done() and monotonic() < settled:
            if delay.limitless:
                return True
            sent.wait(_SLICE)
        loops = delay.loops
        with advanced_clocks(loops, _HOUR):
            sent.wait(max(10 * _SLICE, 3 * self.usual) if loops else max(0.0, until - monotonic()))
        return bool(loops) and not sent.done()

    def _line(self, sent: SentRequest) -> FrameRecord | None:
        """Return the current line of a model that works on this request."""
        senders = (ticket.execution for ticket in list(sent.root.children))
        return next(filter(None, (line_of(sender) for sender in senders if sender is not None)), None)


def _listed(result: Any) -> list[Any]:
    return result if isinstance(result, list) else [result]
