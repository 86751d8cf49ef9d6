"""Helpers for the tests of the engine: callers, waiting, Ctrl-C, and idle instances."""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import bls_notebook as bls
from bls_notebook.extending import host_of
from tests.engine import gates

LIMIT = gates.LIMIT


def ints(*values: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"X": np.array(values or [0], np.int32)}


def row(value: int) -> dict[str, np.ndarray[Any, Any]]:
    """As `ints`, for a model that batches."""
    return {"X": np.array([[value]], np.int32)}


def value(response: Any) -> int:
    assert response.error is None, response.error.message()
    return int(response["Y"].as_numpy()[0])


def message(response: Any) -> str:
    assert response.error is not None, response
    return str(response.error.message())


def infer(repo: bls.ModelRepository, name: str, x: int = 0) -> int:
    return value(repo.infer(name, ints(x)))


def until(condition: Callable[[], Any], what: str = "", limit: float = LIMIT) -> None:
    """Wait for something that nothing signals."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what or condition}\n{stacks()}"
        time.sleep(0.0005)


def idle(repo: bls.ModelRepository, name: str) -> int:
    """How many instances of a model are free now."""
    found = host_of(repo).find(name)
    assert found is not None
    return len(found.scheduler._idle)  # type: ignore[attr-defined]


def queued(repo: bls.ModelRepository, name: str) -> int:
    """How many requests wait for an instance of a model."""
    found = host_of(repo).find(name)
    assert found is not None
    return len(found.scheduler._queue)  # type: ignore[attr-defined]


def assert_all_idle(repo: bls.ModelRepository, *names: str) -> None:
    """Assert that no instance is lost. A response may arrive a moment before its instance is idle."""
    for name in names or repo._server.names():
        found: Any = host_of(repo).find(name)
        assert found is not None
        scheduler = getattr(found.scheduler, "_inner", found.scheduler)
        total = len(found.instances)
        until(lambda s=scheduler: not s._queue, f"a request to {name!r} is left in the queue")
        until(lambda s=scheduler, t=total: len(s._idle) == t, f"an instance of {name!r} is lost")
        assert all(i.holder is None for i in found.instances)


class Caller(threading.Thread):
    """Runs a function in a thread; `result()` gives what it returned, or raises what it raised."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        super().__init__(daemon=True)
        self._function, self._args = function, args
        self._outcome: list[Any] = []
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._outcome.append(self._function(*self._args))
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        return not self.is_alive()

    def result(self, limit: float = LIMIT) -> Any:
        self.join(limit)
        if self.is_alive():
            raise AssertionError(f"still waiting after {limit} s\n{stacks()}")
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:  # pytest would take some of these for its own
            raise AssertionError(f"ended with {self._error!r}") from self._error
        return self._outcome[0]


def stacks() -> str:
    """Every thread's stack."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def press_ctrl_c() -> None:
    """As if somebody pressed it now: SIGINT for the main thread."""
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def no_more_ctrl_c() -> None:
    """Swallow what is still under way, so that it hits no other test."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(LIMIT)
    signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def ctrl_c_once(ready: Callable[[], Any]) -> Iterator[list[float]]:
    """The body must end with KeyboardInterrupt, soon after `ready()` has come true.

    Gives a list that holds, afterwards, how long it took from the key to the exception.
    """
    pressed: list[float] = []
    took: list[float] = []
    problem: list[BaseException] = []

    def press() -> None:
        try:
            until(ready, "what Ctrl-C is to interrupt")
        except BaseException as error:
            problem.append(error)
        pressed.append(time.monotonic())
        press_ctrl_c()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press, daemon=True)
    try:
        try:
            thread.start()
            yield took
        except KeyboardInterrupt:
            took.append(time.monotonic() - pressed[0])
        else:
            try:  # it may come while we wait for it
                thread.join(LIMIT)
                time.sleep(1)
            except KeyboardInterrupt:
                pass
            raise AssertionError("the body ended without KeyboardInterrupt")
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join(LIMIT)
    if problem:
        raise problem[0]
    assert took[0] < 15, f"Ctrl-C took {took[0]:.1f} s"


def assert_usable(repo: bls.ModelRepository, *names: str) -> None:
    assert_all_idle(repo)
    for name in names:
        assert infer(repo, name) in (0, 1)
    assert_all_idle(repo)
