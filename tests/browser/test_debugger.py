"""A breakpoint in a model's cell, set in JupyterLab."""

from __future__ import annotations

from typing import Any

import pytest

from tests.magics.test_breakpoints import CELLS

pytestmark = pytest.mark.browser


def test_a_breakpoint_stops_in_the_cell(open_notebook: Any) -> None:
    notebook = open_notebook(["%load_ext bls_notebook", CELLS["plain"], "%bls plain IN=[1, 2, 3]"])
    page = notebook.page
    page.locator(".jp-DebuggerBugButton").first.click()
    line_8 = notebook.cell(1).locator(".cm-breakpoint-gutter .cm-gutterElement").nth(8)  # below a spacer
    line_8.click()
    line_8.locator(".cm-breakpoint-icon").wait_for()
    notebook.cell(2).locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    stack = page.locator(".jp-DebuggerCallstackFrame")
    stack.first.wait_for()
    assert stack.all_inner_texts()[0].split() == ["execute", "Cell", "[2]:8"]
    assert stack.count() == 1  # the cell that calls waits on another thread
    highlighted = notebook.cell(1).locator(".jp-DebuggerEditor-highlight")
    highlighted.wait_for()
    assert highlighted.inner_text().strip() == "twice = given * 2"
    page.locator(".jp-DebuggerVariables-body", has_text="given").wait_for()
    page.keyboard.press("F9")  # continue
    notebook.output(2).get_by_text("[2.0, 4.0, 6.0]").wait_for()
    assert notebook.errors() == []
