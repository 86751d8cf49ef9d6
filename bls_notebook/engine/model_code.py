"""Run a model's `initialize` and `finalize`, where BLS is not supported, and keep the threads it starts from
blocking exit.

Guarantees: the caller's context is unchanged afterwards; model code sees no event loop but its own (in
Jupyter, the notebook's loop runs on the main thread). Python joins non-daemon threads before any exit hook
runs, and would wait forever for a thread that the model's `finalize` ends; so threads that a model starts
are daemons here, and `left` reports those that still run after `finalize`.
"""

from __future__ import annotations

import sys
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

from bls_notebook.pb_utils._runtime import Caller, caller_var
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest

from .calling import SendingExecution
from .core.server import Server
from .waiting.ctrl_c import may_be_interrupted

_Result = TypeVar("_Result")


class Initializing(SendingExecution):
    """A model that initializes or finalizes: it may log, count and load, but not send requests.

    `name`: of the instance. `directory`: of the model's version. `model`: name of the model.
    """

    instance_name = directory = ""
    modules: Any = None  # where the modules of the model's code live

    def __init__(self, server: Server, name: str, directory: str, model: str = "") -> None:
        super().__init__(server, None, None)
        self.instance_name = name
        self.directory = directory
        self._of = model or name

    def exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        """Refuse, as Triton does."""
        raise TritonModelException("BLS is only supported during the 'execute' function.")

    async_exec = exec


def as_model(caller: Caller, call: Callable[[], _Result]) -> _Result:
    """Return what `call()` returns, run as a model's code on this thread.

    Whatever strikes and wherever, the thread's caller and its running loop are what they were before: without
    them the kernel of a notebook is lost.
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
    """Take note of a thread that a model is about to start."""
    to_come = getattr(thread, "_initialized", False) and thread.ident is None  # else it cannot be started
    if to_come and not thread.daemon:
        thread.daemon = True
        _of_models.add(thread)


def left() -> list[threading.Thread]:
    """Return the threads that models started, that were no daemons, and that run."""
    return [t for t in list(_of_models) if t.is_alive()]


def let_go_of_pools() -> None:
    """Have `concurrent.futures` not wait for the workers of models' pools when Python ends."""
    pools = sys.modules.get("concurrent.futures.thread")
    workers = getattr(pools, "_threads_queues", {})
    for thread in left():
        workers.pop(thread, None)
