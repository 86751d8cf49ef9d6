"""Worker threads, parking, and the mailbox of a loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from bls_notebook.engine.waiting import worker_threads
from bls_notebook.engine.waiting.event_loops import ModelLoop, in_every_loop, mailbox
from bls_notebook.engine.waiting.interrupts import clear_interrupt, interrupt_thread
from bls_notebook.engine.waiting.parker import Parker
from tests.engine.harness import LIMIT, Caller, until


def run(job: Callable[[], None]) -> None:
    """Run a job in a worker and wait until the worker is free again."""
    done = threading.Event()

    def wrapped() -> None:
        try:
            job()
        finally:
            done.set()

    worker_threads.start_in_thread(wrapped)
    assert done.wait(LIMIT)


def settled() -> None:
    """Every worker that lives is idle."""

    def workers() -> int:
        return sum(t.name.startswith("bls-worker") for t in threading.enumerate())

    until(lambda: worker_threads._idle == workers(), "idle workers")


def test_an_idle_worker_is_used_again() -> None:
    settled()
    known = {t.ident for t in threading.enumerate()}
    seen = set()
    for _ in range(20):
        settled()
        run(lambda: seen.add(threading.get_ident()))
    settled()
    assert len(seen - known) <= 2  # one more than needed is kept


def test_workers_are_daemons_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    settled()
    monkeypatch.setattr(worker_threads, "IDLE_SECONDS", 0.01)
    workers: list[threading.Thread] = []
    jobs = worker_threads._idle + 1
    barrier = threading.Barrier(jobs + 1)  # every idle worker gets a job, and then waits for the new time

    def job() -> None:
        workers.append(threading.current_thread())
        barrier.wait(LIMIT)

    for _ in range(jobs):
        worker_threads.start_in_thread(job)
    barrier.wait(LIMIT)
    assert all(worker.daemon for worker in workers)
    until(lambda: worker_threads._idle == 1, "all but the one that waits for the next job end")
    until(lambda: sum(worker.is_alive() for worker in workers) <= 1, "the others end")


def test_a_job_that_comes_just_when_its_worker_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    settled()
    monkeypatch.setattr(worker_threads, "IDLE_SECONDS", 0.0002)
    ran = []
    done = threading.Semaphore(0)

    def give(number: int) -> None:
        for n in range(100):
            worker_threads.start_in_thread(lambda n=n: (ran.append((number, n)), done.release()))
            if n % 10 == 0:
                time.sleep(0.0002)  # around the limit

    for caller in [Caller(give, n) for n in range(4)]:
        caller.result()
    for _ in range(400):
        assert done.acquire(timeout=LIMIT)
    assert sorted(ran) == [(m, n) for m in range(4) for n in range(100)]
    until(lambda: worker_threads._idle == 1, "all but one end")


def test_objects_of_a_finished_job_are_freed() -> None:
    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing)

    def job(held: Thing = thing) -> None:
        del held

    del thing
    worker_threads.start_in_thread(job)
    del job
    until(lambda: reference() is None)


@pytest.mark.parametrize("error", [ValueError("of a job"), SystemExit(3), KeyboardInterrupt()])
def test_a_job_that_raises_costs_nobody_else_anything(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    settled()
    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))

    def fails() -> None:
        raise error

    run(fails)
    until(lambda: reported == [error])
    settled()
    run(lambda: None)


def test_jobs_of_destructors_wait_for_no_lock() -> None:
    worker_threads.ready()
    ran = threading.Event()

    class Dropped:
        def __del__(self) -> None:
            worker_threads.later(ran.set)

    with worker_threads._lock:
        Dropped()
    assert ran.wait(LIMIT)


def test_park_ends_by_unpark_or_by_its_time() -> None:
    parker = Parker()
    assert not parker.park(0)
    assert not parker.park(0.01)
    for limit in ((LIMIT,), ()):
        waiting = Caller(parker.park, *limit)
        parker.unpark()
        assert waiting.result() is True
    for _ in range(2):  # before it parks, and twice
        parker.unpark()
    assert parker.park(LIMIT)


def test_an_interrupt_that_is_taken_back() -> None:
    held, running = threading.Event(), threading.Event()

    def wait() -> str:
        running.set()
        held.wait(LIMIT)  # in C: nothing arrives there
        return "went on"

    thread = Caller(wait)
    assert running.wait(LIMIT)
    until(lambda: held._cond._waiters)  # type: ignore[attr-defined]
    interrupt_thread(thread.ident or 0)
    clear_interrupt(thread.ident or 0)
    held.set()
    assert thread.result() == "went on"
    clear_interrupt(threading.get_ident())  # one that was received: Python stops looking for the other


def test_an_interrupt_of_ones_own_and_of_a_thread_that_is_gone() -> None:
    thread = Caller(lambda: 1)
    assert thread.result() == 1
    for ident in (threading.get_ident(), thread.ident or 0):
        interrupt_thread(ident)
        clear_interrupt(ident)


def test_posting_from_many_threads() -> None:
    loop = ModelLoop("test")
    ran: list[tuple[int, int]] = []
    done = threading.Event()

    def post(number: int) -> None:
        for n in range(500):
            loop.post(lambda n=n: ran.append((number, n)))

    for caller in [Caller(post, n) for n in range(4)]:
        caller.result()
    loop.post(done.set)
    assert done.wait(LIMIT)
    assert len(ran) == 2000
    for number in range(4):
        assert [n for m, n in ran if m == number] == list(range(500))
    loop.stop()


def test_a_callback_that_fails_takes_no_other_along() -> None:
    loop = ModelLoop("test")
    errors = []
    done = threading.Event()
    loop.loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    busy, hold = threading.Event(), threading.Event()
    loop.loop.call_soon_threadsafe(lambda: (busy.set(), hold.wait(LIMIT)))
    assert busy.wait(LIMIT)  # so that the two below are run in one go

    def fails() -> None:
        raise ValueError("of a callback")

    loop.post(fails)
    loop.post(done.set)
    hold.set()
    assert done.wait(LIMIT)
    until(lambda: len(errors) == 1)
    loop.stop()


def test_posting_to_a_closed_loop_is_silent() -> None:
    async def nothing() -> object:
        return mailbox(asyncio.get_running_loop())

    box = asyncio.run(nothing())
    for _ in range(3):
        box.post(lambda: None)  # type: ignore[attr-defined]
    loop = ModelLoop("test")
    loop.stop()
    until(lambda: loop.loop.is_closed())
    loop.post(lambda: None)
    loop.stop()


def test_a_loop_whose_thread_cannot_be_started_is_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ModelLoop] = []

    def start(thread: threading.Thread) -> None:
        made.append(thread._target.__self__)  # type: ignore[attr-defined]
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            ModelLoop("test")
    in_every_loop(int)
    made[0].loop.close()


@pytest.mark.parametrize("patched", ["", "thread=False"])
def test_models_answer_in_a_process_that_gevent_patched(patched: str, tmp_path: Path) -> None:
    pytest.importorskip("gevent")
    if not patched and sys.version_info >= (3, 13):
        pytest.skip("requests hang there if gevent patches the threads of Python 3.13, too")
    script = """
from gevent import monkey
monkey.patch_all(PATCHED)
import numpy as np
import bls_notebook as bls

TENSOR = ' { name: "X" data_type: TYPE_FP32 dims: 1 } '
MODEL = '''
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.outputs(r)) for r in requests]
    def outputs(self, request):
        return ANSWER
'''
CALL = 'pb_utils.InferenceRequest(model_name="callee", inputs=request.inputs(), requested_output_names=["X"]).exec()'
repo = bls.ModelRepository()
for name, answer in ("callee", "request.inputs()"), ("caller", CALL + ".output_tensors()"):
    repo.define(name, MODEL.replace("ANSWER", answer), config="input" + TENSOR + "output" + TENSOR)
print(repo.infer("caller", {"X": np.float32([7])}).as_numpy()["X"][0])
"""
    command = [sys.executable, "-c", script.replace("PATCHED", patched)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=tmp_path)
    assert done.stdout.split() == ["7.0"], done.stderr
