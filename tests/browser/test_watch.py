"""The watch in a real browser: the panel and its buttons work while a cell runs; clearing the output ends it."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.browser

CELLS = [
    "%load_ext bls_notebook\nimport time, threading, bls_notebook as bls",
    "%tritonrepo use ../model_repository\n%tritonrepo load add_sub",
    "%blswatch",
    """\
repo, ones = bls.current_repository(), [1.0]
until = time.monotonic() + 30
while not repo.ready("bls_sync") and time.monotonic() < until:
    repo.infer("add_sub", {"INPUT0": ones, "INPUT1": ones})
    time.sleep(0.01)
print("loaded" if repo.ready("bls_sync") else "waited in vain")""",
]
THREADS = "sum(t.name == 'bls-watch' for t in threading.enumerate())"


def test_a_panel(open_notebook: Any) -> None:
    notebook = open_notebook(CELLS, run=False)
    page = notebook.page
    notebook.ready()
    page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")  # do not wait for it
    row = page.locator('.bls-watch tr[data-model="add_sub"]')
    # The last cell runs until a button of the panel above it has been pressed.
    figure = ".bls-watch tr[data-model=add_sub] .bls-watch-figure"
    page.wait_for_function(f"() => Number(document.querySelector('{figure}')?.innerText) > 1")
    assert "READY" in row.inner_text()
    page.locator(".bls-watch summary").click()
    page.locator('.bls-watch-names [data-model="bls_sync"]').click()
    page.locator(".jp-OutputArea-output", has_text="loaded").last.wait_for()
    page.locator('.bls-watch tr[data-model="bls_sync"]').wait_for()
    assert notebook.cell(3).locator(".jp-OutputArea-output").inner_text().strip() == "loaded"
    row.locator('[data-verb="unload"]').click()
    row.wait_for(state="detached")
    page.locator('.bls-watch-names [data-model="add_sub"]').wait_for(state="attached")
    assert notebook.ask("repo.ready('add_sub')") is False
    assert notebook.ask(THREADS) == 1
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    assert notebook.ask_until(f"{THREADS} == 0")
