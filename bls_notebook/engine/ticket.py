"""`Ticket`: one request in flight, from when it is queued until its last response.

Guarantees: every ticket gets its final response exactly once, whatever the model does; responses are
read in the order in which they were sent; `send` may be called from any thread; no callback runs
while the ticket's lock is held. A sender or a request that is dropped unanswered ends the ticket with an
error.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from time import perf_counter, perf_counter_ns

from bls_notebook.devices import allocation_log
from bls_notebook.devices.transfers import nbytes
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.sender import CLOSED

from .core.execution import Execution
from .core.instance import Instance
from .core.model import LoadedModel
from .error_messages import execute_failed, never_finalised, not_ready, unread_responses
from .failures import cancelled_response, error_response, originating, over_bls
from .recording import log as recording
from .recording.log import HeldBack
from .recording.spans import record_response, record_sent
from .tensors.outputs import answer, returned_none
from .tensors.request_check import reshape_all
from .waiting.ctrl_c import awaited, need_room
from .waiting.threads import Parker, later
from .warnings import with_warnings

_new_lock = threading.Lock
log = logging.getLogger("bls_notebook")
UNREAD_BYTES = 256 << 20  # of responses that wait to be read, from which on somebody is told
_RESPONSE_BYTES = 1 << 10  # about what one takes beside its tensors
SECOND_RESPONSE = "Unable to send response. Non-decoupled model cannot send more than one response."
_ONLY_FINAL = "Unable to send response. Non-decoupled model cannot send complete final before sending a response."


class Ticket:
    """A request on its way through a model version.

    `request`: as the model receives it. `parent`: who sent it. `context`: where the model runs, when it runs
    in another thread.
    """

    __slots__ = (
        "__weakref__",
        "_answered",
        "_closed",
        "_lock",
        "_only",
        "_parkers",
        "_responses",
        "_sent",
        "_unfinished",
        "arrived",
        "bound",
        "cancelled",
        "circle",
        "context",
        "discarded",
        "execution",
        "expires",
        "held",
        "interrupted",
        "keep",
        "model",
        "on_response",
        "outside",
        "parent",
        "queued",
        "queued_at",
        "refused",
        "request",
        "requested",
        "sent_bytes",
        "serving",
        "span",
        "track",
    )

    arrived: int
    circle: Sequence[str]  # names of the models of the circle that it is refused for
    discarded: bool
    interrupted: bool
    sent_bytes: int  # of its responses, while it is recorded
    span: int  # its number in a profile, 0 where it is not recorded
    refused: bool  # chosen to break a circle, and about to be answered
    _only: list[InferenceResponse] | None
    # Several, in order.
    _responses: deque[tuple[InferenceResponse, bool]] | None

    def __init__(
        self, model: LoadedModel, request: InferenceRequest, parent: Execution | None, context: Context | None
    ) -> None:
        # Making one is on the path of every queued request: slots, and all of them set, are quickest.
        self.model = model
        self.request: InferenceRequest | None = request
        self.requested = request._requested
        self.parent = parent
        self.context = context
        self.queued_at = now = perf_counter_ns()
        try:
            self.arrived = request._arrived
            self.span = request._span
        except AttributeError:  # it was made here, not handed over by anybody
            self.arrived = now
            self.span = 0
        self.serving: set[Ticket] | None = None  # where it is listed until it is answered (`Instance`)
        self.outside = False  # its model's scheduler does not know of it: answered by the cache, or a warm-up
        self.queued = False  # in its scheduler's queue; written under the scheduler's lock
        self.bound: tuple[Instance, ...] | None = None  # while queued: who can serve it; None for every one
        self.expires = False  # while queued: a timer answers it, if nothing else does
        self.held = False  # its responses wait until others have been given (preserve_ordering)
        self.cancelled = self.interrupted = self.refused = self.discarded = False
        self.circle = ()
        self.execution: Execution | None = None
        self.on_response: Callable[[], None] | None = None
        # Sees each answer first; takes no lock of a ticket.
        self.keep: Callable[[InferenceResponse], None] | None = None
        self._lock = _new_lock()
        self._parkers: list[Parker] | None = None
        self._closed = False  # the model may send nothing more
        self._answered = False  # the final response is in
        self._sent = 0
        self._unfinished: InferenceResponse | None = None  # the answer, while its final flag is awaited
        # What is to be read: the answer of a request that has one, in a list so that it is taken once,
        # or everything in order.
        self._only = self._responses = None
        # The number of its request, while a memory track is on.
        self.track = 0 if allocation_log.recording is None else getattr(request, "_track", 0)
        if self.span:
            self.sent_bytes = 0
            if context is not None or parent is None:
                record_sent(self, request)

    @property
    def done(self) -> bool:
        """Whether the final response has been sent."""
        return self._answered

    @property
    def sent(self) -> bool:
        """Whether the model has sent anything."""
        return self._sent > 0

    @property
    def ready(self) -> bool:
        """Whether a response can be read now."""
        return not self.held and (self._answered or bool(self._responses))

    # -- the model's side ------------------------------------------------------------------------

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        """Take a response from the model (`Answerable.send`)."""
        need_room()
        with self._lock:
            if not self.model.decoupled:
                if response is not None and self._sent:
                    raise TritonModelException(SECOND_RESPONSE)
                if response is None and not self._sent:
                    raise TritonModelException(_ONLY_FINAL)
            if self._closed:
                raise TritonModelException(CLOSED)
            if response is not None:  # first what may fail: then it has not been sent
                who = "" if self.execution is None else self.execution.instance_name
                out = answer([response], 0, self.requested, False, self.model.outputs, who, self.track)
                if self._responses:
                    self.note_unread(out)
                out = with_warnings(out, self.model, self.execution, self.parent)
            self._closed = final
            self._sent += 1
            if response is None:
                if not self.model.decoupled and (self._answered or self._unfinished is None):
                    return  # the response before was the answer
                out = self._unfinished or InferenceResponse()
                self._unfinished = None
            else:
                if not final and not self.model.decoupled:
                    self._unfinished = out
                    if self.model.outputs.strict:
                        return  # until it is known that the flag follows
            # What a model that is not decoupled sends is its answer, with or without the flag.
            if self.keep is not None:
                self.keep(out)
            last = (final or not self.model.decoupled) and not self._answered
            woken = self._put(out, final or not self.model.decoupled)
        self._wake(woken, last)

    def note_unread(self, response: InferenceResponse) -> None:
        """Warn, by the response that comes next, of those that nobody reads, whenever they have doubled."""
        unread = self._responses
        number = 0 if unread is None else len(unread)
        if unread is None or not number or number & (number - 1):
            return
        size = nbytes(tensor for each, _ in unread.copy() for tensor in each._outputs)
        if size + number * _RESPONSE_BYTES >= UNREAD_BYTES:
            told = unread_responses(self.model.name, number, size)
            log.warning(told)
            response._warnings = (*response._warnings, told)

    def drop_sender(self) -> None:
        """Take note that nobody can answer any more (`Answerable.drop_sender`)."""
        if not self._closed:
            late = self._unfinished
            if late is not None:
                late._warnings = (*late._warnings, never_finalised(self.model.name))
            later(self._forgotten)

    def _forgotten(self) -> None:
        if self._unfinished is not None and not self._answered:  # strict
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

    # -- the engine's side -----------------------------------------------------------------------

    def finish(self, response: InferenceResponse, final: bool = True) -> bool:
        """Give a response as it is, unless the final one is in already; whether this one was taken."""
        with self._lock:
            self._closed = self._closed or final
            if self._answered:
                return False
            if self.keep is not None:
                self.keep(response)
            woken = self._put(response, final)
        self._wake(woken, final)
        return True

    def _put(self, response: InferenceResponse, final: bool) -> list[Parker] | None:
        """Queue a response; the lock is held."""
        if self._answered:
            return None
        if response._error is not None:
            response = originating(response, self.model)
            if self.parent is not None and self.parent.model is not None:
                response = over_bls(response)
        response._arrived = perf_counter()
        if self.span:
            record_response(self, response, final)
        if final and self._responses is None:
            self._only = [response]
        elif not self.discarded or final:
            if self._responses is None:
                self._responses = deque()
            self._responses.append((response, final))
        self._answered = final
        if self.held:
            return None
        woken, self._parkers = self._parkers, None
        return woken

    def _wake(self, parkers: list[Parker] | None, final: bool) -> None:
        then = None
        if final:  # first: who is woken may send the next request at once
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
        """It came too late: it goes to the version that has taken the place of its model."""
        model, request = self.model, self.request
        heir = model.server.find(model.name, model.version) or model.server.find(model.name)
        problem = not_ready(model.name)
        if heir is not None and heir is not model and request is not None:
            reshape_all(request._inputs, {name: there.back() for name, there in model.reshapes.items()})
            found = heir.check.problem(request)
            if found is None:
                reshape_all(request._inputs, heir.reshapes)
                self.model = heir
                heir.scheduler.submit(self)
                return
            problem = found
        self.outside = True  # counted by no scheduler
        self.finish(error_response(problem))

    def let_go(self) -> None:
        """Give the responses that were held back; what comes now is given at once."""
        with self._lock:
            self.held = False
            log = recording.active
            if self.span and self._answered and log is not None:
                log.held.extend(HeldBack(self.span, perf_counter_ns()))
            woken, self._parkers = self._parkers, None
        for parker in woken or ():
            parker.unpark()
        callback = self.on_response
        if callback is not None and self.ready:
            callback()

    def take(self) -> tuple[InferenceResponse, bool] | None:
        """Return the next response if there is one, without waiting; True with the last."""
        if self.held:
            return None
        try:
            if self._only is not None:
                return self._only.pop(), True
            return None if self._responses is None else self._responses.popleft()
        except IndexError:
            return None

    def is_over(self) -> bool:
        """Whether the last response has been taken."""
        with self._lock:
            return self._answered and not (self.held or self._only or self._responses)

    def parker(self) -> Parker | None:
        """Return where to wait for the next response; None where there is one already."""
        with self._lock:
            if self.ready:
                return None
            parker = Parker()
            self._parkers = [*(self._parkers or ()), parker]
            return parker

    # -- the requester's side --------------------------------------------------------------------

    def cancel(self) -> None:
        """Give up: a queued request is dropped, a running model is told by `is_cancelled()`."""
        self.cancelled = True
        log = recording.active
        if self.span and not self._answered and log is not None:
            log.mark(self.span, perf_counter_ns(), "cancelled")
        if self.model.scheduler.withdraw(self):
            self.finish(cancelled_response(self.model.name))

    def abandon(self) -> None:
        """Give up, as who awaited it does; where that is because of Ctrl-C, stop the model too."""
        self.cancel()
        if awaited.is_set() and (self.parent is None or self.parent.model is None):
            threading.Timer(0, self.interrupt).start()  # not in a handler of signals: it takes locks

    def interrupt(self) -> None:
        """Give up and stop the model that runs it, where it can be stopped."""
        self.interrupted = True
        self.cancel()
        execution = self.execution
        if execution is not None:
            execution.interrupt()
        self.finish(cancelled_response(self.model.name))

    def discard(self) -> None:
        """Nobody reads the responses any more (`ResponseStream.discard`)."""
        self.discarded = True
        for unread in (self._only, self._responses):
            if unread is not None:
                unread.clear()
