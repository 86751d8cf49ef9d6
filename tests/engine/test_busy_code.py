"""Ctrl-C names the line of the model that it interrupts, and the log an instance whose code goes on."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.waiting import busy_code
from bls_notebook.engine.waiting.busy_code import interrupted_line
from bls_notebook.records.errors import FrameRecord
from tests.engine import gates
from tests.engine.fake_clock import FakeClock
from tests.engine.harness import Caller, assert_all_idle, assert_usable, ctrl_c_once, infer, ints, queued
from tests.engine.sources import model, pbtxt

LOCKED = model("""
def execute(self, requests):
    if not number(requests[0]):
        return [answer(1)]
    gates.open_gate("in")
    gates.pass_gate("on")  # this line
    return [answer(1)]
""")
AWAITS = model("""
async def execute(self, requests):
    if not number(requests[0]):
        return [answer(1)]
    gates.open_gate("in")
    await asyncio.sleep(3600)  # this line
""")
CALLS = model("""
def execute(self, requests):
    return [answer(value_of(ask("a", number(requests[0])).exec()))]
""")
CALLS_ASYNC = model("""
async def execute(self, requests):
    gathered = await asyncio.gather(ask("a", number(requests[0])).async_exec())
    return [answer(value_of(gathered[0]))]
""")
IN_INITIALIZE = model("""
def initialize(self, args):
    gates.open_gate("in")
    gates.pass_gate("on")  # this line

def execute(self, requests):
    return [answer(1) for _ in requests]
""")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Let `REPORT_AFTER` pass and return what was logged since."""
    fake = FakeClock()
    monkeypatch.setattr(busy_code, "clock", fake)
    monkeypatch.setattr(busy_code, "start_in_thread", lambda call: call())
    caplog.set_level("WARNING", "bls_notebook")

    def pass_the_time() -> list[str]:
        caplog.clear()
        fake.advance(busy_code.REPORT_AFTER)
        return [record.getMessage() for record in caplog.records]

    return pass_the_time


def number_of_line(source: str) -> int:
    return next(n for n, line in enumerate(source.splitlines(), 1) if "# this line" in line)


def interrupted(call: Callable[[], Any]) -> KeyboardInterrupt:
    """Return the exception of a call that Ctrl-C ends as soon as the gate `in` is open."""
    caught: list[KeyboardInterrupt] = []
    with ctrl_c_once(gates.gate("in").is_set):
        try:
            call()
        except KeyboardInterrupt as error:
            caught.append(error)
            raise
    return caught[0]


def assert_names(error: KeyboardInterrupt, source: str) -> None:
    line = interrupted_line(error)
    assert line is not None
    assert (line.model, line.file, line.line) == ("a", "a/1/model.py", number_of_line(source))
    text = "".join(traceback.format_exception(error))
    assert text.count("interrupted in model 'a', a/1/model.py, line ") == 1
    assert "# this line" in text.splitlines()[-1]


@pytest.mark.parametrize("caller", ["", CALLS, CALLS_ASYNC], ids=["notebook", "sync caller", "async caller"])
@pytest.mark.parametrize("source", [LOCKED, AWAITS], ids=["lock", "await"])
def test_ctrl_c_names_the_innermost_line(repo: bls.ModelRepository, source: str, caller: str) -> None:
    repo.define("a", source, pbtxt())
    repo.define("b", caller or CALLS, pbtxt())
    assert_names(interrupted(lambda: repo.infer("b" if caller else "a", ints(1))), source)
    gates.open_gate("on")
    assert_usable(repo, "a", "b")


def test_ctrl_c_during_a_stream(repo: bls.ModelRepository) -> None:
    repo.define("a", LOCKED, pbtxt())
    assert_names(interrupted(lambda: list(repo.stream("a", ints(1)))), LOCKED)


@pytest.mark.parametrize("body", ["sync", "async"])
def test_ctrl_c_in_a_body(repo: bls.ModelRepository, body: str) -> None:
    repo.define("a", LOCKED, pbtxt())
    request = bls.pb_utils.InferenceRequest(
        model_name="a", requested_output_names=[], inputs=[bls.pb_utils.Tensor("X", ints(1)["X"])]
    )

    async def awaits() -> Any:
        return await request.async_exec()

    assert_names(interrupted(lambda: repo.run(request.exec if body == "sync" else awaits)), LOCKED)


def test_ctrl_c_in_initialize(repo: bls.ModelRepository, log: Callable[[], list[str]]) -> None:
    assert_names(interrupted(lambda: repo.define("a", IN_INITIALIZE, pbtxt())), IN_INITIALIZE)
    (report,) = log()
    assert report.startswith("initialize of model 'a', a/1/model.py, line ")
    gates.open_gate("on")
    repo.define("a", IN_INITIALIZE, pbtxt())
    assert_usable(repo, "a")


def test_a_request_in_a_queue_names_its_model(repo: bls.ModelRepository) -> None:
    repo.define("a", LOCKED, pbtxt())
    other = Caller(infer, repo, "a", 1)
    gates.pass_gate("in")
    gates.gate("in").clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates.gate("in"), "is_set", lambda: queued(repo, "a") == 1)
        error = interrupted(lambda: repo.infer("a", ints(0)))
    assert "interrupted in model 'a'" in "".join(traceback.format_exception(error))
    gates.open_gate("on")
    assert other.result() == 1


@pytest.mark.parametrize("replace", ["define", "reload"])
def test_code_that_goes_on_is_reported_once(
    repo: bls.ModelRepository, log: Callable[[], list[str]], replace: str
) -> None:
    repo.define("a", LOCKED, pbtxt())
    repo.define("b", CALLS, pbtxt())
    interrupted(lambda: repo.infer("b", ints(1)))
    assert_all_idle(repo, "b")
    (report,) = log()
    assert report.startswith("a_0_0 still runs a cancelled request, for ")
    assert f"in model 'a', a/1/model.py, line {number_of_line(LOCKED)}: gates.pass_gate" in report
    assert "reload it (`repo.reload('a')`)" in report
    assert not log()
    # The remedy that it names.
    repo.reload("a") if replace == "reload" else repo.define("a", LOCKED, pbtxt())
    assert infer(repo, "b") == 1
    gates.open_gate("on")
    assert not log()


def test_code_that_stops_is_not_reported(repo: bls.ModelRepository, log: Callable[[], list[str]]) -> None:
    repo.define("a", AWAITS, pbtxt())
    interrupted(lambda: repo.infer("a", ints(1)))
    assert_usable(repo, "a")
    assert not log()


def test_a_replaced_version_is_not_reported(repo: bls.ModelRepository, log: Callable[[], list[str]]) -> None:
    repo.define("a", LOCKED, pbtxt())
    interrupted(lambda: repo.infer("a", ints(1)))
    repo.reload("a")
    assert not log()


@pytest.mark.parametrize("in_args", [True, False])
def test_the_line_of_an_interrupt_before_python_3_11(monkeypatch: pytest.MonkeyPatch, in_args: bool) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10) if in_args else (3, 11))
    if not (in_args or hasattr(BaseException, "add_note")):
        pytest.skip("no notes")
    error = KeyboardInterrupt()
    busy_code.name_line(error, FrameRecord("a", 1, "a/1/model.py", 3))
    busy_code.name_line(error, None)
    text = "".join(traceback.format_exception(error))
    assert text.split("KeyboardInterrupt")[1].strip(": \n") == "interrupted in model 'a', a/1/model.py, line 3"
