"""Run code as a model's: `initialize` and `finalize` of models, and code of the notebook as the body of `execute`.

Guarantees: the caller's context is unchanged afterwards; model code sees no event loop but its own (in
Jupyter, the notebook's loop runs on the main thread). Requests of a notebook's body are its children, and Ctrl-C
stops the body and all that it started. Python joins non-daemon threads before any exit hook runs, and would
wait forever for a thread that the model's `finalize` ends; so threads that a model starts are daemons here, and
`left` reports those that still run after `finalize`.
"""

from __future__ import annotations

import inspect
import sys
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from bls_notebook.pb_utils._runtime import Caller, caller_var
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest

from .calling import SendingExecution
from .core.server import Server
from .waiting.ctrl_c import CtrlC, may_be_interrupted
from .waiting.event_loops import ModelLoop
from .waiting.threads import Parker

if TYPE_CHECKING:
    from bls_notebook.records.errors import ErrorRecord


_Result = TypeVar("_Result")


class Initializing(SendingExecution):
    """The caller of a model that initializes or finalizes: it may log, count and load, but not send requests."""

    instance_name = directory = ""
    modules: Any = None  # where the modules of the model's code live

    def __init__(self, server: Server, name: str, directory: str, model: str = "") -> None:
        super().__init__(server, None, None)
        self.instance_name = name
        self.directory = directory
        self._of = model or name

    def exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        raise TritonModelException("BLS is only supported during the 'execute' function.")

    async_exec = exec


def as_model(caller: Caller, call: Callable[[], _Result]) -> _Result:
    """Return `call()`, run as a model's code on this thread.

    Whatever exception strikes, and wherever, the thread's caller and running loop are restored: without them the
    kernel of a notebook is lost.
    """
    __tracebackhide__ = True
    loop, before = _get_running_loop(), caller_var.get()
    try:
        try:
            if loop is not None:
                _set_running_loop(None)
            caller_var.set(caller)
            return call()
        finally:
            caller_var.set(before)  # and not `reset`: see caller_var
            if loop is not None:
                _set_running_loop(loop)
    finally:  # once more: an exception may have struck just there
        caller_var.set(before)
        if loop is not None:
            _set_running_loop(loop)


may_be_interrupted(as_model.__code__)


_of_models: WeakSet[threading.Thread] = WeakSet()


def to_be_started(thread: threading.Thread) -> None:
    """Make a thread that a model is about to start a daemon."""
    to_come = getattr(thread, "_initialized", False) and thread.ident is None  # else it cannot be started
    if to_come and not thread.daemon:
        thread.daemon = True
        _of_models.add(thread)


def left() -> list[threading.Thread]:
    """Return the running threads of models that were not daemons."""
    return [t for t in list(_of_models) if t.is_alive()]


def let_go_of_pools() -> None:
    """Keep `concurrent.futures` from waiting for the workers of models' pools when Python ends."""
    pools = sys.modules.get("concurrent.futures.thread")
    workers = getattr(pools, "_threads_queues", {})
    for thread in left():
        workers.pop(thread, None)


def run_body(server: Server, function: Callable[[], Any], errors: list[ErrorRecord] | None = None) -> Any:
    """Return `function()`, awaited if it is a coroutine; `errors` gets the latest error responses to its requests."""
    __tracebackhide__ = True
    execution = SendingExecution(server, None, None)
    execution.thread = threading.get_ident()

    def run() -> Any:
        __tracebackhide__ = True
        try:
            result = function()
            if inspect.iscoroutine(result):
                result = _run_coroutine(execution, result)
            return result
        except KeyboardInterrupt:
            execution.interrupt()
            raise
        finally:
            execution.finished = True
            if errors is not None:
                errors.extend(execution.causes or ())

    may_be_interrupted(run.__code__)
    with CtrlC():
        return as_model(execution, run)


def _run_coroutine(execution: SendingExecution, coroutine: Any) -> Any:
    loop = ModelLoop("notebook")
    context = copy_context()
    parker = Parker()
    execution.tasks = WeakSet()
    execution.thread = loop.thread

    def begin() -> None:
        context.run(caller_var.set, execution)
        execution.task = task = context.run(loop.loop.create_task, coroutine)
        loop.executions.add(execution)
        task.add_done_callback(lambda _: parker.unpark())

    try:
        loop.post(begin)
        parker.park()
        assert execution.task is not None
        return execution.task.result()
    except KeyboardInterrupt:
        execution.interrupt()
        raise
    finally:
        loop.stop()
