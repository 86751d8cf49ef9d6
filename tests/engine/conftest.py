"""A repository for each test, and a watchdog: a test that hangs fails, and the rest still runs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.deadlocks import reports as long_waits
from bls_notebook.engine.schedulers import batch_scheduler
from bls_notebook.engine.waiting.parker import blocked
from tests.engine import gates, seen
from tests.engine.fake_clock import FakeClock
from tests.engine.harness import assert_all_idle, stacks, until
from tests.engine.isolated import CONFIG, WRITER
from tests.waiting import LIMIT

SECONDS = float(os.environ.get("BLS_TEST_SECONDS", "120"))  # for one test


class Hangs(BaseException):
    """The test is stuck; no `except Exception` of a model may swallow this."""


@contextlib.contextmanager
def watchdog() -> Iterator[None]:
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def expired(*_: Any) -> None:
        raise Hangs(f"the test hangs\n{stacks()}")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 5.0)  # again, where the first is swallowed
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Around the phases of a test, and not around pytest's own reports of them.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    with watchdog():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    with watchdog():
        result = yield
        until(nobody_waits, "no thread waits in the engine, or is said to, any more")
        return result


def nobody_waits() -> bool:
    return all(ticket.done for ticket in list(blocked.values()))


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    repository = bls.ModelRepository()
    threads = threading.active_count()
    try:
        yield repository
    finally:
        gates.open_all()
        try:
            assert_all_idle(repository)
        finally:
            repository.close(LIMIT)  # what finalizes late would open gates of the next test
    assert threading.active_count() < threads + 200


@pytest.fixture
def apart() -> Iterator[bls.ModelRepository]:
    """One with the model `writer`, which keeps its inputs and writes to them."""
    seen.notes.clear()
    with bls.ModelRepository() as repository:
        repository.define("writer", WRITER, CONFIG)
        yield repository
    seen.notes.clear()


@pytest.fixture
def strict() -> Iterator[bls.ModelRepository]:
    """One whose warnings are errors."""
    with bls.ModelRepository(strict=True) as repository:
        yield repository


@pytest.fixture
def reports(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(long_waits, "REPORT_AFTER", 0.03)
    caplog.set_level("WARNING", "bls_notebook")
    return caplog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of the batch schedulers."""
    fake = FakeClock()
    monkeypatch.setattr(batch_scheduler, "system_clock", fake)
    return fake
