"""The quickstart, as its reader meets it: opened in JupyterLab and run from top to bottom."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.lab import ROOT

pytestmark = pytest.mark.browser

QUICKSTART = ROOT / "notebooks" / "00_quickstart.ipynb"


def test_it_opens_with_its_outputs_and_runs(open_notebook: Any) -> None:
    notebook = open_notebook(QUICKSTART, run=False)
    notebook.page.wait_for_selector(".bls-out", state="attached")
    before = notebook.page.locator(".bls-out").count()
    notebook.run()
    assert notebook.errors() == []
    assert all(notebook.executed())
    assert notebook.page.locator(".bls-out").count() == before > 3
    assert "digit" in notebook.page.locator(".jp-Notebook").inner_text()


def test_a_page_answers_for_the_kernel_and_changes_its_theme(open_notebook: Any) -> None:
    notebook = open_notebook(["x = 41", "x + 1"])
    assert notebook.output(1).inner_text().strip() == "42"
    assert notebook.ask("x") == 41
    with pytest.raises(AssertionError, match="NameError"):
        notebook.ask("y")
    notebook.theme("Dark")
    colour = notebook.page.evaluate(
        "() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color0')"
    )
    assert colour.strip() in ("#111111", "#111")
