"""What the kernel shows of a model in a process of its own: its time, its code, its memory."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.backends.processes import probes
from bls_notebook.display import render
from bls_notebook.inspection.model_details import model_view
from bls_notebook.profiling.session import Session
from tests.backends.processes.models import IDENTITY, apart, define, x
from tests.engine.harness import until

__all__ = ["apart"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")


def test_a_profile_has_the_processor_time_of_processes(apart: bls.ModelRepository) -> None:
    spend = "\n        end = time.process_time() + 0.02\n        while time.process_time() < end: pass"
    define(apart, "m", IDENTITY.replace("requests):", f"requests):{spend}"))
    define(apart, "k", IDENTITY, isolation="kernel")
    with bls.profile() as profile:
        apart.infer("m", x())
        apart.infer("k", x())
    session = profile.record
    assert {model.name: model.processes for model in session.models} == {"m": True, "k": False}
    (worker,) = session.workers
    assert worker.instance == "m_0"
    if sys.platform == "linux":
        assert 20_000_000 <= worker.cpu < session.cpu
        assert worker.turns >= 0


COMPUTES = """
def helper(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

class TritonPythonModel:
    def execute(self, requests):
        helper(0.4)
        return [answer(number(r)) for r in requests]
"""
CALLS = """
class TritonPythonModel:
    async def execute(self, requests):
        return [await ask("computes").async_exec() for _ in requests]
"""


def lines_of(session: Session, stack: int) -> list[str]:
    """The text of each line of a stack."""
    lines = session.stacks[stack - 1].lines if stack else ()
    return [session.sources[line.source - 1].text.split("\n")[line.line - 1].strip() for line in lines]


def test_a_profile_samples_the_lines_of_processes(apart: bls.ModelRepository) -> None:
    define(apart, "computes", COMPUTES)
    define(apart, "calls", CALLS)
    assert apart.infer("calls", x()).error is None
    with bls.profile() as profile:
        apart.infer("calls", x())
    session = profile.record
    calls, computes = session.spans
    assert lines_of(session, computes.stack) == ['return [await ask("computes").async_exec() for _ in requests]']
    assert {source.model: source.execute > 0 for source in session.sources if source.model} == {
        "calls": True, "computes": True,
    }  # fmt: skip
    computed = [each for each in session.samples if each.span == computes.id]
    loop = [each for each in computed if lines_of(session, each.stack)[:1] == ["helper(0.4)"]]
    assert sum(each.ns for each in loop) > 0
    assert not any(each.waits for each in loop)
    awaits = [lines_of(session, each.stack) for each in session.samples if each.span == calls.id and each.waits]
    assert any("async_exec" in lines[-1] for lines in awaits if lines)


def test_processes_are_sampled_only_during_profiles(apart: bls.ModelRepository) -> None:
    define(
        apart, "m", IDENTITY.replace("os.getpid()", "sum(t.name == 'bls-stack-sampler' for t in threading.enumerate())")
    )

    def samplers() -> int:
        return int(apart.infer("m", x()).parameters()["pid"])

    with bls.profile():
        until(lambda: samplers() == 1, "no sampler")
        with bls.profile():
            until(lambda: samplers() == 2, "no second sampler")
    assert samplers() == 0


KEEPS = """
TABLE = np.ones(30_000)

class TritonPythonModel:
    def initialize(self, args):
        self.weights = np.zeros((300, 300), np.float32)
        self.words = "x" * 100_000

    def execute(self, requests):
        if (grid := pb.get_input_tensor_by_name(requests[0], "X").as_numpy()).size > 1:
            self.grid = grid
        return [answer(number(r)) for r in requests]
"""


def test_inspecting_a_model_shows_what_it_keeps_in_its_process(apart: bls.ModelRepository) -> None:
    define(apart, "m", KEEPS)
    view = model_view(apart, "m")
    assert [(each.name, each.what) for each in view.held] == [
        ("m.weights", "float32 [300, 300]"),
        ("m/model.py: TABLE", "float64 [30000]"),
        ("m.words", "str"),
    ]
    assert view.held_bytes == 360_000 + 240_000 + 100_000
    [process] = view.processes
    assert (process.instance, process.known) == ("m_0", True)
    assert f"process: m_0 {process.pid}" in render(view).text
    assert "memory: the model keeps 684 KiB" in render(view).text
    apart.infer("m", {"X": np.ones(200_000, np.int32)})
    first = model_view(apart, "m").held[0]
    assert (first.name, first.what) == ("m.grid", "int32 [200000]"), "not the bytes of the message"


def test_a_process_that_does_not_answer_is_named(apart: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    define(apart, "m", KEEPS)
    monkeypatch.setattr(probes, "SECONDS", 0.0)
    view = model_view(apart, "m")
    assert (view.held, [each.known for each in view.processes]) == ((), [False])
    assert "m_0: what it keeps is unknown" in render(view).text
