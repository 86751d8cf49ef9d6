"""`Critical`: an operation that starts completely or not at all, whatever Ctrl-C or an error interrupts.

Example: a server that nobody owns unless the block ends::

    with critical() as starting:
        listener = listen(port)
        starting.undo(listener.close)
        server = Server(listener)
        starting.undo(server.stop)

Guarantees: on the main thread, Ctrl-C interrupts waits of the engine and code of models, and otherwise comes at the end
of the block. If the block raises, or Ctrl-C comes at its end, the registered functions run, the last one first, on
another thread, where no second Ctrl-C can interrupt them; the exception follows when they have ended.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from .interrupts import LongCtrlC, critical_files
from .worker_threads import Parker, start_in_thread

_Context = TypeVar("_Context", bound="UndividedContext")


class Critical(LongCtrlC):
    """A context manager that treats code in the caller's file as engine code, which Ctrl-C does not interrupt."""

    __slots__ = ("_file", "_undos")

    def __enter__(self) -> Critical:
        super().__enter__()
        self._undos: list[Callable[[], object]] = []
        self._file = ""
        if threading.current_thread() is threading.main_thread():
            self._file = sys._getframe(1).f_code.co_filename
            critical_files.append(self._file)
        return self

    def undo(self, function: Callable[[], object]) -> None:
        """Call `function` if the block raises an exception, or is interrupted."""
        self._undos.append(function)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            try:
                if error is not None:
                    self._roll_back()  # another Ctrl-C may interrupt the wait for it
            finally:
                if self._file:
                    critical_files.remove(self._file)
                super().__exit__(kind, error, traceback)  # the last call: Ctrl-C comes before it, or after the return
        except KeyboardInterrupt:
            if error is None:
                self._roll_back()
            raise

    def _roll_back(self) -> None:
        if not self._undos:
            return
        parker = Parker()

        def work() -> None:
            try:
                while self._undos:
                    self._undos.pop()()
            finally:
                if self._undos:  # one has failed, which its thread reports
                    start_in_thread(work)
                else:
                    parker.unpark()

        start_in_thread(work)
        parker.park()


class UndividedContext:
    """A context manager that Ctrl-C cannot leave half entered or half exited.

    A subclass defines `_leave`, which undoes the completed part of `_enter` and may be called twice. `_raised` says
    whether the block raised an exception.
    The Ctrl-C handler stays installed while the block runs: otherwise a KeyboardInterrupt raised just as Python calls
    `__exit__` would skip `_leave`.
    """

    _ctrl_c: LongCtrlC
    _raised = False

    def __enter__(self: _Context) -> _Context:
        self._check()
        self._ctrl_c = LongCtrlC()
        self._ctrl_c.__enter__()
        try:
            self._enter()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        self._ctrl_c.in_block(True)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._ctrl_c.in_block(False)
        self._raised = kind is not None
        try:
            self._leave()
        except KeyboardInterrupt:  # Ctrl-C interrupted the wait for a model's lock
            start_in_thread(self._leave)
            raise
        finally:
            self._ctrl_c.__exit__(kind, error, traceback)

    def _check(self) -> None:
        """Raise an exception if it cannot be entered; `_leave` is not called then."""

    def _enter(self) -> None:
        """By default do nothing: the function that returned the object has started it."""

    def _leave(self) -> None:
        raise NotImplementedError
