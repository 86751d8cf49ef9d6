"""The quickstart, as its reader meets it: opened in JupyterLab, run by keys, guessed at and worked on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.lab import ROOT

pytestmark = pytest.mark.browser

QUICKSTART = ROOT / "notebooks" / "00_quickstart.ipynb"
CELLS = json.loads(QUICKSTART.read_text("utf-8"))["cells"]
FOLD = ".bls-out > details"


def first(beginning: str, after: int = 0) -> int:
    """Return the index of the first cell whose source begins with `beginning`."""
    sources = ["".join(cell["source"]) for cell in CELLS]
    return next(i for i, source in enumerate(sources) if i >= after and source.startswith(beginning))


def test_a_reader_guesses_works_and_is_checked(open_notebook: Any) -> None:
    notebook = open_notebook(QUICKSTART, run=False)
    page = notebook.page
    page.wait_for_selector(".bls-out", state="attached")
    before = page.locator(".bls-out").count()
    asked = first("%%blsguess")
    assert "Your guess?" in notebook.output(asked).inner_text()
    assert not notebook.output(asked).locator("table").is_visible()  # folded away, without a kernel too

    def run_from(begin: int, end: int) -> None:
        """Run cells by their keys, as a reader does."""
        notebook.cell(begin).locator(".jp-InputArea-prompt, .jp-MarkdownOutput").first.click()
        for _ in range(begin, end + 1):
            page.keyboard.press("Shift+Enter")

    notebook.ready()
    run_from(0, asked)
    shown = notebook.output(asked).first
    shown.get_by_role("button", name="a 9").wait_for()
    assert not shown.locator(FOLD).is_visible()
    shown.get_by_role("button", name="a 3, and it is sure").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # "a 9"
    shown.locator(FOLD).locator("table").wait_for()
    shown.locator(".bls-guess-made.bls-guess-right", has_text="✓ a 9").wait_for()
    shown.locator(".bls-guess-ask button").nth(3).wait_for()  # the choices stay
    assert "jp-mod-active" in notebook.cell(asked + 1).get_attribute("class")  # Shift+Enter continues there
    assert "DIGIT" in shown.locator(FOLD).inner_text()

    check = first("%%blscheck output")
    run_from(asked + 1, check)
    notebook.output(check).get_by_text("0 of 3 done").wait_for()
    model, solution = first("%%tritonmodel reader"), first("%%tritonmodel reader", check)
    notebook.cell(model).locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("".join(CELLS[solution]["source"]))
    page.keyboard.press("Shift+Enter")
    run_from(check, check)
    notebook.output(check).get_by_text("2 of 2 done").wait_for()

    notebook.run()
    assert notebook.errors() == []
    assert all(notebook.executed())
    assert page.locator(".bls-out").count() in range(4, before + 1)  # the first check failed before, with an error
    assert shown.locator(".bls-guess-made").inner_text() == "✓ a 9"  # kept
