"""`Ticket`: one request in flight, from when it is queued until its last response.

Guarantees: every ticket gets its final response exactly once, whatever the model does. Responses are read in the
order in which they were sent. Any thread may call `send`. No callback runs while the ticket's lock is held. If the
model drops a request and its sender without an answer, the ticket ends with an error. `give_up` answers every request
in flight of some models without waiting; only a request on its caller's thread is answered when `execute` returns.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from contextvars import Context
from time import perf_counter, perf_counter_ns

from bls_notebook.devices.transfers import nbytes
from bls_notebook.pb_utils.errors import ErrorCode, TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import CLOSED, ENDED, InferenceResponse
from bls_notebook.records import units

from . import observer
from .core.execution import Execution
from .core.instance import Instance
from .core.model import LoadedModel
from .core.signature_check import reshape_all
from .error_responses import cancelled_response, error_response, originating, over_bls, with_warnings
from .errors import execute_failed, running
from .observer import Observed
from .tensors.outputs import answer, returned_none
from .waiting.interrupts import awaited, need_room
from .waiting.parker import Parker
from .waiting.worker_threads import later

_new_lock = threading.Lock
log = logging.getLogger("bls_notebook")
UNREAD_BYTES = 256 << 20  # unread responses of this size cause a warning
_RESPONSE_BYTES = 1 << 10  # approximate size of a response without its tensors
SECOND_RESPONSE = "Unable to send response. Non-decoupled model cannot send more than one response."
_ONLY_FINAL = "Unable to send response. Non-decoupled model cannot send complete final before sending a response."


class Ticket:
    """A request on its way through a model version; on another thread, the model runs in `context`."""

    __slots__ = (
        "__weakref__", "_closed", "_lock", "_only", "_parkers", "_responses", "_sent", "_unfinished",
        "arrived", "bound", "cancelled", "context", "discarded", "done", "execution", "expires", "held",
        "interrupted", "keep", "model", "observed", "on_response", "outside", "parent", "posted", "queued", "queued_at",
        "refused", "request", "requested", "serving",
    )  # fmt: skip

    arrived: int
    discarded: bool  # no one reads its responses
    interrupted: bool  # it may not begin any more
    observed: Observed | None  # None if nothing observed that the request was received
    refused: bool  # chosen to break a deadlock, and about to be answered
    # The unread responses: a single final one in a list, so that it is taken once, or several in order.
    _only: list[InferenceResponse] | None
    _responses: deque[tuple[InferenceResponse, bool]] | None

    def __init__(
        self, model: LoadedModel, request: InferenceRequest, parent: Execution | None, context: Context | None
    ) -> None:
        # On the path of every queued request: objects with slots, all of them set, are fastest.
        self.model = model
        self.request: InferenceRequest | None = request
        self.requested = request._requested
        self.parent = parent
        self.context = context
        self.queued_at = now = perf_counter_ns()
        try:
            self.arrived = request._arrived
            self.observed = request._observed
        except AttributeError:  # the scheduler made it, so it did not pass `received`
            self.arrived = now
            self.observed = None
        self.serving: set[Ticket] | None = None  # `Instance.serving`, which contains it until it is answered
        self.posted = False  # to a home, by `home_call`
        self.outside = False  # not counted by its model's scheduler, because another part answers it
        self.queued = False  # True while in its scheduler's queue; guarded by the scheduler's lock
        self.bound: tuple[Instance, ...] | None = None  # while queued: the instances that can serve it; None for all
        self.expires = False  # while queued: a timer answers it at the latest
        self.held = False  # its responses wait for those of earlier requests (preserve_ordering)
        self.cancelled = self.interrupted = self.refused = self.discarded = False
        self.execution: Execution | None = None
        self.on_response: Callable[[], None] | None = None
        # Called with each answer before it is delivered; must not take a ticket's lock.
        self.keep: Callable[[InferenceResponse], None] | None = None
        self._lock = _new_lock()
        self._parkers: list[Parker] | None = None
        self._closed = False  # the model may send no more responses
        self.done = False  # whether the final response has been sent
        self._sent = 0
        self._unfinished: InferenceResponse | None = None  # the answer, while its final flag is awaited
        self._only = self._responses = None
        if self.observed is not None and self.observed.span and (context is not None or parent is None):
            watching = observer.active
            if watching is not None:
                watching.sent(model, parent, request, now)

    @property
    def sent(self) -> bool:
        return self._sent > 0

    @property
    def ready(self) -> bool:
        return not self.held and (self.done or bool(self._responses))

    def is_cancelled(self) -> bool:
        if self._closed and not self.cancelled:
            raise TritonModelException(ENDED)
        return self.cancelled

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        need_room()
        with self._lock:
            if not self.model.decoupled:
                if response is not None and self._sent:
                    raise TritonModelException(SECOND_RESPONSE)
                if response is None and not self._sent:
                    raise TritonModelException(_ONLY_FINAL)
            if self._closed:
                raise TritonModelException(CLOSED)
            if response is not None:  # before any state changes, because this may fail
                who = "" if self.execution is None else self.execution.instance_name
                out = answer([response], 0, self.requested, False, self.model.outputs, who, self.observed)
                if self._responses:
                    self.note_unread(out)
                out = with_warnings(out, self.model, self.execution, self.parent, returned=False)
            self._closed = final
            if response is not None and not self._sent:
                self.model.statistics.first_response(perf_counter_ns() - self.arrived)
            self._sent += 1
            if response is None:
                if not self.model.decoupled and (self.done or self._unfinished is None):
                    return  # the previous response was the answer
                out = self._unfinished or InferenceResponse()
                self._unfinished = None
            else:
                if not final and not self.model.decoupled:
                    self._unfinished = out
                    if self.model.outputs.strict:
                        return  # in strict mode, wait for the final flag
            # A response of a model that is not decoupled is its answer, with or without the flag.
            if self.keep is not None:
                self.keep(out)
            last = (final or not self.model.decoupled) and not self.done
            woken = self._put(out, final or not self.model.decoupled)
        self._wake(woken, last)

    def note_unread(self, response: InferenceResponse) -> None:
        """Warn about unread responses each time their number doubles."""
        unread = self._responses
        number = 0 if unread is None else len(unread)
        if unread is None or not number or number & (number - 1):
            return
        size = nbytes(tensor for earlier, _ in unread.copy() for tensor in earlier._outputs)
        if size + number * _RESPONSE_BYTES >= UNREAD_BYTES:
            warning = (
                f"model '{self.model.name}': {number:,} responses to one request ({units.size(size)}) wait to be "
                "read, and stay in memory until then; Triton does not slow a sender down either, unless it runs with "
                "--grpc-max-response-pool-size. Read responses when they arrive, or cancel the request"
            )
            log.warning(warning)
            response._warnings = (*response._warnings, warning)

    def drop_sender(self) -> None:
        if not self._closed:
            late = self._unfinished
            if late is not None:
                warning = (
                    f"model '{self.model.name}': the response sender was dropped without its final flag; send the "
                    "response with flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
                )
                late._warnings = (*late._warnings, warning)
            later(self._forgotten)

    def _forgotten(self) -> None:
        if self._unfinished is not None and not self.done:  # strict mode
            self.finish(with_warnings(self._unfinished, self.model, None, None))
        name = self.execution.instance_name if self.execution is not None else self.model.name
        what = (
            "the response sender was dropped before its final flag was sent"
            if self._sent or self.model.decoupled
            else returned_none("execute returned None")
        )
        if self.model.decoupled:
            what += (
                ": send a last response, or none, with flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL. "
                "(The real server would keep the caller waiting forever.)"
            )
        self.finish(error_response(execute_failed(name, what)))

    def finish(self, response: InferenceResponse, final: bool = True) -> bool:
        """Deliver a response, unless the request has its final one; return whether it was delivered."""
        with self._lock:
            self._closed = self._closed or final
            if self.done:
                return False
            if not self._sent and self._responses is None and not self.discarded:
                self.model.statistics.first_response(perf_counter_ns() - self.arrived)
            if self.keep is not None:
                self.keep(response)
            woken = self._put(response, final)
        self._wake(woken, final)
        return True

    def finish_alone(self, response: InferenceResponse) -> None:
        """As `finish`, in fewer steps, for the only response to a synchronous request."""
        if not self.outside or response._error is not None or self.model.statistics.first_bounds is not None:
            self.finish(response)
            return
        with self._lock:
            self._closed = True
            if self.done:
                return
            response._arrived = perf_counter()
            if self.observed is not None and self.observed.span and (watching := observer.active) is not None:
                watching.answered(self.observed, response, True, self)
            self._only = [response]
            self.done = True
            woken, self._parkers = self._parkers, None
        parent = self.parent
        if parent is not None and parent._children is not None:
            parent._children.discard(self)
        for parker in woken or ():
            parker.unpark()

    def _put(self, response: InferenceResponse, final: bool) -> list[Parker] | None:
        """Queue a response; lock held."""
        if self.done:
            return None
        if response._error is not None:
            response = originating(response, self.model)
            if self.parent is not None and self.parent.model is not None:
                response = over_bls(response)
        response._arrived = perf_counter()
        if self.observed is not None and self.observed.span and (watching := observer.active) is not None:
            watching.answered(self.observed, response, final, self)
        if final and self._responses is None:
            self._only = [response]
        elif not self.discarded or final:
            if self._responses is None:
                self._responses = deque()
            self._responses.append((response, final))
        self.done = final
        if self.held:
            return None
        woken, self._parkers = self._parkers, None
        return woken

    def _wake(self, parkers: list[Parker] | None, final: bool) -> None:
        then = None
        if final:  # before the waiter wakes, because it may send the next request at once
            then = None if self.outside else self.model.scheduler.settled(self)
            if self.parent is not None:
                self.parent.forget(self)
        for parker in parkers or ():
            parker.unpark()
        callback = self.on_response
        if callback is not None and not self.held:
            callback()
        if then is not None:
            then()

    def pass_on(self) -> None:
        """Submit a request that came after its version closed to the version that replaced it."""
        model, request = self.model, self.request
        heir = model.server.find_key(model.name, model.version) or model.server.find_key(model.name)
        problem = model.server.unknown(model.name, model.version)
        if heir is not None and heir is not model and request is not None:
            reshape_all(request._inputs, {name: there.back() for name, there in model.reshapes.items()})
            mismatch = heir.check.problem(request)
            if mismatch is None:
                reshape_all(request._inputs, heir.reshapes)
                self.model = heir
                heir.scheduler.submit(self)
                return
            problem = mismatch
        self.outside = True
        self.finish(error_response(problem))

    def release(self) -> None:
        """Deliver the buffered responses and stop buffering."""
        with self._lock:
            self.held = False
            if self.observed is not None and self.done and (watching := observer.active) is not None:
                watching.marked(self.observed, "released")
            woken, self._parkers = self._parkers, None
        for parker in woken or ():
            parker.unpark()
        callback = self.on_response
        if callback is not None and self.ready:
            callback()

    def take(self) -> tuple[InferenceResponse, bool] | None:
        """Return the next response and whether it is the last; None if there is none yet."""
        if self.held:
            return None
        try:
            if self._only is not None:
                return self._only.pop(), True
            return None if self._responses is None else self._responses.popleft()
        except IndexError:
            return None

    def is_over(self) -> bool:
        with self._lock:
            return self.done and not (self.held or self._only or self._responses)

    def parker(self) -> Parker | None:
        """Return a `Parker` to wait for the next response; None if there is one already."""
        with self._lock:
            if self.ready:
                return None
            parker = Parker()
            self._parkers = [*(self._parkers or ()), parker]
            return parker

    def cancel(self) -> None:
        """Cancel as a client does: `is_cancelled()` returns True from now on, and a batcher drops a waiting request.

        As on a server, the default scheduler serves a waiting request all the same.
        """
        self._mark("cancelled")
        self.cancelled = True
        if self.model.scheduler.drop_cancelled(self):
            self.finish(cancelled_response(self.model.name))

    def abandon(self) -> None:
        """Handle that the awaiting future was cancelled.

        A client's request is cancelled; if Ctrl-C was the cause, the model is stopped, too. A model's request runs to
        its end, as on a server, where a thread of the model's executor waits for the response.
        """
        parent = self.parent
        if parent is None or parent.is_client:
            self.cancel()
        else:
            self._mark("abandoned")
        self.stop_on_ctrl_c()

    def stop_on_ctrl_c(self) -> None:
        """Stop the model if Ctrl-C ended a cell that awaits the response."""
        if awaited.is_set() and (self.parent is None or self.parent.model is None):
            threading.Timer(0, self.interrupt).start()  # takes locks, which a signal handler must not

    def interrupt(self) -> None:
        """Answer at once, remove a waiting request, and stop the model if it can be stopped."""
        self._mark("cancelled")
        self.cancelled = self.interrupted = True
        self.model.scheduler.withdraw(self)
        execution = self.execution
        if execution is not None:
            execution.interrupt()
        self.finish(cancelled_response(self.model.name))

    def _mark(self, kind: str) -> None:
        if self.observed is not None and not self.done and (watching := observer.active) is not None:
            watching.marked(self.observed, kind)

    def discard(self) -> None:
        self.discarded = True
        for unread in (self._only, self._responses):
            if unread is not None:
                unread.clear()


def _in_flight(models: Collection[LoadedModel]) -> list[Ticket]:
    ids = {id(model) for model in models}
    return [obj for obj in gc.get_objects() if type(obj) is Ticket and not obj.done and id(obj.model) in ids]


def _refuse(tickets: Collection[Ticket], why: str) -> None:
    for ticket in tickets:
        ticket.cancelled = ticket.interrupted = True
        ticket.model.scheduler.withdraw(ticket)
    executions = {e for e in (ticket.execution for ticket in tickets) if e is not None}
    for ticket in tickets:
        ticket.finish(error_response(running(ticket.model.name, why), ErrorCode.CANCELLED))
    for execution in executions:
        _stop(execution)


def _stop(execution: Execution) -> None:
    with contextlib.suppress(RuntimeError):  # during Python's shutdown no thread can be started
        execution.interrupt()


def give_up(models: Collection[LoadedModel], why: str) -> None:
    """Answer the requests in flight of some models with an error, and stop model code if possible."""
    _refuse(_in_flight(models), why)
    for model in models:
        for instance in model.instances:
            if isinstance(instance.holder, Execution):
                _stop(instance.holder)


def give_up_old(models: Collection[LoadedModel], since: int, seconds: float, why: str) -> None:
    """Answer requests with an error that have been in flight for some seconds, counted from `since` (ns) at most."""
    latest = perf_counter_ns() - int(seconds * 1e9)
    _refuse([t for t in _in_flight(models) if max(t.arrived, since) <= latest], why)
