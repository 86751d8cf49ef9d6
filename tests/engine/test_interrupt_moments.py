"""Ctrl-C at chosen moments, and at every line that starts or stops a recording or changes models."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import allocation_log
from bls_notebook.engine.batch_runner import BatchRunner
from bls_notebook.engine.model_code import as_model
from bls_notebook.engine.recording import request_log as recording
from bls_notebook.engine.schedulers import default
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting import interrupts
from bls_notebook.engine.waiting.interrupts import CtrlC
from bls_notebook.engine.waiting.worker_threads import Parker
from bls_notebook.extending import critical
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.profiling import profiler, session_builder
from tests.engine import gates
from tests.engine.harness import Caller, assert_usable, ctrl_c_once, idle, infer, ints, no_more_ctrl_c, queued, until
from tests.engine.sources import HOLDS, model, pbtxt


@pytest.fixture(autouse=True)
def no_tracebacks_kept() -> Any:
    yield
    gc.collect()


def test_an_instance_that_just_takes_the_request_is_not_lost(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.define("a", HOLDS, pbtxt())
    out = threading.Event()
    taken = threading.Event()
    run = BatchRunner.run

    def slow_run(*args: Any) -> Any:
        taken.set()
        assert out.wait(gates.LIMIT)
        return run(*args)

    monkeypatch.setattr(BatchRunner, "run", slow_run)
    other = Caller(infer, repo, "a", 1)
    until(lambda: idle(repo, "a") == 0)

    def ready() -> bool:
        if queued(repo, "a"):
            gates.open_gate("go on")
        return taken.is_set()

    with ctrl_c_once(ready):
        repo.infer("a", ints(0))
    out.set()
    assert other.result() == 1
    monkeypatch.undo()
    assert_usable(repo, "a")


def test_unloading_while_a_queued_request_is_interrupted(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.define("a", HOLDS, pbtxt())
    other = Caller(infer, repo, "a", 1)
    until(lambda: idle(repo, "a") == 0)
    finish = Ticket.finish
    model_ = repo._server.find("a")
    unloading: list[Caller] = []

    def slow_finish(self: Any, response: Any) -> bool:
        if threading.current_thread() is threading.main_thread() and not unloading:
            unloading.append(Caller(repo.unload, "a"))
            until(lambda: repo._server.find("a") is None)
            gates.open_gate("go on")
            assert other.result() == 1
            until(lambda: len(model_.scheduler._idle) == 1)  # type: ignore[union-attr,attr-defined]
        return finish(self, response)

    monkeypatch.setattr(Ticket, "finish", slow_finish)
    with ctrl_c_once(lambda: queued(repo, "a") == 1):
        repo.infer("a", ints(0))
    gates.pass_gate("finalized")
    unloading[0].result()


@pytest.mark.parametrize("retry", [3600, 0])
@pytest.mark.parametrize("outcome", ["return [answer(1)]", "raise ValueError('no')"])
def test_a_key_pressed_inside_the_engine_comes_before_the_request_is_over(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, retry: float, outcome: str
) -> None:
    repo.define("a", model(f"""
def execute(self, requests):
    if number(requests[0]):
        import signal
        signal.raise_signal(signal.SIGINT)
        {outcome}
    return [answer(1)]
