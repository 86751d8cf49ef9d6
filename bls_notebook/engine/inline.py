"""`InlineCalls`: a synchronous request to an idle model, run on its caller's thread.

Guarantees: the instance is given back whatever strikes and wherever: Ctrl-C or another exception between any
two steps, the end of the stack, or what the model does. It is taken and given back in single steps that are
not Python code. So are the caller's context and its running loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from contextvars import copy_context
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from bls_notebook.devices.tracking import ledger
from bls_notebook.observe import recording
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .calling import SendingExecution
from .core.execution import Execution
from .core.statistics import FOLD_AT
from .description import ReturnError
from .failures import error_response
from .lost import log_lost
from .messages import execute_failed
from .recording import spans
from .runner import failure, rows_of
from .tensors.inbound import ARGUMENTS_STAY, taken_over
from .tensors.outputs import answer, check_returned, rescheduled_in_vain, returned_none
from .ticket import SECOND_RESPONSE, Ticket
from .waiting.ctrl_c import may_be_interrupted
from .waiting.lost_senders import leave_to_senders
from .waiting.waiting import first_response
from .warnings import with_warnings

if TYPE_CHECKING:
    from .core.instance import Instance
    from .core.model import LoadedModel

__all__ = ["InlineCalls"]

_get_ident = threading.get_ident
_LAST = (-1,)


class InlineCalls:
    """The half of a scheduler that serves on the caller's thread; a subclass queues what has to wait."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._idle: list[Instance] = list(model.instances)[::-1]
        self._take_idle = self._idle.pop
        self._queue: deque[Ticket] = deque()
        self._closed = False
        self._watch = False  # somebody is told when an instance comes back: closed, or some are to leave
        self._async = any(i.is_async for i in model.instances)
        self._takes_over = self._async or ARGUMENTS_STAY  # one look for both: every call pays for it
        self._batching = model.spec.max_batch_size > 0

    def _call_queued(self, parent: Execution, ticket: Ticket) -> InferenceResponse:
        """Serve a request that has to wait, or that does not run on its caller's thread."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Have one of the engine's threads see to the queue, and to what is to be done at the end."""
        raise NotImplementedError

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        """Serve a request and wait for its answer."""
        model = self._model
        if self._takes_over:
            request = taken_over(request) if ARGUMENTS_STAY else request
            if self._async:
                ticket = Ticket(model, request, parent, copy_context())
                del request  # whoever holds it could still answer it
                return self._call_queued(parent, ticket)
        execution = SendingExecution(parent.server, model, parent)
        request._answerable = execution
        held: list[Instance] = []  # the instance is in here or among the idle ones, at every moment
        before = caller_var.get()
        running_loop = _get_running_loop()
        response: InferenceResponse | None = None
        guard = None
        span = inferred = ended = 0
        try:
            with self._lock:
                if self._idle and not self._queue and not self._closed:
                    held.extend(map(self._take_idle, _LAST))
            if not held:
                ticket = Ticket(model, request, parent, copy_context())
                del request
                return self._call_queued(parent, ticket)
            instance = held[0]
            instance.holder = execution
            execution.instance = instance
            execution.request = request
            execution.thread = thread = _get_ident()
            if parent.thread != thread or parent.task is not None:
                guard = parent.watch(execution)
            if running_loop is not None:  # model code must not see the caller's (or Jupyter's) loop
                _set_running_loop(None)
                parent.note_blocking(model.name)
            caller_var.set(execution)
            begun = request._arrived
            rows = rows_of(request) if self._batching else 1
            failed = False
            span = execution.span = request._span
            if span:  # it is recorded for a profile
                options, inputs = request._options, request._inputs
                one = len(inputs) == 1 and inputs[0]._datatype != "BYTES"
                bytes_in = inputs[0]._array.nbytes if one else recording.nbytes(inputs)
                del inputs
                timer = spans.measured(span, instance) if instance.gpu >= 0 else None
            if ledger.recording is not None:
                execution.track = getattr(request, "_track", 0)
            execution.started = started = perf_counter_ns()
            try:
                returned = instance.execute([request])
                if returned.__class__ is not list:
                    returned = self._settle(execution, returned)
                inferred = perf_counter_ns()
                one = returned.__class__ is list and len(returned) == 1
                if not one or returned[0].__class__ is not InferenceResponse:
                    check_returned(returned, 1)
                    if getattr(request, "_release_flags", 0) == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE and (
                        execution.ticket is None or not execution.ticket.done
                    ):
                        raise ReturnError(rescheduled_in_vain())
                requested = request._requested
                execution.request = None
                del request
                if returned[0] is not None and execution.ticket is None:
                    response = answer(
                        returned, 0, requested, True, model.outputs, instance.name, execution.track
                    )
                    if response._warnings:
                        response = with_warnings(response, model, execution, parent)
                elif returned[0] is not None and execution.ticket is not None and execution.ticket.done:
                    again = execute_failed(execution.instance_name, SECOND_RESPONSE)
                    log_lost(execution, execution.ticket, again)
            except BaseException as error:
                failed = True
                with self._lock:
                    ended = perf_counter_ns()
                    model.statistics.execution(rows, started - begun, ended - started, 0)
                    model.statistics.failed(ended - begun)
                response = failure(execution, error, True)
            else:
                with self._lock:
                    ended = perf_counter_ns()
                    if rows == 1:
                        recent = model.statistics.recent
                        recent.append((begun, started, inferred, ended))
                        if len(recent) >= FOLD_AT:
                            model.statistics.fold()
                    else:
                        model.statistics.one(rows, begun, started, inferred, ended, 0)
        finally:
            # Each of these is one step, and whatever comes in between, the next is taken.
            try:
                if held:
                    instance.holder = None
                    self._idle.append(instance)
            finally:
                try:
                    caller_var.set(before)
                finally:
                    if running_loop is not None:
                        _set_running_loop(running_loop)
            if guard is None:
                execution.finished = True
            else:
                parent.unwatch(execution, guard)
            if self._queue or self._watch:
                self._wake()
            if span and execution.started:  # else it was struck before there was anything to record
                ended = ended or perf_counter_ns()
                if timer is not None:
                    timer.end()
                log = recording.active
                if response is None or response._error is not None or execution.ticket is not None:
                    times = (begun, 0, rows, inferred, ended)
                    spans.record_call(execution, options, bytes_in, *times, response, failed)
                elif log is not None:  # all at once: every call pays for this
                    outs = response._outputs
                    one = len(outs) == 1 and outs[0]._datatype != "BYTES"
                    log.whole.extend((
                        span, parent.span, instance.place, options, bytes_in, begun, 0, thread, rows,
                        started, inferred, ended, outs[0]._array.nbytes if one else recording.nbytes(outs),
                    ))  # fmt: skip
        if response is None:
            return self._late_answer(execution)
        if execution.ticket is not None and not execution.ticket.finish(response):
            return self._late_answer(execution)
        return response

    def _settle(self, execution: SendingExecution, returned: Any) -> Any:
        """What a list-less return stands for: a coroutine's result, or one None for each request."""
        if inspect.iscoroutine(returned):
            assert execution.instance is not None
            loop = execution.instance.loop.loop
            returned = asyncio.run_coroutine_threadsafe(returned, loop).result()
        if returned is None:
            if execution.request is not None:
                ticket = execution.open_ticket(execution.request)
                execution.request._answerable = ticket
                execution.request.get_response_sender()
                leave_to_senders(ticket)
            return [None]
        return returned

    def _late_answer(self, execution: SendingExecution) -> InferenceResponse:
        """The answer that the model's sender gave, or will give."""
        ticket = execution.ticket
        if ticket is None:  # a list with None in it
            name = execution.instance_name
            response = error_response(execute_failed(name, returned_none("execute returned [None]")))
            spans.record_answer(execution.span, response)
            return response
        return first_response(ticket)


may_be_interrupted(InlineCalls.call.__code__)
