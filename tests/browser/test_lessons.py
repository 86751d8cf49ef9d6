"""The lessons on async and on streams, as a page without a kernel."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.lab import ROOT

pytestmark = pytest.mark.browser

SYNC_AND_ASYNC = ROOT / "notebooks" / "01_sync_and_async.ipynb"
STREAMS = ROOT / "notebooks" / "02_decoupled_streams.ipynb"


@pytest.mark.parametrize("file", [SYNC_AND_ASYNC, STREAMS], ids=lambda file: file.stem)
def test_every_experiment_has_its_picture_without_a_kernel(open_notebook: Any, file: Any) -> None:
    cells = json.loads(file.read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    magics = ("%blsprofile", "%blsoverlap", "%blstune")
    experiments = sum(source.startswith("%%blsguess") and any(m in source for m in magics) for source in sources)
    assert experiments >= 6
    page = open_notebook(file, run=False).page
    page.wait_for_function(
        "(count) => document.querySelectorAll('.jp-OutputArea img.bls-figure').length === count", arg=experiments
    )
    closed = "() => [...document.querySelectorAll('img.bls-figure')].every((img) => !img.checkVisibility())"
    assert page.evaluate(closed)  # until its reader has guessed
    page.evaluate("() => document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    page.wait_for_function(
        "() => [...document.querySelectorAll('img.bls-figure')]"
        ".every((img) => img.complete && img.naturalWidth > 0 && img.clientWidth > 400)"
    )
