"""The default scheduler: hands one request at a time to an idle instance, first come first served.

Guarantees: an instance runs one `execute` at a time; nobody overtakes a queue; a synchronous request
to an idle model runs on the caller's thread (so does one that had to wait for its turn); every request
that was accepted is answered; an instance always comes back, whatever `execute` does; once closed,
no request is accepted, and `on_drained` is called when the last one has been answered.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from . import janitor
from .blocking import wait_for
from .execution import Execution
from .failures import (
    cancelled_response,
    describe_exception,
    error_response,
    failed_response,
)
from .interrupt import Interrupted, clear_interrupt
from .messages import execute_failed, not_ready
from .outputs import ReturnError, answer, check_returned
from .threads import start_in_thread
from .ticket import Ticket
from .warnings import with_warnings

if TYPE_CHECKING:
    from .instance import Instance
    from .model import LoadedModel

__all__ = ["DefaultScheduler", "Scheduler"]

_get_ident = threading.get_ident


class Scheduler(Protocol):
    """What the engine asks of a scheduler."""

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        """Serve a request that is not decoupled, and wait for its answer."""

    def submit(self, ticket: Ticket) -> None:
        """Serve a request in the background."""

    def withdraw(self, ticket: Ticket) -> bool:
        """Take a request out of the queue; False where it is not there any more."""

    def settled(self, ticket: Ticket) -> None:
        """A ticket has been answered."""

    def close(self, on_drained: Callable[[], None]) -> None:
        """Accept no more; call `on_drained` when all has been answered."""


class DefaultScheduler:
    """Default scheduler of one model version."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._idle: list[Instance] = list(model.instances)[::-1]
        self._queue: deque[Ticket] = deque()
        self._open = 0  # tickets that are not answered yet
        self._on_drained: Callable[[], None] | None = None
        self._closed = False
        self._async = any(i.is_async for i in model.instances)

    # -- sync, on the caller's thread --------------------------------------------------------------

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        """Serve a request and wait for its answer."""
        model = self._model
        if self._async:
            return self._call_async(parent, request)
        execution = Execution(parent.server, model, parent)
        request._answerable = execution
        with self._lock:
            if self._closed:
                return error_response(not_ready(model.name))
            if self._idle:
                instance = self._idle.pop()
                instance.holder = execution
            else:
                instance = None
        if instance is None:
            turn = self._wait_for_turn(execution, request)
            if isinstance(turn, InferenceResponse):
                return turn
            instance = turn
        execution.instance = instance
        execution.request = request
        execution.thread = _get_ident()
        running_loop = _get_running_loop()
        if running_loop is not None:  # model code must not see the caller's (or Jupyter's) loop
            _set_running_loop(None)
            parent.note_blocking(model.name)
        token = caller_var.set(execution)
        response: InferenceResponse | None = None
        started = perf_counter_ns()
        execution.started = started
        try:
            returned = instance.execute([request])
            if returned.__class__ is not list:
                returned = self._settle(execution, returned)
            if (
                returned.__class__ is not list
                or len(returned) != 1
                or returned[0].__class__ is not InferenceResponse
            ):
                check_returned(returned, 1)
            requested = request._requested
            execution.request = None
            del request
            if returned[0] is not None and execution.ticket is None:
                response = answer(returned, 0, requested, True, model.outputs)
                if response._warnings:
                    response = with_warnings(response, model, execution)
        except BaseException as error:
            response = self._failure(execution, error)
        finally:
            caller_var.reset(token)
            if running_loop is not None:
                _set_running_loop(running_loop)
            execution.finished = True
            failed = response is not None and response._error is not None
            contended = False
            with self._lock:  # as _next does, without another call
                model.count(perf_counter_ns() - started, failed)
                if self._queue or self._closed:
                    contended = True
                else:
                    instance.holder = None
                    self._idle.append(instance)
            if contended:
                self._release(instance)
        if response is None:
            return self._late_answer(execution)
        if execution.ticket is not None and not execution.ticket.finish(response):
            return self._late_answer(execution)
        return response

    def _settle(self, execution: Execution, returned: Any) -> Any:
        """What a list-less return stands for: a coroutine's result, or one None for each request."""
        if inspect.iscoroutine(returned):
            assert execution.instance is not None
            loop = execution.instance.loop.loop
            returned = asyncio.run_coroutine_threadsafe(returned, loop).result()
        if returned is None:
            if execution.request is not None:
                ticket = execution.open_ticket(execution.request)
                execution.request._answerable = ticket
                janitor.start()
                execution.request.get_response_sender()
            return [None]
        return returned

    def _late_answer(self, execution: Execution) -> InferenceResponse:
        """The answer that the model's sender gave, or will give."""
        ticket = execution.ticket
        if ticket is None:  # a list with None in it
            name = execution.instance_name
            from .outputs import returned_none

            return error_response(execute_failed(name, returned_none("execute returned [None]")))
        return _first_response(ticket)

    def _failure(self, execution: Execution, error: BaseException) -> InferenceResponse:
        """The response of an `execute` that raised; Ctrl-C goes on to the notebook."""
        if isinstance(error, KeyboardInterrupt) and (threading.current_thread() is threading.main_thread()):
            execution.interrupt()
            raise error
        if isinstance(error, (Interrupted, asyncio.CancelledError)):
            return cancelled_response(self._model.name)
        execution.server.last_failure = error
        message = execute_failed(execution.instance_name, describe_exception(error))
        return failed_response(self._model, message, error, execution.causes)

    def _wait_for_turn(self, execution: Execution, request: InferenceRequest) -> Instance | InferenceResponse:
        parent = execution.parent
        ticket = Ticket(self._model, request, parent, None)
        ticket.inline = True
        with self._lock:
            self._open += 1
            if self._idle:  # one came back meanwhile
                instance = self._idle.pop()
                instance.holder = execution
                ticket.granted = instance
            else:
                ticket.queued = True
                self._queue.append(ticket)
        if parent is not None:
            parent.adopt(ticket)
        try:
            wait_for(ticket)
        except BaseException:
            if ticket.granted is not None:
                self._release(ticket.granted)
            raise
        finally:
            with self._lock:
                self._open -= 1
            if parent is not None:
                parent.forget(ticket)
        if ticket.granted is None:
            taken = ticket.take()
            return taken[0] if taken is not None else cancelled_response(self._model.name)
        ticket.granted.holder = execution
        return ticket.granted

    def _call_async(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        from contextvars import copy_context

        parent.note_blocking(self._model.name)
        ticket = Ticket(self._model, request, parent, copy_context())
        parent.adopt(ticket)
        self.submit(ticket)
        return _first_response(ticket)

    # -- in the background -------------------------------------------------------------------------

    def submit(self, ticket: Ticket) -> None:
        """Queue a request; a worker thread or the instance's loop runs it."""
        janitor.start()
        instance = None
        with self._lock:
            closed = self._closed
            if not closed:
                self._open += 1
                if self._idle:
                    instance = self._idle.pop()
                    instance.holder = ticket
                else:
                    ticket.queued = True
                    self._queue.append(ticket)
        if closed:
            ticket.finish(error_response(not_ready(self._model.name)))
        elif instance is not None:
            self._dispatch(instance, ticket)

    def withdraw(self, ticket: Ticket) -> bool:
        """Take a request out of the queue."""
        with self._lock:
            if not ticket.queued:
                return False
            self._queue.remove(ticket)
            ticket.queued = False
        return True

    def settled(self, ticket: Ticket) -> None:
        """Count a ticket as answered."""
        if ticket.context is None:
            return  # never was in this scheduler's count: it ran on its caller's thread
        with self._lock:
            self._open -= 1
            drained = self._drained()
        if drained is not None:
            drained()

    def _dispatch(self, instance: Instance, ticket: Ticket) -> None:
        if ticket.inline:
            ticket.grant(instance)
        elif instance.is_async:
            instance.loop.post(partial(self._begin, instance, ticket))
        else:
            start_in_thread(partial(self._work, instance, ticket))

    def _release(self, instance: Instance) -> None:
        ticket = self._next(instance)
        if ticket is not None:
            self._dispatch(instance, ticket)

    def _next(self, instance: Instance) -> Ticket | None:
        """Give up an instance: to the next request, which is returned, or to the idle ones."""
        with self._lock:
            if self._queue:
                ticket = self._queue.popleft()
                ticket.queued = False
                instance.holder = ticket
                return ticket
            instance.holder = None
            self._idle.append(instance)
            drained = self._drained() if self._closed else None
        if drained is not None:
            drained()
        return None

    def _work(self, instance: Instance, ticket: Ticket | None) -> None:
        """Serve requests on a worker thread until none is queued."""
        while ticket is not None:
            if ticket.inline:
                ticket.grant(instance)
                return
            context = ticket.context
            try:
                if context is None:
                    self._run(instance, ticket)
                else:
                    context.run(self._run, instance, ticket)
            except Interrupted:  # arrived after the model was left
                ticket.finish(cancelled_response(self._model.name))
            ticket = self._next(instance)

    def _run(self, instance: Instance, ticket: Ticket) -> None:
        """Run one request of a sync model on this worker thread."""
        request, ticket.request = ticket.request, None
        if request is None or ticket.cancelled:
            ticket.finish(cancelled_response(self._model.name))
            return
        execution = self._execution(instance, ticket, request)
        guard = execution.interruptible()
        execution.thread = _get_ident()
        token = caller_var.set(execution)
        response: InferenceResponse | None = None
        try:
            returned = instance.execute([request])
            if inspect.iscoroutine(returned):
                returned = asyncio.run_coroutine_threadsafe(returned, instance.loop.loop).result()
            execution.request = None
            del request
            response = self._read(ticket, execution, returned)
        except BaseException as error:
            response = self._failure(execution, error)
        finally:
            with guard:
                execution.finished = True
            if execution.cancelled:
                clear_interrupt(execution.thread)
            caller_var.reset(token)
            execution.request = None
            self._close_execution(ticket, execution, response)

    def _begin(self, instance: Instance, ticket: Ticket) -> None:
        """Start one request of an async model; on the thread of the instance's loop."""
        request, ticket.request = ticket.request, None
        context = ticket.context
        if request is None or context is None or ticket.cancelled:
            ticket.finish(cancelled_response(self._model.name))
            self._release(instance)
            return
        execution = self._execution(instance, ticket, request)
        execution.thread = _get_ident()
        execution.tasks = WeakSet()
        instance.loop.executions.add(execution)
        loop = instance.loop.loop
        context.run(caller_var.set, execution)
        try:
            coroutine = context.run(instance.execute, [request])
            if not inspect.iscoroutine(coroutine):
                raise TritonModelException(
                    f"async execute returned a {type(coroutine).__name__} instead of a coroutine"
                )
            task = context.run(loop.create_task, coroutine)
        except BaseException as error:
            self._ended(instance, ticket, execution, None, error)
            return
        del request
        execution.task = task
        execution.tasks.add(task)
        task.add_done_callback(partial(self._task_done, instance, ticket, execution))
        if self._model.decoupled:  # its requests share the loop
            self._release(instance)

    def _task_done(
        self, instance: Instance, ticket: Ticket, execution: Execution, task: asyncio.Task[Any]
    ) -> None:
        if task.cancelled():
            self._ended(instance, ticket, execution, None, asyncio.CancelledError())
        else:
            error = task.exception()
            self._ended(instance, ticket, execution, None if error else task.result(), error)

    def _ended(
        self,
        instance: Instance,
        ticket: Ticket,
        execution: Execution,
        returned: Any,
        error: BaseException | None,
    ) -> None:
        shares_loop = self._model.decoupled and execution.task is not None
        response: InferenceResponse | None
        if error is None:
            try:
                response = self._read(ticket, execution, returned)
            except BaseException as problem:
                response = self._failure(execution, problem)
        else:
            response = self._failure(execution, error)
        execution.finished = True
        execution.request = None
        execution.task = None
        instance.loop.executions.discard(execution)
        self._close_execution(ticket, execution, response)
        if not shares_loop:
            self._release(instance)

    def _execution(self, instance: Instance, ticket: Ticket, request: InferenceRequest) -> Execution:
        """An execution of a queued request, known to its ticket and its instance."""
        server = self._model.server
        execution = Execution(server, self._model, ticket.parent)
        execution.instance = instance
        execution.request = request
        execution.ticket = ticket
        execution.started = perf_counter_ns()
        request._answerable = ticket
        if self._model.decoupled:
            request.get_response_sender()  # dropped with the request: so its end is noticed
        instance.holder = execution
        ticket.execution = execution
        return execution

    def _read(self, ticket: Ticket, execution: Execution, returned: Any) -> InferenceResponse | None:
        """The answer in what `execute` returned; None where the model's sender gives it."""
        if returned is None:
            request = execution.request
            if request is not None and not ticket.done:
                request.get_response_sender()
            return None
        if self._model.decoupled:
            if ticket.done:
                return None
            raise ReturnError(
                f"Python model '{execution.instance_name}' is using the decoupled mode and the execute "
                "function must return None."
            )
        check_returned(returned, 1)
        if returned[0] is None:
            return None
        response = answer(returned, 0, ticket.requested, True, self._model.outputs)
        return with_warnings(response, self._model, execution)

    def _close_execution(
        self, ticket: Ticket, execution: Execution, response: InferenceResponse | None
    ) -> None:
        failed = response is not None and response._error is not None
        with self._lock:
            self._model.count(perf_counter_ns() - execution.started, failed)
        if response is not None:
            ticket.finish(response)

    # -- closing -----------------------------------------------------------------------------------

    def close(self, on_drained: Callable[[], None]) -> None:
        """Accept no more requests; call `on_drained` once when all has been answered."""
        with self._lock:
            self._closed = True
            self._on_drained = on_drained
            drained = self._drained()
        if drained is not None:
            drained()

    def _drained(self) -> Callable[[], None] | None:
        """What to call, once, when nothing is in flight any more; the lock is held."""
        if not self._closed or self._open or len(self._idle) != len(self._model.instances):
            return None
        callback, self._on_drained = self._on_drained, None
        return callback


def _first_response(ticket: Ticket) -> InferenceResponse:
    while True:
        taken = ticket.take()
        if taken is not None:
            return taken[0]
        wait_for(ticket)
