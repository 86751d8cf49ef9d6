"""Growth of resources under a constant load: named only if it is steady and beyond noise."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bls_notebook.sweeps.records import ResourceSample
from bls_notebook.sweeps.resource_watch import growth, resources, with_children

MB = 1 << 20


def samples(memory: Callable[[float], float], files: Callable[[float], float] = lambda at: 40) -> list[ResourceSample]:
    return [ResourceSample(at, round(memory(at)), 0, round(files(at))) for at in map(float, range(60))]


def test_a_steady_leak_is_named_with_its_amount() -> None:
    noise = random.Random(1)
    found = list(growth(samples(lambda at: 500 * MB + at * MB + noise.uniform(-3, 3) * MB, lambda at: 40 + at)))
    assert [each.quantity for each in found] == ["memory", "open files"]
    assert found[0].amount == pytest.approx(44 * MB, rel=0.1)
    assert found[0].seconds == 44


@pytest.mark.parametrize(
    "memory",
    [
        lambda at: 500 * MB,
        lambda at: 500 * MB + random.Random(at).uniform(-30, 30) * MB,
        lambda at: 500 * MB + (at > 30) * 50 * MB,  # one pool
        lambda at: 500 * MB + (at % 15) * 10 * MB,  # a garbage collection
        lambda at: 500 * MB + min(at, 10) * 9 * MB,  # caches fill
        lambda at: 500 * MB + at * 1000,
    ],
)
def test_noise_steps_and_caches_are_no_growth(memory: Callable[[float], float]) -> None:
    assert list(growth(samples(memory))) == []
    assert list(growth(samples(lambda at: 500 * MB + at * MB)[:12])) == []  # too short to judge


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux only")
def test_the_resources_of_child_processes_count() -> None:
    child = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); input()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in with_children(os.getpid())
        whole, own = resources(os.getpid(), 0.0), resources(child.pid, 0.0)
        assert whole is not None
        assert own is not None
        assert whole.memory > own.memory > MB
        assert whole.files > own.files > 2
    finally:
        child.communicate(b"\n")
    assert resources(child.pid, 0.0) is None
