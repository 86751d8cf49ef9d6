"""Interrupts: Ctrl-C on the main thread, deferred while the engine runs, and `Interrupted` for model code elsewhere.

Python may raise KeyboardInterrupt between any two bytecodes of the main thread, even between taking an instance and
recording that it is taken. While the main thread sends a request, the handler of this module checks which code
Ctrl-C hit. In model code or during a wait it raises at once. Inside the engine it tries again every 2 ms, until the
thread has left the engine, at the latest when the request is over.

Guarantees: Ctrl-C is never lost and never arrives after its request. Without Ctrl-C, a request from outside any model
costs two exchanges of the handler. A handler that another library has set stays. `Interrupted` is raised in another
thread at its next bytecode (after a sleep or lock in C returns); it is not an `Exception`, so that `except Exception`
in a model does not swallow it. Critical sections first check that the stack has room for the engine's calls, because a
recursive caller may have only a frame or two left.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import ctypes
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dis import opmap
from functools import partial, reduce
from time import monotonic
from types import CodeType, FrameType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from .stack_frames import stack_of, walk_back

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


RETRY_SECONDS = 0.002
DEBUGGER_SECONDS = 0.05  # a debugger checks five times a second whether to resume a thread
_PYDEVD = "_pydevd_bundle.pydevd_thread_lifecycle"
_asked = [0.0, 0.0]  # when `_wait_for_debugger` was first called for the latest Ctrl-C, and when last

_HOME = __file__.rsplit("engine", 1)[0]
_ENGINE = tuple(_HOME + part for part in ("engine", "pb_utils", "backends", "repository", "network"))
_RAISE = opmap["RAISE_VARARGS"]
_main = threading.main_thread().ident
_get_ident = _thread.get_ident
_SIGINT = int(signal.SIGINT)
# `signal` converts its arguments and results to enums, which makes it ten times slower than `_signal`.
_handler_of, _set_handler = _signal.getsignal, _signal.signal
_default = signal.default_int_handler
# The package's functions that run model code, and its functions that wait.
_callers: set[CodeType] = set()
_waiters: set[CodeType] = set()
# Functions whose exceptions Python discards: destructors, callbacks of weak references.
_weak = (WeakSet, WeakKeyDictionary, WeakValueDictionary)
_unheard = {part for each in _weak for part in each.__init__.__code__.co_consts if isinstance(part, CodeType)}
# A notebook's kernel sets this when Ctrl-C has cancelled a cell that awaits.
awaited = threading.Event()
# Files of functions outside the core that have entered a `Critical`; only the main thread touches it.
critical_files: list[str] = []
# Timers that will send a deferred Ctrl-C again; only the main thread touches them.
_later: list[threading.Timer] = []


# An `ExitStack` that is interrupted between two of its contexts would not leave the others; before Python 3.13,
# `logging` would keep its lock, and every other thread that logs would wait for it.
_UNDIVIDED = (ExitStack.__exit__.__code__.co_filename, logging.Handler.handle.__code__.co_filename)


def may_be_interrupted(code: CodeType, waits: bool = False) -> None:
    """Register a function that runs model code (or `waits`) and cleans up after any exception."""
    (_waiters if waits else _callers).add(code)


def would_be_lost_in(code: CodeType) -> None:
    """Register a function whose exceptions Python discards, such as a destructor."""
    _unheard.add(code)


def inside_engine(stack: Iterable[FrameType]) -> bool:
    """Return whether a thread with these frames (innermost first) is in engine code that must not be interrupted."""
    called_out = False
    for frame in stack:
        code = frame.f_code
        if code in _unheard or (code.co_filename in _UNDIVIDED and not called_out):
            return True
        if code in _waiters:
            return False
        if code in _callers:  # the frames inside it are model code
            return not called_out
        if code.co_filename.startswith(_ENGINE) or code.co_filename in critical_files:
            return True  # the frames inside it belong to a library that the engine called
        called_out = True
    return False


def press() -> None:
    # A real signal, if the system has them, also wakes a main thread that sleeps in a system call.
    if _main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(_main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _press_later(seconds: float = RETRY_SECONDS) -> None:
    timer = threading.Timer(seconds, press)
    timer.daemon = True
    _later.append(timer)
    timer.start()


def pressed(error: BaseException | None) -> bool:
    """Return whether an exception is a Ctrl-C, and no KeyboardInterrupt from a `raise` statement of a model."""
    if type(error) is not KeyboardInterrupt or _thread.get_ident() != _main:
        return False
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    if entry is None:
        return True
    code = entry.tb_frame.f_code
    return code.co_code[entry.tb_lasti] != _RAISE or code is _handler_code()


def _handler_code() -> CodeType | None:
    handler = signal.getsignal(signal.SIGINT)
    while isinstance(handler, partial):
        handler = handler.func
    return getattr(handler, "__code__", None)


def in_handler() -> bool:
    """Return whether a handler of SIGINT, such as asyncio's, calls this: the interrupted code may hold locks."""
    code = _handler_code() if _get_ident() == _main else None
    return code is not None and any(frame.f_code is code for frame in walk_back(_frame(1)))


