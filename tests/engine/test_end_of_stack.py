"""RecursionError at depths near the end of the stack, MemoryError at allocations: nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import bls_notebook as bls
from tests.engine.harness import ints, value
from tests.engine.kinds import REQUESTS, STREAM, at_rest, fresh_loop, lay_out
from tests.engine.sources import model, pbtxt

# Those that need no event loop on this stack: asyncio itself loses a task whose step meets the end of it.
OWN_STACK = (
    "inline", "nested", "async", "of async", "gather", "stream", "half-read stream", "dynamic batcher",
    "sequence batcher", "oldest sequence", "ensemble", "cached", "body",
)  # fmt: skip
# What has to wake a loop of the engine's is not dropped in silence.
ASYNC_STREAM = ([4, 5, 6], lambda repo, loop: [value(r) for r in repo.stream("async_stream", ints(4))])
FRAMES = 140  # more than the engine ever needs at once


@pytest.fixture(scope="module")
def kept() -> Any:
    with bls.ModelRepository() as repository:
        lay_out(repository)
        repository.define("async_stream", STREAM.replace("def execute", "async def execute"), pbtxt(decoupled=True))
        yield repository


def depth_left() -> int:
    """How many more frames of Python there is room for."""

    def down(n: int) -> int:
        try:
            return down(n + 1)
        except RecursionError:
            return n

    return down(0)


def at_depth(n: int, call: Callable[[], Any]) -> Any:
    return call() if n <= 0 else at_depth(n - 1, call)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [*OWN_STACK, "async stream"])
def test_near_the_end_of_the_stack(kept: bls.ModelRepository, kind: str) -> None:
    expected, once = {**REQUESTS, "async stream": ASYNC_STREAM}[kind]
    outcomes = set()
    room = depth_left()
    for spare in range(5, FRAMES, 3):
        with fresh_loop() as loop:
            try:
                answered = at_depth(room - spare, lambda: once(kept, loop))
                outcomes.add(answered == expected)
            except (RecursionError, AssertionError, bls.BLSError):  # as an error response, too
                outcomes.add(False)
        with fresh_loop() as loop:
            assert once(kept, loop) == expected, f"afterwards, {spare} frames from the end"
        at_rest(kept)
    assert outcomes == {True, False}


def test_a_sender_at_the_end_of_the_stack(repo: bls.ModelRepository) -> None:
    repo.define("deep", model("""
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        refused = self.dive(sender)
        sender.send(answer(int(refused > 0)))
        sender.send(flags=FINAL)

def dive(self, sender):
    try:
        refused = self.dive(sender)
    except RecursionError:
        refused = 0
    if refused > 60:
        return refused
    try:
        sender.send(answer(7))
        return 1000
    except RecursionError:
        return refused + 1
"""), pbtxt(decoupled=True))  # fmt: skip
    values = [value(r) for r in repo.stream("deep", ints(1))]
    assert values in ([7, 1], [1])
    at_rest(repo)


MEMORY = """
import faulthandler, sys
faulthandler.dump_traceback_later(60, exit=True)
import _testcapi
import bls_notebook as bls
from tests.engine.kinds import REQUESTS, at_rest, fresh_loop, lay_out

sys.unraisablehook = lambda *_: None
repo = bls.ModelRepository()
lay_out(repo)
for kind in sys.argv[1:]:
    expected, once = REQUESTS[kind]
    struck = 0
    for n in range(0, 400):
        with fresh_loop() as loop:
            try:
                _testcapi.set_nomemory(n, n + 1)
                once(repo, loop)
            except (MemoryError, AssertionError, RuntimeError):  # "can't allocate lock"
                struck += 1
            finally:
                _testcapi.remove_mem_hooks()
        with fresh_loop() as loop:
            assert once(repo, loop) == expected, (kind, n)
        at_rest(repo)
    print(kind, struck)
    assert struck
print("done")
"""


@pytest.mark.slow
def test_without_memory() -> None:
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    command = [sys.executable, "-W", "ignore", "-c", MEMORY, "inline", "nested", "cached"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr
