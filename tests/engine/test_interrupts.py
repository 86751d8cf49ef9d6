"""Ctrl-C: out at once, what it started is stopped, nothing is lost and everything stays usable."""

from __future__ import annotations

import asyncio
import gc
import importlib
import signal
import sys
import threading
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.waiting.interrupts import Interrupted, interrupt_thread, resume_debugged_threads
from bls_notebook.engine.waiting.operations import perform
from bls_notebook.engine.waiting.parker import Parker
from bls_notebook.extending import host_of
from tests.engine import gates
from tests.engine.harness import (
    Caller,
    assert_all_idle,
    assert_usable,
    ctrl_c_once,
    idle,
    infer,
    ints,
    no_more_ctrl_c,
    press_ctrl_c,
    queued,
    until,
    value,
)
from tests.engine.sources import HOLDS, model, pbtxt


@pytest.fixture(autouse=True)
def no_tracebacks_kept() -> Any:
    yield
    gc.collect()


SPIN = model("""
def execute(self, requests):
    if number(requests[0]) == 0:
        return [answer(1)]
    gates.open_gate("spins")
    try:
        while True:  # in 3.13, a loop by its condition that ends in a jump is left without its `finally`
            if gates.over[0]:
                break
    finally:
        gates.shared["cancelled"] = requests[0].is_cancelled()
        gates.open_gate("left")
""")

SLEEP = model("""
async def execute(self, requests):
    if number(requests[0]) == 0:
        return [answer(1)]
    gates.count("sleeping")
    gates.open_gate("sleeps")
    try:
        await asyncio.sleep(3600)
    finally:
        gates.shared["cancelled"] = requests[0].is_cancelled()
        gates.count("left")
        gates.open_gate("left")
""")

STREAM = model("""
def execute(self, requests):
    sender = requests[0].get_response_sender()
    for n in range(number(requests[0])):
        sender.send(answer(n))
    gates.open_gate("sent")
    try:
        while not sender.is_cancelled() and not gates.over[0]:
            gates.gate("never").wait(0.002)
    finally:
        gates.shared["cancelled"] = sender.is_cancelled()
        gates.open_gate("left")
    sender.send(flags=FINAL)
""")


def opened(name: str) -> Any:
    return gates.gate(name).is_set


NEVER_YIELDS = model("""
async def execute(self, requests):
    if number(requests[0]):
        gates.open_gate("spins")
        while not gates.over[0]:
            pass
    return [answer(1)]
""")
SWALLOWS = model("""
def execute(self, requests):
    if not number(requests[0]):
        return [answer(1)]
    gates.open_gate("spins")
    while not gates.over[0]:
        try:
            for _ in range(100):
                pass
        except Exception:
            pass
""")


@pytest.mark.parametrize("worker", [False, True])
@pytest.mark.parametrize("source", [SPIN, NEVER_YIELDS, SWALLOWS], ids=["spins", "never yields", "swallows exceptions"])
def test_during_an_execute_that_never_ends(repo: bls.ModelRepository, source: str, worker: bool) -> None:
    assert not issubclass(Interrupted, Exception)
    repo.define("a", source, pbtxt())
    with ctrl_c_once(opened("spins")):
        list(repo.stream("a", ints(1))) if worker else repo.infer("a", ints(1))
    if source is SPIN:
        gates.pass_gate("left")
    assert_usable(repo, "a")


def test_while_waiting_in_a_queue(repo: bls.ModelRepository) -> None:
    repo.define("a", HOLDS, pbtxt())
    other = Caller(infer, repo, "a", 1)
    until(lambda: idle(repo, "a") == 0)
    with ctrl_c_once(lambda: queued(repo, "a") == 1):
        repo.infer("a", ints(0))
    assert queued(repo, "a") == 0
    gates.open_gate("go on")
    assert other.result() == 1  # somebody else's request goes on
    assert_usable(repo, "a")


