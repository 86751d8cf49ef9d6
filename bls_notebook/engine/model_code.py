"""Run code as a model's code: `initialize` and `finalize`, and notebook code as the body of an `execute`.

Guarantees: the caller's context is unchanged afterwards. Ctrl-C stops a body from the notebook and all requests that it
sent.

Threads that a model starts become daemons: Python joins other threads before it runs any exit hook, so it would never
end if a thread runs until the model's `finalize`. `left` returns the threads that still run after `finalize`.
"""

from __future__ import annotations

import inspect
import sys
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from weakref import WeakSet

from bls_notebook.pb_utils._runtime import Caller, caller_var
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest

from .calling import CellBody, SendingExecution, root_of
from .core.server import Server
from .waiting.busy_code import line_below, name_line
from .waiting.event_loops import ModelLoop
from .waiting.interrupts import CtrlC, may_be_interrupted
from .waiting.parker import Parker

if TYPE_CHECKING:
    from bls_notebook.records.errors import ErrorRecord


_Result = TypeVar("_Result")


class Initializing(SendingExecution):
    """The caller during `initialize` and `finalize`: it may log, use metrics and load models, but not send requests."""

    instance_name = directory = ""
    modules: Any = None  # the modules of the model's code
    half: Any = None  # the `ModelHalf`

    def __init__(self, server: Server, name: str, directory: str, model: str = "") -> None:
        super().__init__(server, None, None)
        self.instance_name = name
        self.directory = directory
        self._of = model or name

    def exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        raise TritonModelException("BLS is only supported during the 'execute' function.")

    async_exec = exec


class _Unreachable:
    def __getattr__(self, name: str) -> NoReturn:
        raise TritonModelException(
            "the server cannot be asked in `auto_complete_config`: with Triton, this call waits forever; load models, "
            "ask whether they are ready, and make metrics in `initialize`"
        )


class Completing(Initializing):
    """The caller during `auto_complete_config`, before Triton answers the model's process."""

    def __init__(self, server: Server, name: str, directory: str, model: str = "") -> None:
        super().__init__(server, name, directory, model)
        self.server = cast(Server, _Unreachable())


def as_model(caller: Caller, call: Callable[[], _Result]) -> _Result:
    """Return `call()`, run as a model's code on this thread."""
    __tracebackhide__ = True
    before = caller_var.get()
    try:
        caller_var.set(caller)
        return call()
    finally:
        caller_var.set(before)  # not `reset`: see caller_var


may_be_interrupted(as_model.__code__)


_of_models: WeakSet[threading.Thread] = WeakSet()


def to_be_started(thread: threading.Thread) -> None:
    """Make a thread that a model is about to start a daemon."""
    can_start = getattr(thread, "_initialized", False) and thread.ident is None
    if can_start and not thread.daemon:
        thread.daemon = True
        _of_models.add(thread)


def left() -> list[threading.Thread]:
    """Return the running threads of models that would not have been daemons."""
    return [t for t in list(_of_models) if t.is_alive()]


def forget_pool_workers() -> None:
    """Keep `concurrent.futures` from waiting for the workers of models' pools when Python ends."""
    workers = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", {})
    for thread in left():
        workers.pop(thread, None)


def run_body(server: Server, function: Callable[[], Any], errors: list[ErrorRecord] | None = None) -> Any:
    """Return `function()`, awaited if it is a coroutine; `errors` gets the latest error responses to its requests.

    The function is code of the notebook, so it runs on this thread.
    """
    __tracebackhide__ = True
    execution = root_of(server, CellBody)
    # The notebook's loop is hidden, so that the code may run its own, as in an `execute`.
    loop = _get_running_loop()
    try:
        _set_running_loop(None)
        result = as_model(execution, function)
        return _run_coroutine(execution, result) if inspect.iscoroutine(result) else result
    except KeyboardInterrupt as error:
        name_line(error, line_below(execution))
        execution.interrupt()
        raise
    finally:
        _set_running_loop(loop)
        execution.finished = True
        if errors is not None:
            errors.extend(received.record for received in execution.causes or ())


def _run_coroutine(execution: SendingExecution, coroutine: Any) -> Any:
    loop = ModelLoop("notebook")
    context = copy_context()
    parker = Parker()
    execution.tasks = WeakSet()
    execution.thread = loop.thread
    execution.__class__ = SendingExecution  # its requests do not come from the main thread

    def begin() -> None:
        context.run(caller_var.set, execution)
        execution.task = task = context.run(loop.loop.create_task, coroutine)
        loop.executions.add(execution)
        task.add_done_callback(lambda _: parker.unpark())

    try:
        loop.post(begin)
        with CtrlC():
            parker.park()
        assert execution.task is not None
        return execution.task.result()
    finally:
        loop.stop()
