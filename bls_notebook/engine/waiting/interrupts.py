"""Ctrl-C on the main thread, and `Interrupted` for model code on other threads.

No model code runs on the main thread, so Ctrl-C has only one thing to interrupt there: a wait. While the main thread
sends a request or waits for an operation, the handler of this module notes Ctrl-C, and raises KeyboardInterrupt if it
struck `Parker.park`; the next wait raises a noted one, or else the end of the `CtrlC` block.

Guarantees: Ctrl-C is never lost, never strikes the engine outside a wait, and never arrives after its request. A
handler that another library has set stays. `Interrupted` is raised in another thread at its next bytecode (after a
sleep or lock in C returns), only in model code, and in no import of a module that others share: an extension whose
import ends halfway is broken for the whole process. It is not an `Exception`, so that `except Exception` in a model
does not swallow it. `need_room` checks that the stack has room for the engine's calls, because a recursive model may
have only a frame or two left.
"""

from __future__ import annotations

import _imp
import _signal  # type: ignore[import-not-found]
import _thread
import ctypes
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from importlib.machinery import ExtensionFileLoader
from time import monotonic
from types import CodeType, FrameType
from typing import Any

from .stack_frames import stack_of, variables_of, walk_back

LEVELS = 48  # depth of the engine's own calls, with a margin
_frame, _limit = sys._getframe, sys.getrecursionlimit


def _nested(inner: Callable[[], None], _: int) -> Callable[[], None]:
    return lambda: inner()


_try: Callable[[], None] = reduce(_nested, range(LEVELS), lambda: None)


