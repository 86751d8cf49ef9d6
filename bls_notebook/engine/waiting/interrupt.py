"""Stopping model code that runs in another thread.

An exception is set for the thread and arrives at its next bytecode; code that waits inside C (a sleep,
a lock) gets it when that returns. `Interrupted` is no `Exception`, so models do not swallow it by
habit.
"""

from __future__ import annotations

import ctypes
import threading

from .ctrl_c import inside_engine
from .debugged import held, let_go, let_go_soon
from .stacks import stack_of


class Interrupted(BaseException):
    """The person at the notebook has interrupted what this thread runs."""


def _set(thread: int, exception: object) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


def interrupt_thread(thread: int) -> bool:
    """Raise `Interrupted` in a thread, soon; False where it must be left alone, and asked again later."""
    stack = stack_of(thread)
    if held(stack):
        let_go()
        return False
    if inside_engine(stack):
        return False
    _set(thread, ctypes.py_object(Interrupted))
    let_go_soon()
    return True


def clear_interrupt(thread: int) -> None:
    """Take back an `Interrupted` that has not arrived yet.

    By the thread itself it is received here: one that is only withdrawn leaves Python, before 3.13, looking
    for an exception in every thread at every call from then on, and where a debugger traces it, for ever.
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
