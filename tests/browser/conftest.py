"""Notebooks in a real browser: one JupyterLab a run, one browser a module, one page a notebook.

    def test_it(open_notebook):
        notebook = open_notebook(["x = 41", "x + 1"])
        assert notebook.output(1).inner_text() == "42"
        assert notebook.ask("x") == 41

The browser is a module's, not the run's: while Playwright's synchronous API is on, its event loop counts as
running in this thread, and tests of coroutines elsewhere could not start theirs.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import CHROMIUM_FLAGS, Lab, OpenNotebook, find_chromium, notebook_file

WIDTH, HEIGHT = 1200, 900


def _needed() -> None:
    for module in ("playwright", "jupyterlab", "anywidget"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: pip install {module}")
    if find_chromium() is None:
        pytest.skip("needs a browser: install Chromium, or name one by the environment variable CHROMIUM")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    _needed()
    server = Lab(tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    _needed()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


class Opener:
    """Opens notebooks, each on a page of its own, and closes them."""

    def __init__(self, lab: Lab, browser: Any) -> None:
        self._lab = lab
        self._browser = browser
        self._open: list[OpenNotebook] = []

    def __call__(
        self, cells: Sequence[str | Mapping[str, Any]] | Path, *, run: bool = True, theme: str = "Light"
    ) -> OpenNotebook:
        """Open a notebook made of cells, or a copy of a file, and run it unless ``run=False``."""
        folder = self._lab.root / "notebooks"
        name = f"{len(list(folder.iterdir()))}.ipynb"
        text = cells.read_text(encoding="utf-8") if isinstance(cells, Path) else json.dumps(notebook_file(cells))
        (folder / name).write_text(text, encoding="utf-8")
        page = self._browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        notebook = OpenNotebook(self._lab, page, name)
        self._open.append(notebook)
        notebook.theme(theme)
        if run:
            notebook.run()
        return notebook

    def close(self) -> None:
        """Close them all; what went wrong on a page without anybody noticing goes wrong here."""
        for notebook in self._open:
            notebook.close()
        assert [problem for notebook in self._open for problem in notebook.problems] == []


def _opened(lab: Lab, browser: Any) -> Iterator[Opener]:
    opener = Opener(lab, browser)
    yield opener
    opener.close()


# For one test, and for notebooks that the tests of a module share.
open_notebook, open_for_module = pytest.fixture(_opened), pytest.fixture(scope="module")(_opened)
