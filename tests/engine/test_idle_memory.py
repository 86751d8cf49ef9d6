"""Freed memory returns to the operating system when the instances have been idle for a moment."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable

import pytest

from bls_notebook.engine.waiting.idle_memory import IDLE_SECONDS, WORTH_BYTES, IdleMemory
from tests.engine.fake_clock import FakeClock
from tests.waiting import LIMIT


class Process:
    """A process whose memory a test sets."""

    def __init__(self, possible: bool = True) -> None:
        self.clock, self.resident, self.returns, self.possible = FakeClock(), 10 * WORTH_BYTES, 0, possible
        self.memory = IdleMemory(self.clock, self.give_back, lambda: self.resident, self.start)

    def start(self, job: Callable[[], None]) -> None:
        job()

    def give_back(self) -> bool:
        self.returns += 1
        self.resident -= WORTH_BYTES
        return self.possible

    def work(self) -> bool:
        """End an execution; return whether it called `arm`."""
        if self.memory.armed:
            return False
        self.memory.arm()
        return True


def test_memory_is_returned_once_after_the_last_execution() -> None:
    process = Process()
    calls = 0
    for _ in range(50):  # never idle for long enough
        calls += sum(process.work() for _ in range(10))
        process.clock.advance(IDLE_SECONDS / 5)
    assert process.returns == 0
    assert calls <= 12
    assert process.clock.pending == 1
    process.clock.advance(3 * IDLE_SECONDS)
    assert process.returns == 1
    assert process.clock.pending == 0
    process.clock.advance(100 * IDLE_SECONDS)
    assert process.returns == 1


def test_little_memory_is_not_worth_it() -> None:
    process = Process()
    for grown, returns in ((0, 1), (WORTH_BYTES - 1, 1), (1, 2), (0, 2), (-WORTH_BYTES, 2), (WORTH_BYTES, 3)):
        process.resident += grown
        process.work()
        process.clock.advance(3 * IDLE_SECONDS)
        assert process.returns == returns


@pytest.mark.parametrize("resident", [-1, 10 * WORTH_BYTES])
def test_without_glibc_idle_memory_asks_once(resident: int) -> None:
    process = Process(possible=False)
    process.resident = resident
    assert process.work()
    process.clock.advance(3 * IDLE_SECONDS)
    assert not process.work()
    assert process.clock.pending == 0


MODELS = """
import threading
from bls_notebook.devices import host_memory
from bls_notebook.engine.waiting import idle_memory
returned = threading.Event()
idle_memory.IDLE_SECONDS = 0.05
memory = idle_memory.idle_memory
before_return = []

def give_back():
    before_return.append(host_memory.resident_bytes())
    host_memory.return_free_memory()
    returned.set()
    return True

memory._give_back = give_back
memory.armed = True  # not yet
import bls_notebook as bls
CONFIG = 'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]'
SOURCE = '''
import triton_python_backend_utils as pb
class TritonPythonModel:
    KIND execute(self, requests):
        kept = [bytes(100_000) for _ in range(300)]  # 30 MB in pieces, each from the heap of the thread
        last = bytes(100_000)  # freed after the others: the heap cannot shrink by itself
        del kept
        self.last = last
        return [pb.InferenceResponse([])]
'''
with bls.ModelRepository() as repo:
    for number in range(6):
        kind = "async def" if number % 2 else "def"
        repo.define(f"m{number}", SOURCE.replace("KIND", kind), CONFIG)
        assert repo.infer(f"m{number}", {}).error is None
    memory.armed = False
    assert repo.infer(WORKS, {}).error is None
    assert returned.wait(60)
    print(before_return[0] - host_memory.resident_bytes())
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="glibc"
)
@pytest.mark.parametrize("last", ["m0", "m1"])
def test_heaps_of_idle_instances_shrink(last: str) -> None:
    script = MODELS.replace("WORKS", repr(last))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20 << 20
