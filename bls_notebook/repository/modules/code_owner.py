"""Find the model instance that owns the running code.

The owner is, in this order: the instance of the nearest model function on the stack; the request that the engine or the
context is serving; the owner of the code that started the thread or submitted its work.

Guarantees: the nearest function decides, so a model that another model or the notebook calls owns its own code. Code of
the notebook has no owner, even if a model calls it. This module keeps no owner alive. It searches the stack when
an owner is asked for and, once a model is loaded, at each `Thread.start` and `ThreadPoolExecutor.submit`. Processes
that a model spawns search modules in the model's folders.
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

from bls_notebook.devices import cupy_memory_hook, instance_gpu
from bls_notebook.engine.exception_text import THREAD_HOME, ModelHome, home_of
from bls_notebook.engine.model_code import to_be_started
from bls_notebook.pb_utils._runtime import caller_var

from .exit_guard import keep_process

_OURS = "bls_notebook."
# The engine called the model: frames further out are not the model's.
_ENGINE = ("bls_notebook.engine.", "bls_notebook.backends.")
_builtins = vars(builtins)
_installed = False
_lock = threading.Lock()


def running_home() -> ModelHome | None:
    """Return the `ModelHome` (the modules) of the instance that owns the running code; None if there is none."""
    return owner_of(sys._getframe(1))[0]


def owner_of(frame: FrameType | None) -> tuple[ModelHome | None, FrameType | None]:
    """Return the home of the instance that owns the code of a frame, which must be the innermost of this thread.

    Also return the nearest frame of the model's code, or None if the owner is not on the stack.
    """
    notebook = getattr(sys.modules.get("__main__"), "__dict__", None)
    while frame is not None:
        module_globals = frame.f_globals
        home = home_of(module_globals)
        if home is None and frame.f_builtins is not _builtins:  # for example code that a model passed to `exec`
            home = home_of(frame.f_builtins)
        if home is not None:
            return home, frame
        if module_globals is notebook:
            return None, None
        name = dict.get(module_globals, "__name__")
        if name.__class__ is str and name.startswith(_ENGINE):
            caller = caller_var.get()
            if caller is not None:
                return getattr(caller, "modules", None), None
        frame = frame.f_back
    home = getattr(caller_var.get(), "modules", None)
    if home is None:
        # Not `current_thread`, which creates an object for a thread that has none.
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        owner = getattr(thread, THREAD_HOME, None)
        home = None if owner is None else owner()
    return home, None


def _owner() -> weakref.ref[ModelHome] | None:
    """Return the owner of the code that starts a thread or submits work; None for this package's code."""
    frame = sys._getframe(2)
    if str(frame.f_globals.get("__name__")).startswith(_OURS):
        return None
    home, _ = owner_of(frame)
    return None if home is None else home.reference


def _note_started(owner: weakref.ref[ModelHome], work: threading.Thread | Future[Any]) -> None:
    home = owner()
    if home is not None:
        home.note_started(work)


def install() -> None:
    """Patch threads, thread pools and spawned processes to inherit owners, and install the exit guard; once."""
    global _installed
    with _lock:
        if _installed:
            return
        _installed = True
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
            if sys._getframe(1).f_globals.get("__name__") != "concurrent.futures.thread":
                _note_started(owner, self)  # of a pool's thread, the jobs count
            if instance_gpu.here() is not None:
                self.run = instance_gpu.carried(self.run)  # type: ignore[method-assign]
        start(self)

    @functools.wraps(submit)
    def submit_for(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        owner = _owner()
        if "InterpreterPoolExecutor" not in [cls.__name__ for cls in type(self).__mro__]:  # its functions are pickled
            fn = _Work(instance_gpu.carried(fn), owner)
        future: Future[Any] = submit(self, fn, *args, **kwargs)
        if owner is not None:
            _note_started(owner, future)
        return future

    @functools.wraps(prepare)
    def prepare_for(name: str) -> dict[str, Any]:
        data: dict[str, Any] = prepare(name)
        home: Any = running_home()
        if home is not None:
            data["sys_path"] = [*data["sys_path"], *home.path()]
        return data

    spawn.get_preparation_data = prepare_for
    threading.Thread.start = start_for  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_for  # type: ignore[method-assign, assignment]
    keep_process(lambda frame: owner_of(frame)[0] is not None)


class _Work:
    """A job of a thread pool, which sets the thread's owner; several models may share the pool."""

    __slots__ = ("_function", "_owner")

    def __init__(self, function: Callable[..., Any], owner: weakref.ref[ModelHome] | None) -> None:
        self._function = function
        self._owner = owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        setattr(threading.current_thread(), THREAD_HOME, self._owner)
        if cupy_memory_hook.used:
            cupy_memory_hook.follow()
        return self._function(*args, **kwargs)
