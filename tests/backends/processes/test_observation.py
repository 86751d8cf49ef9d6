"""What the kernel shows of a model in a process of its own: its time, its code, its memory."""

from __future__ import annotations

import sys

import pytest

import bls_notebook as bls
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