def test_while_waiting_for_an_async_model(repo: bls.ModelRepository) -> None:
    repo.define("a", SLEEP, pbtxt())
    with ctrl_c_once(opened("sleeps")):
        repo.infer("a", ints(1))
    gates.pass_gate("left")
    assert gates.shared["cancelled"] is True
    assert_usable(repo, "a")


def test_requests_sent_after_ctrl_c_are_cancelled(repo: bls.ModelRepository) -> None:
    repo.define("c", SLEEP, pbtxt(3))
    repo.define("a", model("""
async def execute(self, requests):
    sent = [ask("c", number(requests[0])).async_exec()]
    while number(requests[0]) and not requests[0].is_cancelled():
        pass
    sent.append(ask("c", number(requests[0])).async_exec())
    return [answer(max(map(value_of, await asyncio.gather(*sent))))]
"""), pbtxt())  # fmt: skip
    with ctrl_c_once(opened("sleeps")):
        repo.infer("a", ints(1))
    assert_usable(repo, "a", "c")


def test_async_models_below_async_models(repo: bls.ModelRepository) -> None:
    repo.define("c", SLEEP, pbtxt(3))
    for name, below in ("b", "c"), ("a", "b"):
        repo.define(name, model(f'''
async def execute(self, requests):
    got = await asyncio.gather(*[ask({below!r}, number(requests[0])).async_exec() for _ in range(3)])
    return [answer(max(map(value_of, got)))]
'''), pbtxt(3))  # fmt: skip
    with ctrl_c_once(lambda: gates.counts["sleeping"] == 3):
        repo.infer("a", ints(1))
    until(lambda: gates.counts["left"] == gates.counts["sleeping"])
    assert_usable(repo, "a", "b", "c")
    assert gates.counts["left"] == gates.counts["sleeping"]


@pytest.mark.parametrize("caller", [
    "await ask('spin', 1).async_exec()",
    "await asyncio.gather(ask('spin', 1).async_exec(), ask('spin', 1).async_exec())",
    "await asyncio.to_thread(ask('spin', 1).exec)",
    "list(ask('spin', 1).exec(decoupled=True))",
    "await asyncio.create_task(self.more())",
    "ask('spin', 1).exec()",
])  # fmt: skip
def test_a_worker_in_an_endless_loop(repo: bls.ModelRepository, caller: str) -> None:
    repo.define("spin", SPIN, pbtxt())
    repo.define("a", model(f'''
async def execute(self, requests):
    if number(requests[0]):
        {caller}
    return [answer(1)]

async def more(self):
    return await ask('spin', 1).async_exec()
'''), pbtxt())  # fmt: skip
    with ctrl_c_once(opened("spins")):
        repo.infer("a", ints(1))
    gates.pass_gate("left")
    assert_usable(repo, "a", "spin")


