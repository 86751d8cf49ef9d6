"""``%blsdrill``: a drill from a cell, its display, and the tests that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.completion.magic_lines import magic_line, suggest
from tests.magics.conftest import Cells
from tests.testing.drills.models import define


@pytest.fixture
def drilled(cells: Cells) -> Cells:
    define(bls.current_repository(), "twice", "crashes")
    return cells


def test_a_table_says_what_came_of_each_fault(drilled: Cells) -> None:
    out = drilled("found = %blsdrill crashes IN=[1.0] --faults error,slow\nfound")
    assert out.success
    found = out.value
    assert drilled.shell.user_ns["found"] is found
    assert [(case.name, case.verdict) for case in found.cases] == [
        ("twice: error", "crash"),
        ("twice: slow", "unharmed"),
    ]
    text, _ = drilled.shell.display_formatter.format(found)
    for form in ("text/plain", "text/html"):
        assert "✗ crash" in text[form]
        assert "✓ unharmed" in text[form]
        assert "raise RuntimeError(response.error().text)" in text[form]
    assert "the error of" in text["text/plain"]


def test_the_head_and_the_list_count_the_same_faults(drilled: Cells) -> None:
    found = drilled("found = %blsdrill crashes IN=[1.0] --faults error,not-ready\nfound").value
    assert len(found.of("bad")) == 2
    _, html = [drilled.shell.display_formatter.format(found)[0][form] for form in ("text/plain", "text/html")]
    assert "2 bad" in html
    assert "bad: 2 of 1 kind" in html


def test_places_in_cells_are_named_as_in_tracebacks(drilled: Cells) -> None:
    cell = drilled("""%%tritonmodel asks --input "IN FP32 [1]" --output "OUT FP32 [1]"
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.ask(request)) for request in requests]
    def ask(self, request):
        call = pb_utils.InferenceRequest(
            model_name="twice", requested_output_names=["OUT"], inputs=request.inputs())
        return call.exec().output_tensors()""")
    assert cell.success
    (case,) = drilled("found = %blsdrill asks IN=[1.0] --faults stall\nfound").value.cases
    assert case.sent is not None
    assert case.sent.file.startswith("Cell In[")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%blsdrill", "MODEL"),
        ("%blsdrill nobody IN=[1.0]", "model 'nobody' is not loaded"),
        ("%blsdrill crashes", "fails without a fault"),
        ("%blsdrill crashes IN=[1.0] --faults eror", "no fault 'eror'"),
        ("%blsdrill crashes IN=[1.0] --timeout soon", "expected a time with its unit, such as 500ms"),
        ("%blsdrill crashes IN=[1.0] --save drill.txt", "expected a name such as tests/test_drill_x.py"),
        ("%blsdrill crashes IN=[1.0] --save nowhere/test_x.py", "a folder that exists"),
    ],
)
def test_a_wrong_line_gets_one_clear_line(drilled: Cells, line: str, words: str) -> None:
    out = drilled(line)
    assert not out.success
    assert words in out.stderr + out.stdout + out.text
    assert "Traceback" not in out.stderr + out.stdout


@pytest.mark.slow
def test_the_tests_that_it_writes_run_as_they_are(drilled: Cells, tmp_path: Path) -> None:
    file = tmp_path / "test_drill_crashes.py"
    line = f"%blsdrill crashes IN=[1.0] --faults error,nan,shape,not-ready,stall,huge --save {file} -q"
    out = drilled(line)
    assert out.success, out.stderr
    assert "saved to" in out.text
    assert "bls_notebook" in file.read_text(encoding="utf-8")
    assert (tmp_path / "test_drill_crashes_models" / "twice" / "1" / "model.py").is_file()
    seen: dict[str, str] = {}

    class Watcher:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or report.failed:
                seen[report.nodeid.rpartition("::")[2]] = report.outcome

    without = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "asyncio")]
    pytest.main(["-q", *without, "--rootdir", str(tmp_path), "-c", "/dev/null", str(file)], plugins=[Watcher()])
    assert seen == dict.fromkeys([f"test_twice_{fault}" for fault in ("error", "nan", "shape", "not_ready")], "failed")


def test_names_complete(drilled: Cells) -> None:
    models = list(bls.current_repository().index())
    line = magic_line("%blsdrill cra", True)
    assert line is not None
    assert suggest(line, models, {}) == ("cra", ["crashes"])
    line = magic_line("%blsdrill crashes ", True)
    assert line is not None
    found = suggest(line, models, {})
    assert found is not None
    assert "IN=" in found[1]
    line = magic_line("%blsdrill crashes IN=x --faults error,mi", True)
    assert line is not None
    assert suggest(line, models, {}) == ("mi", ["missing-output"])
