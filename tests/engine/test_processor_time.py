"""What a run gets of the processors: nothing is left changed, and figures are sane."""

from __future__ import annotations

import sys
import threading

import pytest

from bls_notebook.engine import processor_time
from bls_notebook.engine.processor_time import Processors, cores, held_part, rate


def probes() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "probe" in thread.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_switch_interval_is_put_back_and_the_probe_ends(error: type[BaseException]) -> None:
    before = sys.getswitchinterval()
    within: list[float] = []

    def run() -> None:
        within.append(sys.getswitchinterval())
        raise error

    with pytest.raises(error):
        held_part(run)
    assert sys.getswitchinterval() == before
    assert within[0] > before
    assert not probes()


def test_the_lock_is_held_by_python_and_not_by_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # Asking for the lock takes so long that nothing else can.
    monkeypatch.setattr(processor_time, "_SWITCH", 0.1)
    monkeypatch.setattr(processor_time, "_LATE", 0.08)
    monkeypatch.setattr(processor_time, "_SAMPLES", 4)
    monkeypatch.setattr(processor_time, "_LONGEST", 10.0)
    assert held_part(lambda: sum(i * i for i in range(1_000_000))) > 0.5
    assert held_part(lambda: threading.Event().wait(0.01)) < 0.5


def test_a_run_without_samples_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "_SAMPLES", 0)
    assert held_part(lambda: None) == -1.0


def test_times_and_rates() -> None:
    processors = Processors()
    assert rate(1, 0.001) > 0
    assert rate(3, 0.001) > 0
    assert rate(1, 1e-9) > 0  # where a thread gets its processor too late
    assert processors.used() > 0
    assert processors.waited() >= 0
    assert cores() >= 1
    assert not probes()


def test_a_system_that_does_not_say_who_waited(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(processor_time, "_TASKS", tmp_path / "none")
    assert Processors().waited() == 0
    monkeypatch.setattr(processor_time, "_OWN", tmp_path / "none")
    with processor_time._Own() as own:
        assert own.waited() == 0.0
