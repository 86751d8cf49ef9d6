"""Ctrl-C at the worst moments: no instance is lost, and what was queued is given up."""

from __future__ import annotations

import _thread
import gc
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.runner import BatchRunner
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting import interrupts as ctrl_c
from tests.engine import gates
from tests.engine.harness import (
    DOUBLE,
    Caller,
    assert_all_idle,
    ctrl_c_once,
    idle,
    infer,
    ints,
    model,
    no_more_ctrl_c,
    pbtxt,
    queued,
    until,
)
from tests.engine.usable import assert_usable


@pytest.fixture(autouse=True)
def no_tracebacks_kept() -> Any:
    yield
    gc.collect()


def test_an_instance_that_just_takes_the_request_is_not_lost(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is pressed after the request has left the queue, and before the model runs."""
    repo.define("a", model('''
def execute(self, requests):
    if number(requests[0]):
        gates.pass_gate("go on")
    return [answer(1)]
'''), pbtxt())  # fmt: skip
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
    """The last request in flight may be one that is given up; the model is finalized all the same."""
    repo.define("a", model('''
def execute(self, requests):
    if number(requests[0]):
        gates.pass_gate("go on")
    return [answer(1)]

def finalize(self):
    gates.open_gate("finalized")
'''), pbtxt())  # fmt: skip
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
    gates.pass_gate("finalized", 5)
    unloading[0].result(5)


@pytest.mark.parametrize("retry", [3600, 0])
@pytest.mark.parametrize("outcome", ["return [answer(1)]", "raise ValueError('no')"])
def test_a_key_pressed_inside_the_engine_comes_before_the_request_is_over(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, retry: float, outcome: str
) -> None:
    """Or it would hit whatever comes next: another cell, or the kernel itself."""
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
            patched.setattr(ctrl_c, "inside_engine", lambda frame: True)
            patched.setattr(ctrl_c, "RETRY_SECONDS", retry)
            with pytest.raises(KeyboardInterrupt):
                repo.infer("a", ints(1))
        assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert repo.infer("a", ints(0)).error is None
    finally:
        signal.signal(signal.SIGINT, before)
    assert_usable(repo, "a")


def again_and_again(once: Callable[[], Any]) -> None:
    # Python drops an interrupt that hits a destructor. And 3.13 leaves a loop without its `finally`.
    end = time.process_time() + 0.05
    while time.process_time() < end:
        once()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["inline", "nested", "async", "stream", "body"])
def test_at_random_moments(repo: bls.ModelRepository, kind: str) -> None:
    """Hundreds of interrupts, anywhere in the engine: no instance is lost, and nothing is left queued."""
    repo.define("double", DOUBLE, pbtxt())
    repo.define("nested", model('''
def execute(self, requests):
    return [answer(value_of(ask("double", number(requests[0])).exec()))]
'''), pbtxt())  # fmt: skip
    repo.define("async", model('''
async def execute(self, requests):
    got = await asyncio.gather(*[ask("double", number(requests[0])).async_exec() for _ in range(2)])
    return [answer(value_of(got[0]))]
'''), pbtxt())  # fmt: skip

    def body() -> Any:
        tensor = bls.pb_utils.Tensor("X", ints(1)["X"])
        return bls.pb_utils.InferenceRequest(model_name="nested", inputs=[tensor], requested_output_names=[]).exec()

    once = {
        "inline": lambda: infer(repo, "double", 1),
        "nested": lambda: infer(repo, "nested", 1),
        "async": lambda: infer(repo, "async", 1),
        "stream": lambda: list(repo.stream("nested", ints(1))),
        "body": lambda: repo.run(body),
    }[kind]
    once()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for n in range(60):
            try:
                try:
                    threading.Timer(0.0005 + 0.00013 * (n % 17), _thread.interrupt_main).start()
                    again_and_again(once)
                finally:
                    no_more_ctrl_c()
            except KeyboardInterrupt:
                pass
            assert_all_idle(repo)
    finally:
        signal.signal(signal.SIGINT, before)
    assert_usable(repo)
