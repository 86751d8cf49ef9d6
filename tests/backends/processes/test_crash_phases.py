"""A process ends in each phase of its life, of each cause: callers are answered, nothing is left, the model serves."""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.backends.processes.messages import LARGE
from tests.backends.processes.models import DECOUPLED, IO, apart, children, define, x
from tests.engine.harness import message, until, value

__all__ = ["apart"]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

FATAL = ("segfault", "abort", "exit", "kill", "native")
CAUSES = (*FATAL, "sys_exit", "memory")
PHASES = ("import", "complete", "initialize", "execute", "async", "callee", "stream", "thread", "finalize")
MODEL = """
PHASE, HOW = {phase!r}, {how!r}

def fail():
    if HOW == "sys_exit":
        sys.exit(3)
    if HOW in ("memory", "native"):
        import resource
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), used + (1 << 30)))
        try:
            bytearray(1 << 26)
        except MemoryError:
            if HOW == "memory":
                raise
            os.abort()  # as C++ does
    crash(HOW)

if PHASE == "import":
    fail()

class TritonPythonModel:
    if PHASE == "complete":
        @staticmethod
        def auto_complete_config(config):
            fail()

    def initialize(self, arguments):
        if PHASE == "initialize":
            fail()

    {execute}

    def begin(self, request):
        if number(request) >= 0:
            return
        if PHASE in ("stream", "thread"):
            self.sender = request.get_response_sender()
            self.sender.send(answer(1))
        if PHASE in ("thread", "callee"):
            threading.Thread(target=self.end, daemon=True).start()
        if PHASE == "callee":
            value(ask("callee", os.getpid()).exec())
        elif PHASE != "thread":
            fail()

    def end(self):
        try:
            fail()
        finally:
            if PHASE == "thread":
                self.sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def answered(self, request):
        if PHASE not in ("stream", "thread"):
            return answer(7)
        if number(request) >= 0:
            sender = request.get_response_sender()
            sender.send(answer(7), pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        if PHASE == "finalize":
            fail()
"""
EXECUTE = """def execute(self, requests):
        for r in requests:
            self.begin(r)
        out = [self.answered(r) for r in requests]
        return None if PHASE in ("stream", "thread") else out
"""
CALLEE = """
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:  # X: the process of the caller, which ends meanwhile
            while {fatal} and os.path.exists(f"/proc/{{number(r)}}"):
                time.sleep(0.001)
        return [answer(7) for r in requests]
"""


def crash(repo: bls.ModelRepository, phase: str, how: str) -> None:
    """Let a model's process end; its callers get errors, and the model then serves."""
    fatal, name = how in FATAL, f"{phase}_{how}"
    config = DECOUPLED if phase in ("stream", "thread") else IO
    execute = EXECUTE.replace("def", "async def", 1) if phase == "async" else EXECUTE
    source = MODEL.format(phase=phase, how=how, execute=execute)
    if phase in ("import", "complete", "initialize"):
        define(repo, name, MODEL.format(phase="", how=how, execute=execute))
        with pytest.raises(bls.ModelLoadError):
            define(repo, name, source, "" if phase == "complete" else config)
    else:
        define(repo, "callee", CALLEE.format(fatal=fatal), isolation="kernel")
        define(repo, name, source, config)
        if phase == "finalize":
            repo.unload(name)
            define(repo, name, source, config)
        elif phase in ("stream", "thread"):
            first, *others = repo.stream(name, x(-1))
            assert value(first) == 1
            assert bool(others and others[-1].error) == (fatal or phase == "stream"), others
        else:
            answer = repo.infer(name, x(-1, *range(LARGE)))
            assert (answer.error is not None) == (fatal or phase != "callee"), answer
            assert ("its process" in message(answer)) if fatal else True
    until(lambda: repo.ready(name), "the restart")
    large = x(7, *range(LARGE))
    (last,) = repo.stream(name, x(7)) if phase in ("stream", "thread") else [repo.infer(name, large)]
    assert value(last) == 7
    repo.unload(name)


def crash_all(repo: bls.ModelRepository, cases: list[tuple[str, str]]) -> None:
    others = len(children())
    define(repo, "stays", MODEL.format(phase="", how="", execute=EXECUTE))

    def left() -> tuple[int, ...]:
        gc.collect()  # homes of models that were unloaded
        threads = [thread.name for thread in threading.enumerate() if not thread.name.startswith("bls-worker")]
        return len(os.listdir("/proc/self/fd")), len(threads), len(children()), mapped()

    crash(repo, "execute", "abort")
    until(lambda: left()[2] <= others + 2, "the end of the first process")  # "stays", and the fork server
    before = left()
    for case in cases:
        crash(repo, *case)
    assert value(repo.infer("stays", x(7))) == 7
    until(lambda: all(now <= then for now, then in zip(left(), before, strict=True)), f"left {left()}, before {before}")


def mapped() -> int:
    """Return how many shared segments this process has."""
    return sum("memfd:bls" in line or "/dev/shm" in line for line in Path("/proc/self/maps").read_text().splitlines())


ALL = [(phase, how) for phase in PHASES for how in CAUSES]


@pytest.mark.slow
def test_a_crash_in_each_phase_leaves_nothing(apart: bls.ModelRepository) -> None:
    crash_all(apart, [(phase, CAUSES[(at + more) % len(CAUSES)]) for at, phase in enumerate(PHASES) for more in (0, 3)])


@pytest.mark.extra
@pytest.mark.slow
def test_many_crashes_in_each_phase_leave_nothing(apart: bls.ModelRepository) -> None:
    crash_all(apart, ALL * 4)
