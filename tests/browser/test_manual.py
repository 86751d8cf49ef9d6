"""The search of the built manual, opened from its files: `make docs` builds it and runs this test."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.browser.lab import ROOT

pytestmark = pytest.mark.browser
HTML = ROOT / "docs" / "_build" / "html"
INDEX = HTML / "_static" / "manual_index.js"


def _is_new() -> bool:
    """Return whether the manual was built after the last change of its pages."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if HTML not in path.parents]
    return INDEX.exists() and all(path.stat().st_mtime <= INDEX.stat().st_mtime for path in pages)


@pytest.fixture(scope="module")
def page(browser: Any) -> Any:
    if not _is_new():
        pytest.skip("needs the manual as it is now: make docs")
    page = browser.new_page()
    page.goto((HTML / "search.html").as_uri())
    yield page
    page.close()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dynamic batching max queue delay", "guides/batching.html"),
        ("VS Code", "guides/install.html"),
        ("optional input", "guides/optional_inputs_and_strings.html"),
        ("strings", "guides/optional_inputs_and_strings.html"),
        ("load test", "guides/sweeps.html"),
        ("install without Docker", "guides/install.html"),
        ("first model", "index.html"),
        ("slow", "guides/where_time_goes.html"),
        ("print", "guides/observing.html"),
        ("breakpoints", "guides/debugging.html"),
        ("compare", "reference/generated/python_api.html"),
    ],
)
def test_a_search_finds_the_page_that_answers(page: Any, words: str, expected: str) -> None:
    page.fill(".manual-search input", words)
    page.wait_for_selector(f"body[data-searched='{words}']")
    links = page.locator("#search-results > li > a").evaluate_all("links => links.map(a => a.getAttribute('href'))")
    assert expected in links[:3]
    result = page.locator("#search-results > li").nth(links.index(expected))
    assert result.locator(".search-excerpt mark").count()


def test_a_search_without_a_result_says_so(page: Any) -> None:
    page.fill(".manual-search input", "xylophone orchestra")
    page.wait_for_selector("body[data-searched='xylophone orchestra']")
    assert page.inner_text("#search-status") == "No page has all these words."
    assert page.locator("#search-results > li").count() == 0


def test_the_search_field_of_a_page_leads_to_the_results(browser: Any, page: Any) -> None:
    other = browser.new_page()
    problems: list[str] = []
    other.on("pageerror", lambda error: problems.append(str(error)))
    other.goto((HTML / "guides" / "batching.html").as_uri())
    other.fill(".sidebar-search", "queue delay")
    other.press(".sidebar-search", "Enter")
    other.wait_for_selector("body[data-searched='queue delay']")
    assert quote("queue delay") in other.url.replace("+", "%20")
    other.click("#search-results > li ul a")
    other.wait_for_selector("span.highlighted")  # the words of the search, on the page that it found
    assert "#" in other.url
    assert problems == []
    other.close()
