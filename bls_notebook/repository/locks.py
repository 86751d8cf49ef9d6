"""Changes of a repository: one thread at a time changes a model, and Ctrl-C interrupts only waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from bls_notebook.engine.waiting.operations import perform
from bls_notebook.engine.waiting.parker import Parker, requester


class NameLock:
    """A reentrant lock, also for the code of a model that its owner waits for; Ctrl-C interrupts a wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._waiting: list[Parker] = []

    def __enter__(self) -> None:
        me = requester()
        while True:
            with self._lock:
                if self._owner in (0, me):
                    self._owner, self._depth = me, self._depth + 1
                    return
                parker = Parker()
                self._waiting.append(parker)
            parker.park()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            self._owner = 0
            woken, self._waiting = self._waiting, []
        for parker in woken:
            parker.unpark()


_C = TypeVar("_C")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def change(method: Callable[Concatenate[_C, _P], _R]) -> Callable[Concatenate[_C, _P], _R]:
    """Decorate a change of a repository: it is an operation, see `engine.waiting.operations`."""

    @wraps(method)
    def call(self: _C, /, *args: _P.args, **options: _P.kwargs) -> _R:
        __tracebackhide__ = True
        self._server.find("")  # type: ignore[attr-defined]  # raises in a forked child, which cannot use it
        return perform(partial(method, self, *args, **options))

    return call
