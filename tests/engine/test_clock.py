"""Alarms: in order, never early, not after they were cancelled; and the one alarm of a scheduler."""

from __future__ import annotations

import queue
import threading

import pytest

from bls_notebook.engine.waiting.clock import NextAlarm, SystemClock
from tests.engine.fake_clock import FakeClock
from tests.waiting import LIMIT

MILLISECOND = 10**6


def test_alarms_ring_in_order_and_never_early(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    rung: queue.Queue[tuple[str, int]] = queue.Queue()
    now = clock.now()
    times = {"late": now + 30 * MILLISECOND, "early": now + 5 * MILLISECOND, "past": now - 1, "never": now}
    # No time passes, and nothing rings, until all has been asked for.
    with clock._changed, monkeypatch.context() as frozen:
        frozen.setattr(clock, "now", lambda: now)
        clock.call_at(times["late"], lambda: rung.put(("late", clock.now())))
        cancelled = clock.call_at(now + 20 * MILLISECOND, lambda: rung.put(("cancelled", clock.now())))
        clock.call_at(times["early"], lambda: rung.put(("early", clock.now())))
        clock.call_at(times["past"], lambda: rung.put(("past", clock.now())))
        cancelled.cancel()
    got = [rung.get(timeout=LIMIT) for _ in range(3)]
    assert [name for name, _ in got] == ["past", "early", "late"]
    assert all(when >= times[name] for name, when in got)
    assert rung.empty()


def test_an_alarm_that_fails_is_nothing_to_the_next() -> None:
    clock = SystemClock()
    rings = threading.Event()
    clock.call_at(0, lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    clock.call_at(clock.now() + MILLISECOND, rings.set)
    assert rings.wait(LIMIT)


def test_one_that_is_always_late_keeps_nobody_waiting() -> None:
    clock, rings = SystemClock(), threading.Event()

    def again() -> None:
        if not rings.is_set():
            clock.call_at(0, again)

    clock.call_at(0, again)
    clock.call_at(clock.now() + MILLISECOND, rings.set)
    rung = rings.wait(LIMIT)
    rings.set()
    assert rung


def test_cancelled_alarms_of_a_far_day_are_forgotten() -> None:
    clock = SystemClock()
    far = clock.now() + 10**15
    kept = [clock.call_at(far, lambda: None) for _ in range(10)]
    for _ in range(1000):
        clock.call_at(far, lambda: None).cancel()
    assert len(clock._heap) < 100
    for alarm in kept:
        assert any(entry[2] is alarm for entry in clock._heap)
    rings = threading.Event()
    clock.call_at(0, rings.set)
    assert rings.wait(LIMIT)


def test_a_scheduler_has_one_alarm_for_the_earliest() -> None:
    clock, rung = FakeClock(), []
    alarm = NextAlarm(clock, lambda: rung.append(clock.now()))
    start = clock.now()
    alarm.at_latest(start + 50)
    alarm.at_latest(start + 20)
    alarm.at_latest(start + 90)
    assert clock.pending == 1
    clock.advance(1)
    assert rung == [start + 20]
    alarm.rung()
    alarm.at_latest(clock.now() + 5)
    alarm.cancel()
    assert clock.pending == 0
