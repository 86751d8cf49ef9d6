"""The inspector in JupyterLab: another tensor, a slice, no kernel."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.browser

MODEL = """\
%%tritonmodel zoo --input IN FP32 [-1] --output BATCH FP32 [-1,-1,-1] --output WORDS BYTES [-1]
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        batch = pb_utils.Tensor("BATCH", np.arange(5 * 32 * 32, dtype=np.float32).reshape(5, 32, 32))
        words = pb_utils.Tensor("WORDS", np.array([b'{"a": 1}'], object))
        return [pb_utils.InferenceResponse([batch, words]) for _ in requests]
"""


def test_an_inspector_answers(open_notebook: Any) -> None:
    inspects = "%blsinspect answer", '%blsinspect answer["WORDS"]'
    notebook = open_notebook(["%load_ext bls_notebook", MODEL, "answer = %bls zoo IN=[1]\nanswer", *inspects])
    page, response = notebook.page, notebook.output(3)
    toolbar = response.get_by_role("toolbar")
    toolbar.wait_for()
    assert toolbar.get_by_role("button").all_inner_texts() == ["all", "BATCH", "WORDS"]
    assert response.locator("[data-bls-place] img.bls-seen-picture").count() == 5

    toolbar.get_by_role("button", name="BATCH").click()
    first = toolbar.get_by_label("Dimension 0, of 5")
    first.fill("1")
    first.press("Enter")
    response.get_by_text("slice [1] of [5, 32, 32]").wait_for()
    assert response.locator("[data-bls-place] img.bls-seen-picture").count() == 1

    slice_ = toolbar.get_by_label("Slice", exact=True)
    slice_.fill("[9]")
    slice_.press("Enter")
    response.get_by_text("slice [9]: the tensor has the shape [5, 32, 32]").wait_for()
    assert response.get_by_text("slice [1] of [5, 32, 32]").count() == 1  # what was there stays

    assert notebook.output(4).get_by_text("JSON").count() == 1
    assert notebook.errors() == []

    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    toolbar.wait_for(state="detached")
    assert notebook.output(4).get_by_text("JSON").count() == 1  # the picture below the widget