def test_a_worker_that_calls_in_an_endless_loop(repo: bls.ModelRepository) -> None:
    repo.define("b", model('''
def execute(self, requests):
    for _ in range(1000):
        pass
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    repo.define("spin", model('''
def execute(self, requests):
    if not number(requests[0]):
        return [answer(1)]
    gates.open_gate("spins")
    try:
        while True:
            ask("b").exec()
            if gates.over[0]:
                break
    finally:
        gates.open_gate("left")
'''), pbtxt())  # fmt: skip
    for _ in range(5):
        for name in "spins", "left":
            gates.gate(name).clear()
        with ctrl_c_once(opened("spins")):
            list(repo.stream("spin", ints(1)))
        gates.pass_gate("left")
        assert_usable(repo, "spin", "b")


def test_a_worker_that_waits_for_others(repo: bls.ModelRepository) -> None:
    repo.define("below", SLEEP, pbtxt())
    repo.define("spin", model('''
def execute(self, requests):
    if number(requests[0]):
        try:
            ask("below", 1).exec()
            while True:
                if gates.over[0]:
                    break
        finally:
            gates.open_gate("worker left")
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    with ctrl_c_once(opened("sleeps")):
        list(repo.stream("spin", ints(1)))
    gates.pass_gate("left")
    gates.pass_gate("worker left")
    assert_usable(repo, "spin", "below")


def test_during_a_stream(repo: bls.ModelRepository) -> None:
    repo.define("s", STREAM, pbtxt(decoupled=True))
    got: list[int] = []
    with ctrl_c_once(lambda: len(got) == 3):
        for response in repo.stream("s", ints(3)):
            got.append(value(response))
    assert got == [0, 1, 2]
    gates.pass_gate("left")
    assert gates.shared["cancelled"] is True
    assert_all_idle(repo)
    assert [value(r) for r in islice(repo.stream("s", ints(2)), 2)] == [0, 1]


def test_while_a_stream_is_sent(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.define("s", STREAM, pbtxt(decoupled=True))
    scheduler: Any = host_of(repo).ready("s").scheduler
    submit = scheduler.submit

    def submit_and_press(ticket: Any) -> None:
        submit(ticket)
        gates.pass_gate("sent")
        press_ctrl_c()

    monkeypatch.setattr(scheduler, "submit", submit_and_press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(repo.stream("s", ints(3)))
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.undo()
    gates.pass_gate("left")
    assert gates.shared["cancelled"] is True
    assert_all_idle(repo)


def test_a_model_that_streams_from_a_model(repo: bls.ModelRepository) -> None:
    repo.define("s", STREAM, pbtxt(decoupled=True))
    repo.define("a", model('''
def execute(self, requests):
    return [answer(sum(value_of(r) for r in ask("s", 3).exec(decoupled=True)))]
'''), pbtxt())  # fmt: skip
    with ctrl_c_once(opened("sent")):
        repo.infer("a", ints(0))
    gates.pass_gate("left")


# As anywhere in Python, an interrupt that strikes while `asyncio.run` closes its loop leaves the loop half closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_asyncio_run_inside_a_sync_model(repo: bls.ModelRepository) -> None:
    repo.define("sleep", SLEEP, pbtxt(2))
    repo.define("a", model('''
def execute(self, requests):
    async def both():
        got = await asyncio.gather(*[ask("sleep", number(requests[0])).async_exec() for _ in range(2)])
        return sum(map(value_of, got))
    return [answer(asyncio.run(both()) // 2)]
'''), pbtxt())  # fmt: skip
    with ctrl_c_once(lambda: gates.counts["sleeping"] == 2):
        repo.infer("a", ints(1))
    until(lambda: gates.counts["left"] == 2)
    assert_usable(repo, "a", "sleep")
    gc.collect()  # that loop, before the filter ends


@pytest.mark.parametrize("worker", [False, True])
def test_a_bare_thread_that_waits_for_its_own_model(repo: bls.ModelRepository, worker: bool) -> None:
    repo.define("a", model('''
def execute(self, requests):
    if number(requests[0]):
        thread = threading.Thread(target=lambda: ask("a", 0).exec())
        gates.shared["thread"] = thread
        thread.start()
        thread.join()
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    with ctrl_c_once(lambda: "thread" in gates.shared and queued(repo, "a") == 1):
        if worker:  # a stream runs on a worker, which waits for the thread in C
            list(repo.stream("a", ints(1)))
        repo.infer("a", ints(1))
    until(lambda: not gates.shared["thread"].is_alive(), "the thread's request is cancelled")
    assert_usable(repo, "a")


def test_in_a_body_of_the_notebook(repo: bls.ModelRepository) -> None:
    repo.define("a", SLEEP, pbtxt())
    request = {"model_name": "a", "requested_output_names": []}

    async def body() -> Any:
        tensor = bls.pb_utils.Tensor("X", ints(1)["X"])
        return await bls.pb_utils.InferenceRequest(inputs=[tensor], **request).async_exec()

    with ctrl_c_once(opened("sleeps")):
        repo.run(body)
    gates.pass_gate("left")
    assert_usable(repo, "a")


def test_stream_async_that_is_cancelled_leaves_no_thread_waiting(repo: bls.ModelRepository) -> None:
    """asyncio.run joins the threads of its pool: one that waited for ever would hang it."""
    repo.define("a", model('''
async def execute(self, requests):
    gates.shared["senders"] = [r.get_response_sender() for r in requests]
    gates.open_gate("runs")
'''), pbtxt(decoupled=True))  # fmt: skip

    async def call() -> None:
        async def walk() -> None:
            async for _ in repo.stream_async("a", ints(1)):
                pass

        task = asyncio.create_task(walk())
        await asyncio.to_thread(gates.pass_gate, "runs")
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    Caller(asyncio.run, call()).result()
    gates.shared.clear()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_second_ctrl_c_is_no_worse(repo: bls.ModelRepository) -> None:
    repo.define("a", SLEEP, pbtxt())
    for _ in range(5):
        for name in "sleeps", "left":
            gates.gate(name).clear()

        def twice() -> None:
            until(opened("sleeps"))
            press_ctrl_c()
            press_ctrl_c()

        thread = threading.Thread(target=twice)
        thread.start()
        left = False
        try:
            try:
                repo.infer("a", ints(1))
            except KeyboardInterrupt:
                left = True
            finally:
                thread.join()
                no_more_ctrl_c()
        except KeyboardInterrupt:  # the second
            no_more_ctrl_c()
        assert left
        gates.pass_gate("left")
        assert_usable(repo, "a")


def test_ctrl_c_continues_threads_at_breakpoints_and_none_that_stop_later(monkeypatch: pytest.MonkeyPatch) -> None:
    here: Any = threading.current_thread()
    resumed: SimpleQueue[Any] = SimpleQueue()
    life = SimpleNamespace(
        STATE_RUN=1, set_additional_thread_info=None, internal_run_thread=lambda thread, _: resumed.put(thread)
    )
    monkeypatch.setitem(sys.modules, "_pydevd_bundle.pydevd_thread_lifecycle", life)
    started: list[threading.Timer] = []
    monkeypatch.setattr(threading.Timer, "start", lambda timer: started.append(timer))
    for state, count in ((1, 0), (2, 1)):
        monkeypatch.setattr(here, "additional_info", SimpleNamespace(pydev_state=state), raising=False)
        resume_debugged_threads()
        assert len(started) == count
    started[0].function()
    assert (resumed.get(), resumed.empty()) == (here, True)


def test_ctrl_c_as_an_operation_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait that it interrupts has taken the result's `unpark`; the next wait must not need another."""
    interrupted: list[bool] = []
    park = Parker.park

    def park_until_ctrl_c(parker: Parker, seconds: float = -1) -> bool:
        ended = park(parker, seconds)
        if threading.current_thread() is threading.main_thread() and not interrupted:
            interrupted.append(ended)
            raise KeyboardInterrupt
        return ended

    monkeypatch.setattr(Parker, "park", park_until_ctrl_c)
    assert perform(lambda: 7, partial_result=True) == 7
    assert interrupted == [True]


def test_an_import_of_a_shared_module_is_not_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "imported_without_an_interrupt"
    waits = "from tests.engine import gates\ngates.open_gate('import begins')\ngates.pass_gate('import ends')"
    (tmp_path / f"{name}.py").write_text(f"{waits}\nwhole = True")
    monkeypatch.syspath_prepend(tmp_path)

    def imports() -> str:
        try:
            importlib.import_module(name)
            while True:
                pass
        except Interrupted:
            return "interrupted"

    thread = Caller(imports)
    gates.pass_gate("import begins")
    assert not interrupt_thread(thread.ident or 0)
    gates.open_gate("import ends")
    until(lambda: interrupt_thread(thread.ident or 0), "the import ends")
    assert thread.result() == "interrupted"
    assert sys.modules.pop(name).whole
