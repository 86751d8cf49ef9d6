"""`operation`: a function that the notebook calls (to load, to stub, to serve) runs as one job on an engine thread.

The main thread only waits for it, in `Parker.park`. So Ctrl-C cannot strike halfway between two steps::

    @operation
    def serve(port):
        listener = listen(port)
        undo(listener.close)
        server = Server(listener)
        undo(server.stop)
        return server

Guarantees: Ctrl-C ends the operation's current or next wait (`Parker.park`), with `WaitInterruptedError`, and gives the
prompt back within `UNWIND_SECONDS`, whatever the operation does. An operation that raises, or whose result the caller
did not get because of Ctrl-C, is undone: its `undo` functions run, the last one first, on its thread, where nothing can
interrupt them. Other threads than the main thread run an operation themselves. Inside another operation, it is a part
of that one. A `Scope` is left completely, in whatever way its block ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from bls_notebook import progress

from . import interrupts
from .busy_code import line_behind, name_line
from .interrupts import CtrlC, begin_block, cut_handler, end_block, raise_noted
from .parker import Parker, acting_for, running
from .worker_threads import start_in_thread

UNWIND_SECONDS = 0.2

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S", bound="Scope")
log = logging.getLogger("bls_notebook")


class WaitInterruptedError(KeyboardInterrupt):
    """Ends a wait of an operation that was interrupted."""

    def __init__(self, by: Operation) -> None:
        super().__init__()
        self.operation = by


class Operation:
    """One running operation."""

    __slots__ = ("_guard", "_interrupted", "_outer", "_parker", "_undos")

    def __init__(self) -> None:
        self._outer: Operation | None = None  # the one that it is a part of
        self._undos: list[Callable[[], object]] = []
        self._interrupted = False
        self._guard = threading.Lock()
        self._parker: Parker | None = None  # of `whole`: where its thread waits now

    @property
    def whole(self) -> Operation:
        """The outermost operation on its thread."""
        return self if self._outer is None else self._outer.whole

    def run(self, call: Callable[[], _R]) -> _R:
        """Return `call()`, run on this thread. If it raises, undo it."""
        __tracebackhide__ = True
        thread = threading.get_ident()
        self._outer = running.get(thread)
        running[thread] = self
        try:
            try:
                value = call()
                self._check()
            except BaseException:
                self.undo()
                raise
        finally:
            if self._outer is None:
                running.pop(thread, None)
            else:
                running[thread] = self._outer
        if self._outer is not None:
            self._outer._undos += self._undos
        return value

    def undo(self) -> None:
        while self._undos:
            try:
                self._undos.pop()()
            except BaseException:
                log.exception("An interrupted or failed operation could not be undone completely")

    def undone_by(self, function: Callable[[], object]) -> None:
        self._undos.append(function)

    def interrupt(self) -> None:
        """End the current wait of the operation, or its next one."""
        with self.whole._guard:
            self._interrupted = True
            if self.whole._parker is not None:
                self.whole._parker.unpark()

    def begin_wait(self, parker: Parker) -> None:
        self._check()
        with self.whole._guard:
            self.whole._parker = parker
            if self._was_interrupted() is not None:
                parker.unpark()

    def end_wait(self) -> None:
        with self.whole._guard:
            self.whole._parker = None
        self._check()

    def _was_interrupted(self) -> Operation | None:
        operation: Operation | None = self
        while operation is not None and not operation._interrupted:
            operation = operation._outer
        return operation

    def _check(self) -> None:
        interrupted = self._was_interrupted()
        if interrupted is not None:
            interrupted._interrupted = False  # once: what follows are the waits of its `finally` blocks and `undo`s
            raise WaitInterruptedError(interrupted)


def undo(function: Callable[[], object]) -> None:
    """Undo a step of the running operation if it raises or is interrupted later.

    Parameters
    ----------
    function : callable
        Takes no arguments. It may be called although the operation has returned: if Ctrl-C came before its caller got
        the result. Outside an operation, it is never called.
    """
    operation = running.get(threading.get_ident())
    if operation is not None:
        operation.undone_by(function)


class _Job:
    """An operation for the main thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.operation = Operation()
        self._call, self._context, self._caller = call, copy_context(), threading.get_ident()
        self._over, self._guard = Parker(), threading.Lock()
        self._abandoned = self._complete = False
        self._value: Any = None
        self._error: BaseException | None = None

    def __call__(self) -> None:
        thread = threading.get_ident()
        acting_for[thread] = self._caller
        progress.threads.add(thread)
        try:
            self._value = self._context.run(self.operation.run, self._call)
        except BaseException as error:
            self._error = error
        finally:
            progress.threads.discard(thread)
            del acting_for[thread]
        with self._guard:
            self._complete, abandoned = True, self._abandoned
        if abandoned and self._error is None:
            self.operation.undo()
        self._over.unpark()
        del self._call

    def result(self, interruptible: bool, partial_result: bool) -> Any:
        __tracebackhide__ = True
        try:
            self._over.park()
        except KeyboardInterrupt as error:
            name_line(error, line_behind(self._caller))
            if interruptible:
                self.operation.interrupt()
            # A wait that Ctrl-C ended may have taken the only `unpark`.
            self._over.park(0 if self._complete else -1 if partial_result else UNWIND_SECONDS)
            if not partial_result:
                raise
        try:
            if self._error is not None:
                raise self._error
            return self._value
        finally:
            self._error = self._value = None  # breaks a reference cycle

    def abandon(self) -> None:
        """Undo the operation: the caller does not get its result."""
        with self._guard:
            self._abandoned, complete = True, self._complete
        if complete:
            start_in_thread(self._undo)
            self._over.park(UNWIND_SECONDS)

    def _undo(self) -> None:
        self.operation.undo()
        self._over.unpark()


