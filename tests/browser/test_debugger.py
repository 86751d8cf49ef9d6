"""A breakpoint in a model's cell, set in JupyterLab."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.browser

MODEL = """\
%%tritonmodel doubler --input "IN FP32 [-1]" --output "OUT FP32 [-1]"
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            twice = given * 2
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", twice)]))
        return answers
"""


def test_it_stops_in_the_cell(open_notebook: Any) -> None:
    notebook = open_notebook(["%load_ext bls_notebook", MODEL, "%bls doubler IN=[1, 2, 3]"])
    page = notebook.page
    page.locator(".jp-DebuggerBugButton").first.click()
    line_9 = notebook.cell(1).locator(".cm-breakpoint-gutter .cm-gutterElement").nth(9)  # below a spacer
    line_9.click()
    line_9.locator(".cm-breakpoint-icon").wait_for()
    notebook.cell(2).locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    stack = page.locator(".jp-DebuggerCallstackFrame")
    stack.first.wait_for()
    assert stack.all_inner_texts()[0].split() == ["execute", "Cell", "[2]:9"]
    assert stack.count() == 2  # and the cell that calls
    highlighted = notebook.cell(1).locator(".jp-DebuggerEditor-highlight")
    highlighted.wait_for()
    assert highlighted.inner_text().strip() == "twice = given * 2"
    page.locator(".jp-DebuggerVariables-body", has_text="given").wait_for()
    page.keyboard.press("F9")  # continue
    notebook.output(2).get_by_text("[2.0, 4.0, 6.0]").wait_for()
    assert notebook.errors() == []
