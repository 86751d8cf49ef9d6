"""Marks of outputs that are older than a model, computed by a browser from the style rules of a page of outputs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.magics.conftest import Cells, cells, shell  # noqa: F401 - fixtures

pytestmark = pytest.mark.browser

CALLER = """%%tritonmodel caller --input IN FP32 [-1] --output OUT FP32 [-1]
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        call = pb_utils.InferenceRequest(
            model_name="times", requested_output_names=["OUT"], inputs=request.inputs()
        )
        return pb_utils.InferenceResponse(call.exec().output_tensors())
"""
SHOWN = """() => [...document.querySelectorAll('.bls-out')].map(
    each => getComputedStyle(each, '::before').content.replace(/["']/g, '').trim())"""


def test_an_output_is_marked_if_its_model_or_a_callee_was_redefined_since(browser: Any, cells: Cells) -> None:  # noqa: F811
    page = browser.new_page()

    def marks(*outputs: str) -> list[str]:
        page.set_content("\n".join(outputs))
        return [mark.replace("none", "") for mark in page.evaluate(SHOWN)]

    first = cells.model(factor=2).html
    caller = cells(CALLER).html
    asked = [cells("%bls caller IN=[1]").html, cells("%bls times IN=[1]").html]
    assert marks(first, caller, *asked) == ["", "", "", ""]

    second = cells.model(factor=3)
    again = cells("%bls caller IN=[1]").html
    older = "older than times, cell 5"
    for order in ([first, second.html, *asked, again], [*asked, again, second.html, first]):
        assert [mark for mark in marks(*order) if mark] == [older, older]
    assert marks(second.html, again) == ["", ""]
    in_lab = [f'<div class="jp-OutputArea-child">{html}</div>' for html in ("text", asked[0], asked[0], asked[0])]
    assert marks(second.html, *in_lab) == ["", older, "", ""]

    new_caller = cells(CALLER + "# changed\n").html
    both = marks(first, caller, second.html, new_caller, *asked, again)[4:]
    assert sorted(both[0].split("\xa0\xa0")) == ["older than caller, cell 7", older]
    assert both[1:] == [older, "older than caller, cell 7"]

    back = cells.model(factor=2).html  # the definition of then: its own outputs are right again
    assert marks(first, second.html, back, asked[1], again) == [
        "", "", "", "", "older than times, cell 8",
    ]  # fmt: skip
    page.close()