def perform(call: Callable[[], _R], interruptible: bool = True, partial_result: bool = False) -> _R:
    """Return `call()`, run as an operation.

    If it is not `interruptible`, Ctrl-C only ends the wait for it. With `partial_result`, it catches
    `WaitInterruptedError` and returns its result until then; only another Ctrl-C ends the wait for it.
    """
    __tracebackhide__ = True
    if not interrupts.on_main_thread():
        return Operation().run(call)
    job = _Job(call)
    try:
        with CtrlC():
            start_in_thread(job)
            return job.result(interruptible, partial_result)  # type: ignore[no-any-return]
    except KeyboardInterrupt as error:
        if interruptible:
            job.abandon()
        cut_handler(error)
        raise


def operation(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function that the notebook calls, so that Ctrl-C does not interrupt it halfway.

    It runs on its own thread while the notebook's thread waits for it. Ctrl-C ends that wait at once, and the
    operation's current or next wait for a model; then the operation is undone, see `undo`.

    Parameters
    ----------
    function : callable
        Functions and methods with any arguments. Called on another thread than the main thread, it runs there.

    Returns
    -------
    callable
        A function with the same arguments and result.
    """

    @wraps(function)
    def call(*args: _P.args, **options: _P.kwargs) -> _R:
        __tracebackhide__ = True
        return perform(partial(function, *args, **options))

    return call


class Scope:
    """A context manager that is entered completely or not at all, and always left.

    A subclass defines `_leave`, which undoes the completed part of `_enter` and may be called twice. `_raised` says
    whether the block raised an exception. A subclass must not override `__enter__` and `__exit__`.
    """

    _raised = False
    _in_block = _entered = False

    def __enter__(self: _S) -> _S:
        __tracebackhide__ = True
        self._check()
        self._in_block = begin_block()
        try:
            perform(self._enter_wholly)
            raise_noted()
            return self
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def _enter_wholly(self) -> None:
        undo(self._undo_enter)
        self._enter()
        self._entered = True

    def _undo_enter(self) -> None:
        self._entered, self._raised = False, True
        self._leave()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            with CtrlC():
                self._raised = kind is not None
                if self._entered:  # or else `_undo_enter` runs where `_enter` did
                    perform(self._leave, interruptible=False)
        finally:
            if self._in_block:
                self._in_block = False
                end_block()

    def _check(self) -> None:
        """Raise an exception if it cannot be entered; `_leave` is not called then."""

    def _enter(self) -> None:
        """By default do nothing: the function that returned the object has started it."""

    def _leave(self) -> None:
        raise NotImplementedError


interrupts.borders.update((Scope.__enter__.__code__, Scope.__exit__.__code__))