"""), pbtxt())  # fmt: skip
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(interrupts, "inside_engine", lambda frame: True)
            patched.setattr(interrupts, "RETRY_SECONDS", retry)
            with pytest.raises(KeyboardInterrupt):
                repo.infer("a", ints(1))
        assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert repo.infer("a", ints(0)).error is None
    finally:
        signal.signal(signal.SIGINT, before)
    assert_usable(repo, "a")


HOME = str(Path(bls.__file__).parent)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    before, tracing = signal.signal(signal.SIGINT, signal.default_int_handler), sys.gettrace()
    try:
        yield
    finally:
        sys.settrace(tracing)
        signal.signal(signal.SIGINT, before)
        no_more_ctrl_c()


def pressed_at(number: int, action: Callable[[], object], within: str = HOME) -> bool:
    """Run it, and press Ctrl-C at the line of this number in these files; whether there are so many."""
    left = [number]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(within):
            return None
        left[0] -= 1
        if left[0] == 0:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return trace

    try:
        sys.settrace(trace)
        action()
        sys.settrace(None)
    except KeyboardInterrupt:
        sys.settrace(None)
        return True
    assert left[0] > 0, f"Ctrl-C at line {number} was swallowed"
    return False


def at_every_line(action: Callable[[], object], check: Callable[[], object], step: int = 1, within: str = HOME) -> int:
    number = 1
    while pressed_at(number, action, within):
        check()
        number += step
    return number


@pytest.mark.slow
@pytest.mark.parametrize("switch", [bls.profile, bls.track_memory, bls.record])
def test_nothing_stays_on(
    ctrl_c: None, monkeypatch: pytest.MonkeyPatch, switch: Callable[[], AbstractContextManager[Any]]
) -> None:
    monkeypatch.setattr(gc, "collect", int)  # takes long, and 300 times
    for module in (profiler, session_builder):  # models that other tests left behind would mean thousands of lines
        monkeypatch.setattr(module, "in_memory", ())
    switches = []  # kept, as by a traceback: the end of an object would also switch it off

    def on_and_off() -> None:
        switches.append(switch())
        with switches[-1]:
            pass

    def nothing_is_on() -> None:
        assert recording.active is None
        assert allocation_log.recording is None

    assert at_every_line(on_and_off, nothing_is_on) > 30


def test_who_calls_and_the_running_loop_are_what_they_were(ctrl_c: None) -> None:
    before, loop, other = caller_var.get(), asyncio.new_event_loop(), cast(Any, object())

    def nothing_has_changed() -> None:
        assert caller_var.get() is before
        assert events._get_running_loop() is loop

    events._set_running_loop(loop)
    try:
        assert at_every_line(lambda: as_model(other, int), nothing_has_changed) > 10
    finally:
        events._set_running_loop(None)
        loop.close()


class OncePerThread:
    """A lock that fails, and does not wait forever, if the thread holds it already."""

    def __init__(self, lock: Any) -> None:
        self._lock, self._owner = lock, 0

    def __enter__(self) -> None:
        assert self._owner != threading.get_ident(), "this thread waits for itself"
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        self._lock.release()


def test_asyncios_handler_of_ctrl_c_waits_for_no_lock(
    ctrl_c: None, repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.define("a", HOLDS, pbtxt())
    scheduler: Any = repo._server.find("a").scheduler  # type: ignore[union-attr]
    monkeypatch.setattr(scheduler, "_lock", OncePerThread(scheduler._lock))

    async def ask() -> None:
        requests = [repo.infer_async("a", ints(1)) for _ in range(3)]
        await asyncio.gather(*requests, asyncio.to_thread(gates.open_gate, "go on"))

    def all_end() -> None:
        gates.open_gate("go on")
        assert_usable(repo, "a")
        gates.reset()

    assert at_every_line(lambda: asyncio.run(ask()), all_end, within=default.__file__) > 10


def test_ctrl_c_while_a_failed_start_is_undone_restores_the_handler(
    ctrl_c: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Parker) -> None:
        raise KeyboardInterrupt

    undone = threading.Event()
    monkeypatch.setattr(Parker, "park", interrupted)
    with pytest.raises(KeyboardInterrupt), critical() as starting:  # noqa: PT012 - both lines fail
        starting.undo(undone.set)
        raise ValueError
    assert undone.wait(gates.LIMIT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not interrupts.critical_files


def test_it_is_not_lost_where_python_drops_exceptions(ctrl_c: None) -> None:
    def dies(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code is allocation_log.death_code:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)

    with bls.track_memory():
        block = np.zeros(3)
        watch = allocation_log.recording._watch(block)  # type: ignore[union-attr]
        with pytest.raises(KeyboardInterrupt), CtrlC():  # noqa: PT012 - both lines are what is interrupted
            sys.settrace(dies)
            del block
    assert watch() is None


def test_a_track_and_a_profile_that_nobody_has_end(ctrl_c: None) -> None:
    bls.track_memory().__enter__()
    bls.profile().__enter__()
    gc.collect()
    assert allocation_log.recording is None
    assert recording.active is None
