"""``%blsreplay``: recorded requests sent again, and one of them in the debugger."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from IPython.core.debugger import Pdb

from bls_notebook.testing.records import Replay
from tests.magics.conftest import Cells

CALLER = """%%tritonmodel caller --input IN FP32 [-1] --output OUT FP32 [-1]
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    {}def execute(self, requests):
        asked = pb_utils.InferenceRequest(model_name="times", inputs=requests[0].inputs(),
                                          requested_output_names=["OUT"])
        answer = {}
        values = answer.output_tensors()[0].as_numpy() + 1
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)])]
"""
SYNC, ASYNC = CALLER.format("", "asked.exec()"), CALLER.format("async ", "await asked.async_exec()")


@pytest.fixture
def run(cells: Cells, tmp_path: Path) -> str:
    """A file with a request to `caller`, recorded by a cell."""
    path = tmp_path / "run.blsrec"
    cells("import numpy as np")
    cells.model("times")
    assert cells(SYNC).success
    assert cells(f"%%blsprofile -q --record {path}\n%bls caller IN=[1,2]").success
    return str(path)


class Answering:
    """Stands at the debugger, and types."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        self.said = io.StringIO()

    def __call__(self, **options: object) -> Pdb:
        debugger = Pdb(stdin=io.StringIO("".join(f"{line}\n" for line in self.lines)), stdout=self.said, **options)
        debugger.use_rawinput = False
        return debugger


def typed(cells: Cells, monkeypatch: pytest.MonkeyPatch, *lines: str) -> Answering:
    answering = Answering(*lines)
    monkeypatch.setattr(cells.shell.InteractiveTB, "debugger_cls", answering)
    return answering


def test_the_same_and_changed(cells: Cells, run: str) -> None:
    outcome = cells(f"%blsreplay {run}")
    assert isinstance(outcome.value, Replay)
    assert outcome.value.equal
    cells.model("times", factor=3)
    outcome = cells(f"found = %blsreplay {run}\nfound")
    assert [each.id for each in outcome.value.unequal] == [1]
    assert cells.shell.user_ns["found"] is outcome.value
    assert cells(f"%blsreplay {run} --only caller").value.equal
    cells.model("times_v2", factor=2)
    assert cells(f"%blsreplay {run} --only times --model times_v2").value.equal


def test_differences_fail_a_cell_where_errors_do(cells: Cells, run: str) -> None:
    cells.model("times", factor=3)
    cells("%config BLSNotebook.raise_errors = True")
    outcome = cells(f"%blsreplay {run}")
    assert not outcome.success
    assert "not answered as recorded: 1 request" in str(outcome.error)


def test_the_debugger_opens_at_the_first_line(cells: Cells, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    debugger = typed(cells, monkeypatch, "p requests[0].inputs()[0].as_numpy()", "n", "n", "s", "p requests", "c")
    outcome = cells(f"%blsreplay {run} --debug 1")
    said = debugger.said.getvalue()
    assert outcome.success
    assert "array([1., 2.], dtype=float32)" in said
    assert "--Call--" not in said
    first = said.partition("ipdb> ")[0]
    assert "asked = pb_utils.InferenceRequest" in first.partition("---->")[2].splitlines()[0]
    assert outcome.value.output_tensors()[0].as_numpy().tolist() == [3, 5]
    assert "request 1 to caller: IN FP32[2] [1.0, 2.0]" in outcome.text


def test_in_a_coroutine_and_a_callee(cells: Cells, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cells(ASYNC)
    debugger = typed(cells, monkeypatch, "p len(requests)", *"nnnnnnn", "c")
    outcome = cells(f"%blsreplay {run} --debug 1")
    assert "----> 8 " in debugger.said.getvalue()  # over the await
    assert "skipped" not in outcome.stdout  # nor told of what ran meanwhile
    assert outcome.value.output_tensors()[0].as_numpy().tolist() == [3, 5]
    assert "ipdb> 1" in debugger.said.getvalue()
    debugger = typed(cells, monkeypatch, "p requests[0].inputs()[0].shape()", "c")
    assert cells(f"%blsreplay {run} --debug 2").success
    assert "ipdb> [2]" in debugger.said.getvalue()


def test_calls_of_a_debugged_request_are_recorded_ones(cells: Cells, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cells.model("times", factor=10)
    typed(cells, monkeypatch, "c")
    assert cells(f"%blsreplay {run} --debug 1 --only caller").value.output_tensors()[0].as_numpy().tolist() == [3, 5]


def test_leaving_it_leaves_nothing(cells: Cells, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.gettrace()
    typed(cells, monkeypatch, "q")
    cells(f"%blsreplay {run} --debug 1")
    assert sys.gettrace() is before
    assert cells("%bls caller IN=[1]").value["OUT"].as_numpy().tolist() == [3]


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("--debug 7", "there is no request 7; the requests are 1 to 2"),
        ("--debug 1 --only times", "--debug 1 is a request to 'caller', but --only is 'times'; use the same model"),
        ("--only none", "no request to model 'none'"),
        ("--debug x", "--debug"),
        ("--tolerance x", "got 'x', expected a number such as 1e-6"),
    ],
)
def test_one_line_for_what_is_wrong(rest: str, said: str, cells: Cells, run: str) -> None:
    outcome = cells(f"%blsreplay {run} {rest}")
    assert not outcome.success
    assert said in str(outcome.error)
    assert "\n" not in str(outcome.error)