def need_room() -> None:
    """Raise RecursionError now if there is no room for the engine's own calls."""
    try:
        _frame(_limit() // 3 - LEVELS)  # a third, because calls from C count towards the limit but have no frame
    except ValueError:
        return  # the stack is shallow, as nearly always
    _try()


_main = threading.main_thread().ident
_get_ident = _thread.get_ident
_SIGINT = int(signal.SIGINT)
# `signal` converts its arguments and results to enums, which makes it ten times slower than `_signal`.
_handler_of, _set_handler = _signal.getsignal, _signal.signal
_default = signal.default_int_handler
noted = False  # Ctrl-C was pressed while the main thread was in a `CtrlC` block, and is to be raised
# The functions in which Ctrl-C is raised at once: `Parker.park`.
waits: set[CodeType] = set()
# The functions of a `Scope` in which Ctrl-C is noted although its block, which is the user's code, is running.
borders: set[CodeType] = set()
# A notebook's kernel sets this when Ctrl-C has cancelled a cell that awaits.
awaited = threading.Event()


def on_main_thread() -> bool:
    return _get_ident() == _main


def _note(number: int, frame: FrameType | None) -> None:
    global noted
    resume_debugged_threads()
    noted = True
    if frame is not None and frame.f_code in waits:
        raise_noted()


def _note_at_border(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C in the user's block of a `Scope`."""
    if frame is not None and frame.f_code in borders:
        _note(number, frame)
    else:
        _default(number, frame)


def raise_noted() -> None:
    """Raise a noted Ctrl-C. Called on the main thread."""
    global noted
    if noted:
        noted = False
        raise KeyboardInterrupt


class CtrlC:
    """Context manager in which the main thread runs the engine."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        global noted
        self._before = None
        handler = _handler_of(_SIGINT)
        if (handler is _default or handler is _note_at_border) and _get_ident() == _main:
            if handler is _default:
                noted = False
            self._before = handler
            _set_handler(_SIGINT, _note)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        global noted
        if self._before is not None:
            _set_handler(_SIGINT, self._before)
            if isinstance(error, KeyboardInterrupt):
                noted = False
                cut_handler(error)
            raise_noted()


def begin_block() -> bool:
    """Note Ctrl-C in `borders` from now on; return whether `end_block` has to be called."""
    if _get_ident() != _main or _handler_of(_SIGINT) is not _default:
        return False
    _set_handler(_SIGINT, _note_at_border)
    return True


def end_block() -> None:
    if _handler_of(_SIGINT) is _note_at_border:  # a cell that ended in the block may have set the default
        _set_handler(_SIGINT, _default)
        raise_noted()


def cut_handler(error: BaseException) -> None:
    """Cut the frames of a handler: the traceback ends at the interrupted statement."""
    entry = error.__traceback__
    while entry is not None:
        if entry.tb_next is not None and entry.tb_next.tb_frame.f_code in _HANDLERS:
            entry.tb_next = None
        entry = entry.tb_next


_HANDLERS = {_note.__code__, raise_noted.__code__, _note_at_border.__code__}
borders.update(f.__code__ for f in (CtrlC.__enter__, CtrlC.__exit__, begin_block, end_block))


def in_handler() -> bool:
    """Return whether a handler of SIGINT, such as asyncio's, calls this: the interrupted code may hold locks."""
    if _get_ident() != _main:
        return False
    handler = signal.getsignal(signal.SIGINT)
    while isinstance(handler, partial):
        handler = handler.func
    code = getattr(handler, "__code__", None)
    return code is not None and any(frame.f_code is code for frame in walk_back(_frame(1)))


class Interrupted(BaseException):
    """Raised in model code on another thread when the user presses Ctrl-C."""


_HOME = __file__.rsplit("engine", 1)[0]
_ENGINE = tuple(_HOME + part for part in ("engine", "pb_utils"))
# The engine's functions that call model code and clean up after any exception.
_callers: set[CodeType] = set()


def may_be_interrupted(code: CodeType) -> None:
    """Register a function of the engine that calls model code and cleans up after any exception."""
    _callers.add(code)


def inside_engine(stack: Iterable[FrameType]) -> bool:
    """Return whether a thread with these frames (innermost first) runs the engine, on behalf of a model or not."""
    called_out = False
    for frame in stack:
        if frame.f_code in _callers:  # the frames inside it are model code
            return not called_out
        if frame.f_code.co_filename.startswith(_ENGINE):
            return True  # the frames inside it belong to a library that the engine called
        called_out = True
    return False


_IMPORTLIB = "<frozen importlib._bootstrap"  # the beginning of file names


def is_importing(stack: Sequence[FrameType]) -> bool:
    """Return whether a thread with these frames is in Python's import system, or imports a module that others share.

    The module of a model is its own, with a name of a class of its own, unless it is an extension.
    """
    for frame in stack:
        if frame.f_code.co_filename.startswith(_IMPORTLIB):
            variables = variables_of(frame)
            is_shared = frame.f_code.co_name == "_find_and_load" and type(variables.get("name")) is str
            if frame is stack[0] or is_shared or isinstance(variables.get("self"), ExtensionFileLoader):
                return True
    return False


RETRY_SECONDS = 0.002
_PYDEVD = "_pydevd_bundle.pydevd_thread_lifecycle"
_asked = [0.0, 0.0]  # when `_wait_for_debugger` was first called for the latest Ctrl-C, and when last


def resume_debugged_threads() -> None:
    """Continue all threads that pydevd (JupyterLab's, VS Code's and PyCharm's debugger) stops at breakpoints now.

    While one thread is at a breakpoint, pydevd stops every other thread that runs traced code, so none of them
    would notice an interrupt. Another thread does this, because the debugger may hold a lock in the calling one.
    """
    life: Any = sys.modules.get(_PYDEVD)
    threads = [] if life is None else list(threading._active.values())  # type: ignore[attr-defined]  # needs no lock
    states = [getattr(getattr(thread, "additional_info", None), "pydev_state", None) for thread in threads]
    stopped = [thread for thread, state in zip(threads, states, strict=True) if state not in (None, life.STATE_RUN)]

    def resume() -> None:
        for thread in stopped:
            life.internal_run_thread(thread, life.set_additional_thread_info)

    if stopped:
        threading.Timer(0, resume).start()


def _wait_for_debugger(stack: Iterable[FrameType]) -> bool:
    """Return whether to interrupt a thread later because it runs code of pydevd now; True for at most half a second.

    Before Python 3.12, an exception in code of pydevd ends the tracing of the thread, so no breakpoint would stop
    it any more. The limit is for a loop that hits one breakpoint after the other: it must be interrupted too.
    """
    if sys.version_info >= (3, 12) or _PYDEVD not in sys.modules:
        return False
    files = (frame.f_code.co_filename for frame in stack)
    file = next((name for name in files if not name.endswith("threading.py")), "")
    if "pydevd" not in file and "_pydev_bundle" not in file:
        return False
    now = monotonic()
    if now - _asked[1] > 0.5:
        _asked[0] = now
    _asked[1] = now
    return now - _asked[0] < 0.5


def _set(thread: int, exception: object) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


def interrupt_thread(thread: int) -> bool:
    """Raise `Interrupted` in a thread at its next bytecode; False if the caller has to try again later."""
    stack = stack_of(thread)
    if _wait_for_debugger(stack):
        resume_debugged_threads()
        return False
    _imp.acquire_lock()  # an import of another thread can begin, but not go beyond its first lines
    try:
        stack = stack_of(thread)
        if inside_engine(stack) or is_importing(stack):
            return False
        _raise_in(thread)
        if is_importing(stack_of(thread)):  # it has just begun
            clear_interrupt(thread)
            clear_interrupt(_get_ident())  # ends the search for the withdrawn one
            return False
    finally:
        _imp.release_lock()
    resume_debugged_threads()
    return True


def _raise_in(thread: int) -> None:
    traced = sys.version_info < (3, 13) and sys.gettrace() is not None and _PYDEVD not in sys.modules
    try:
        _set(thread, ctypes.py_object(Interrupted))
        if traced:
            # Before Python 3.13, a traced thread hangs at its next call until the exception has arrived in the other
            # thread, which may wait for it. An exception that arrives here ends that; the other one is not lost.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(_get_ident()), ctypes.py_object(Interrupted))
            while True:
                pass
    except Interrupted:
        pass


def clear_interrupt(thread: int) -> None:
    """Withdraw an `Interrupted` that has not arrived in a thread yet.

    Called on that thread, let it arrive here instead: before Python 3.13, withdrawing makes Python check for an
    exception in every thread at every call, and a thread that a debugger traces checks endlessly.
    """
    if thread != threading.get_ident():
        _set(thread, None)
        return
    try:
        _set(thread, ctypes.py_object(Interrupted))
        while True:
            pass
    except Interrupted:
        pass
    except BaseException:
        _set(thread, None)
        raise
