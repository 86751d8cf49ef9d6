"""Outputs name the definitions of their models, and definitions bring rules; tests/browser checks what a page shows."""

from __future__ import annotations

import re

import bls_notebook as bls
from tests.magics.conftest import Cells


def named(html: str) -> list[str]:
    """Return the definitions that an output names."""
    found = re.search(r'data-bls-of="([^"]*)"', html.replace("[data-bls-of", ""))
    return found[1].split() if found else []


def test_only_outputs_of_cells_that_ask_models_name_definitions(cells: Cells) -> None:
    assert not named(cells.model().html)
    first = named(cells("answer = %bls times IN=[1]\nanswer").html)
    assert len(first) == 1
    assert not named(cells("answer").html)  # it may be old: nothing is claimed
    body = 'pb_utils.InferenceRequest(model_name="times", inputs=[], requested_output_names=[]).exec()\nanswer'
    assert named(cells(f"%%bls\n{body}").html) == first
    cells.model(factor=3)
    assert named(cells("%bls times IN=[1]").html) != first


def test_a_name_cannot_leave_its_rule(cells: Cells) -> None:
    code = "class TritonPythonModel:\n    def execute(self, requests):\n        return []"
    bls.current_repository().define("a b.é", code)
    (rule,) = re.findall(r'--b-\w+:"([^"]*)"', cells("%tritonrepo list").html)
    assert rule == r"older\20 than\20 a\20 b\2e \e9 \a0 \a0 "
