"""What the kernel shows of a model in a process of its own: its time, its code, its memory."""

from __future__ import annotations

import sys

import pytest

import bls_notebook as bls
from bls_notebook.backends.processes import probes
from bls_notebook.display import render
from bls_notebook.inspection.model_details import model_view
from tests.backends.processes.models import IDENTITY, apart, define, x

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


KEEPS = """
TABLE = np.ones(30_000)

class TritonPythonModel:
    def initialize(self, args):
        self.weights = np.zeros((300, 300), np.float32)
        self.words = "x" * 100_000

    def execute(self, requests):
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


def test_a_process_that_does_not_answer_is_named(apart: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    define(apart, "m", KEEPS)
    monkeypatch.setattr(probes, "SECONDS", 0.0)
    view = model_view(apart, "m")
    assert (view.held, [each.known for each in view.processes]) == ((), [False])
    assert "m_0: what it keeps is unknown" in render(view).text