def comes_back(error: BaseException) -> None:
    """Send a Ctrl-C again a moment later, if the caller caught it and cannot raise it again."""
    if pressed(error):
        _press_later()


def _handle(number: int, frame: FrameType | None) -> None:
    resume_debugged_threads()
    if _wait_for_debugger(walk_back(frame)):
        _press_later(DEBUGGER_SECONDS)
        return
    if inside_engine(walk_back(frame)):
        _press_later()
        return
    _withdraw()
    raise KeyboardInterrupt


def _handle_in_block(number: int, frame: FrameType | None) -> None:  # another object: see `LongCtrlC.in_block`
    _handle(number, frame)


def _withdraw() -> None:
    for timer in _later:
        timer.cancel()
    _later.clear()


def _swallow(number: int, frame: FrameType | None) -> None:
    pass


def withdraw_deferred() -> bool:
    """Return whether a Ctrl-C is still deferred; withdraw it if so."""
    if not _later:
        return False
    before = signal.signal(signal.SIGINT, _swallow)
    timers = _later.copy()
    _withdraw()
    for timer in timers:
        timer.join()  # a timer that has just fired has sent its signal by then
    signal.signal(signal.SIGINT, before)
    return True


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


class CtrlC:
    """Context manager around a request that is sent from outside any model."""

    __slots__ = ("_before",)

    def __enter__(self) -> CtrlC:
        self._before = None
        handler = _handler_of(_SIGINT)
        if (handler is _default or handler is _handle_in_block) and _get_ident() == _main:
            self._before = handler
            if handler is _default:  # else a surrounding block has deferred a Ctrl-C, which comes at the end of this
                _later.clear()  # a Ctrl-C during `__exit__` may have left timers of the request before
            _set_handler(_SIGINT, _handle)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._before is not None:
            _set_handler(_SIGINT, self._before)
            if _later and withdraw_deferred() and not isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt
        if isinstance(error, KeyboardInterrupt):
            # Cut the frame of the handler: the traceback ends at the interrupted statement.
            entry = error.__traceback__
            while entry is not None:
                if entry.tb_next is not None and entry.tb_next.tb_frame.f_code is _handle.__code__:
                    entry.tb_next = None
                entry = entry.tb_next


class LongCtrlC(CtrlC):
    """As `CtrlC`, also around foreign code that may set another handler meanwhile."""

    __slots__ = ()

    def in_block(self, inside: bool) -> None:
        """Say whether a block of the user runs, whose requests raise each its own Ctrl-C."""
        before, after = (_handle, _handle_in_block) if inside else (_handle_in_block, _handle)
        if self._before is not None and _get_ident() == _main and _handler_of(_SIGINT) is before:
            _set_handler(_SIGINT, after)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if _get_ident() != _main or _handler_of(_SIGINT) not in (_handle, _handle_in_block):
            self._before = None
        super().__exit__(kind, error, traceback)


class Interrupted(BaseException):
    """Raised in model code on another thread when the user presses Ctrl-C."""


def _set(thread: int, exception: object) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


def interrupt_thread(thread: int) -> bool:
    """Raise `Interrupted` in a thread at its next bytecode; False if the caller has to try again later."""
    stack = stack_of(thread)
    if _wait_for_debugger(stack):
        resume_debugged_threads()
        return False
    if inside_engine(stack):
        return False
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
    resume_debugged_threads()
    return True


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
