"""Running code of the notebook as if it were the body of a model's `execute`.

Guarantees: requests that the body sends are its children; Ctrl-C stops the body and everything that it
started; a coroutine runs in a loop of its own, never in the notebook's.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from bls_notebook.pb_utils._runtime import caller_var

from .calling import SendingExecution
from .core.server import Server
from .model_code import as_model
from .waiting.ctrl_c import CtrlC, may_be_interrupted
from .waiting.event_loops import ModelLoop
from .waiting.threads import Parker

if TYPE_CHECKING:
    from bls_notebook.records.errors import ErrorRecord


def run_body(server: Server, function: Callable[[], Any], errors: list[ErrorRecord] | None = None) -> Any:
    """Return what `function()` returns, awaited where it is a coroutine.

    The last errors that requests of the body were answered with are added to `errors`.

    Raises BaseException: whatever the function raises.
    """
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
