"""Whose code runs: which instance of a model, if any; and keeps that code from ending this process.

A library that a model calls does not know the model. The owner is found in this order: the nearest function
of a model that called the library; the request that the engine, or the context, says is being served; who
started the thread, or gave it its work. On Triton a model that calls `os._exit` or kills its process group
ends its own process; here that raises `SystemExit` in the model's code.

Guarantees: the nearest function decides, so a model called by another, or by the notebook, is itself; code
of the notebook has no owner, also where a model calls it. Nothing is kept alive. It costs nothing where nobody
asks; once there is a model, starting a thread and `ThreadPoolExecutor.submit` record the owner. Processes
that a model spawns look for modules where the model does. A forked child has Python's own functions.
"""

from __future__ import annotations

import builtins
import functools
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any

from bls_notebook.devices import own_gpu
from bls_notebook.engine.exception_text import THREAD_HOME, ModelHome, home_of
from bls_notebook.engine.model_code import to_be_started
from bls_notebook.pb_utils._runtime import caller_var

from .exit_guard import keep_process

_OURS = "bls_notebook."
_ENGINE = ("bls_notebook.engine.", "bls_notebook.backends.")  # what lies beyond was called by the engine
_builtins = vars(builtins)
_INTERPRETERS: tuple[type, ...] = ()
if sys.version_info >= (3, 14):
    from concurrent.futures import InterpreterPoolExecutor

    _INTERPRETERS = (InterpreterPoolExecutor,)
_following = False
_lock = threading.Lock()


def running_home() -> ModelHome | None:
    """Return the home of the instance whose code, or on whose behalf code, runs here."""
    return whose(sys._getframe(1))[0]


def whose(frame: FrameType | None) -> tuple[ModelHome | None, FrameType | None]:
    """Return the home that a frame's code, the innermost of this thread, works for.

    And the nearest frame of the model's own code; None where it is not known by that.
    """
    notebook = getattr(sys.modules.get("__main__"), "__dict__", None)
    while frame is not None:
        space = frame.f_globals
        home = home_of(space)
        if home is None and frame.f_builtins is not _builtins:  # code that a model has given to `exec`, say
            home = home_of(frame.f_builtins)
        if home is not None:
            return home, frame
        if space is notebook:
            return None, None
        name = dict.get(space, "__name__")
        if name.__class__ is str and name.startswith(_ENGINE):
            caller = caller_var.get()
            if caller is not None:
                return getattr(caller, "modules", None), None
        frame = frame.f_back
    home = getattr(caller_var.get(), "modules", None)
    if home is None:
        # Not `current_thread`, which makes an object for a thread that has none.
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        owner = getattr(thread, THREAD_HOME, None)
        home = None if owner is None else owner()
    return home, None


def _owner() -> weakref.ref[ModelHome] | None:
    """Who asks for a thread, or for work in one; what the engine asks for is nobody's."""
    frame = sys._getframe(2)
    if str(frame.f_globals.get("__name__")).startswith(_OURS):
        return None
    home, _ = whose(frame)
    return None if home is None else home.reference


def follow() -> None:
    """Take note of who starts threads and processes, and keep models from ending this one, from now on."""
    global _following
    with _lock:
        if _following:
            return
        _following = True
    from multiprocessing import spawn  # first needed here

    start = threading.Thread.start
    submit: Any = ThreadPoolExecutor.submit
    prepare = spawn.get_preparation_data

    @functools.wraps(start)
    def start_for(self: threading.Thread) -> None:
        owner = _owner()
        if owner is not None:
            setattr(self, THREAD_HOME, owner)
            to_be_started(self)
            if own_gpu.here() is not None:
                self.run = own_gpu.carried(self.run)  # type: ignore[method-assign]
        start(self)

    @functools.wraps(submit)
    def submit_for(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not isinstance(self, _INTERPRETERS):  # what they run is pickled
            fn = _Work(own_gpu.carried(fn), _owner())
        future: Future[Any] = submit(self, fn, *args, **kwargs)
        return future

    @functools.wraps(prepare)
    def prepare_for(name: str) -> dict[str, Any]:
        data: dict[str, Any] = prepare(name)
        home = running_home()
        if home is not None:
            data["sys_path"] = [*data["sys_path"], *home.folders]
        return data

    spawn.get_preparation_data = prepare_for
    threading.Thread.start = start_for  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_for  # type: ignore[method-assign, assignment]
    keep_process(lambda frame: whose(frame)[0] is not None)


class _Work:
    """Work for a thread of a pool, which may be that of several models; so are the callbacks at its end."""

    __slots__ = ("_function", "_owner")

    def __init__(self, function: Callable[..., Any], owner: weakref.ref[ModelHome] | None) -> None:
        self._function = function
        self._owner = owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        setattr(threading.current_thread(), THREAD_HOME, self._owner)
        return self._function(*args, **kwargs)
