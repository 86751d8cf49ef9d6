"""Code of models that expects the main thread of its process; other threads are not concerned."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import warnings

import pytest

import bls_notebook as bls
from bls_notebook.engine.waiting.main_thread import as_main_thread
from tests.engine import gates
from tests.engine.harness import Caller, infer, ints, value
from tests.engine.sources import caller_of, model, pbtxt

makes_loops = pytest.mark.skipif(sys.version_info >= (3, 14), reason="no thread gets a loop by asking for it")
LOOPS = model("""
def initialize(self, args):
    self.loop = asyncio.get_event_loop()
    self.loop.run_until_complete(asyncio.sleep(0))

def execute(self, requests):
    assert asyncio.get_event_loop() is self.loop
    return [self.loop.run_until_complete(self.answer(request)) for request in requests]

async def answer(self, request):
    await asyncio.sleep(0)
    return answer(number(request))

def finalize(self):
    assert asyncio.get_event_loop() is self.loop
    gates.shared["loop"] = self.loop
""")
FETCHES = model("""
async def execute(self, requests):
    got = await asyncio.gather(*[ask("loops", n).async_exec() for n in range(4)])
    return [answer(value_of(got[-1]))]
""")
HANDLES = """
import os, signal

class TritonPythonModel:
    def initialize(self, args):
        self.seen = []
        assert signal.signal(SIGNAL, self.note) == signal.SIG_DFL

    def note(self, number, frame):
        self.seen.append((number, frame.f_code.co_name))

    def execute(self, requests):
        os.kill(os.getpid(), SIGNAL)
        signal.raise_signal(SIGNAL)
        assert [number for number, _ in self.seen] == [SIGNAL, SIGNAL]
        assert signal.signal(SIGNAL, signal.SIG_IGN) == self.note
        os.kill(os.getpid(), SIGNAL)
        assert signal.getsignal(SIGNAL) == signal.SIG_IGN
        assert (signal.alarm(1), signal.setitimer(signal.ITIMER_REAL, 1)) == (0, (0.0, 0.0))
        for wrong in ((SIGNAL, "no function"), (4000, self.note), ("SIGTERM", self.note)):
            try:
                signal.signal(*wrong)
            except (TypeError, ValueError):
                continue
            raise AssertionError(wrong)
        return []
""".replace("SIGNAL", "signal.SIGTERM")


@makes_loops
@pytest.mark.parametrize("source", [caller_of("loops", 1), FETCHES])
def test_get_event_loop_gives_an_instance_its_loop(source: str) -> None:
    with bls.ModelRepository() as repo:
        repo.define("loops", LOOPS, pbtxt())
        repo.define("caller", source, pbtxt())
        assert infer(repo, "loops", 7) == 7

        async def cell() -> int:  # while the notebook's own loop runs
            assert value(repo.infer("loops", ints(8))) == 8
            return value(await repo.infer_async("caller", ints(0)))

        assert asyncio.run(cell()) in (1, 3)
    assert gates.shared["loop"].is_closed()


@makes_loops
def test_a_loop_is_made_as_on_a_main_thread() -> None:
    def act() -> None:
        with as_main_thread("here"):
            asyncio.run(asyncio.sleep(0))  # sets no loop as the current one, in the end
            with pytest.raises(RuntimeError, match="no current event loop"):
                asyncio.get_event_loop()

    Caller(act).result()

    def act_again() -> None:
        with as_main_thread("here"):
            asyncio.get_event_loop().run_until_complete(asyncio.sleep(0))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Caller(act_again).result()
        gc.collect()  # the loop is closed
    for _ in range(3):  # a thread may have the ident of one that has ended
        with pytest.raises(RuntimeError, match="no current event loop"):
            Caller(asyncio.get_event_loop).result()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_handlers_of_a_model_are_its_own(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getitimer(signal.ITIMER_REAL)[0] > 0
    with bls.ModelRepository() as repo:
        repo.define("handles", HANDLES, pbtxt())
        caplog.clear()
        error = repo.infer("handles", ints(0)).error
        assert error is not None
        assert "AssertionError" not in error.message()
        assert "set an alarm" in caplog.text
        assert (signal.getsignal(signal.SIGTERM), signal.getitimer(signal.ITIMER_REAL)[0] > 0) == before
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    assert callable(signal.signal(signal.SIGUSR1, handler))
    with pytest.raises(ValueError, match="main thread"):
        Caller(signal.signal, signal.SIGUSR1, signal.SIG_DFL).result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_pythons_own_functions() -> None:
    def act() -> int:
        with as_main_thread("here"):
            child = os.fork()
            if child == 0:
                try:
                    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
                    os.kill(os.getpid(), signal.SIGTERM)
                finally:
                    os._exit(8)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert Caller(act).result() == 7
