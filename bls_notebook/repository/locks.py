"""Locks of a repository: one thread at a time changes a model, and Ctrl-C waits until the change is complete."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from bls_notebook.engine.fork_guard import in_own_process
from bls_notebook.engine.waiting.interrupts import CtrlC
from bls_notebook.engine.waiting.worker_threads import Parker


class NameLock:
    """A reentrant lock; Ctrl-C interrupts a thread that waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._waiting: list[Parker] = []

    def __enter__(self) -> None:
        me = threading.get_ident()
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


def undivided(method: Callable[Concatenate[_C, _P], _R]) -> Callable[Concatenate[_C, _P], _R]:
    """Decorate a change of a repository: Ctrl-C interrupts only the model code that it runs, and its waits."""

    @wraps(method)
    def call(self: _C, /, *args: _P.args, **options: _P.kwargs) -> _R:
        server: Any = self.server  # type: ignore[attr-defined]
        if not in_own_process(server):
            server.serving("")  # raises: a forked child cannot use it
        with CtrlC():
            return method(self, *args, **options)

    return call
