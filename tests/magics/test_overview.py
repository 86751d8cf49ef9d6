"""`%bls` alone lists everything, and helps and errors name pages of the manual that exist."""

from __future__ import annotations

import json
import re
from email.message import Message
from pathlib import Path

import pytest

from bls_notebook.capabilities import registry
from bls_notebook.display import render
from bls_notebook.display.records import errors
from bls_notebook.magics.overview import manual, with_paths
from bls_notebook.records import advice
from bls_notebook.records.errors import ErrorRecord

PAGE = re.compile(r"docs/\w+/\w+\.md")


def test_bls_alone_lists_everything_on_one_screen(cells) -> None:
    display = cells("%bls").value
    lines = display.text.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 100
    begins = [line.split()[0] for line in lines if line.strip()]
    assert set(registry().keys("magics")) | set(registry().keys("verbs")) <= set(begins)
    assert all(f"<code>{name}</code>" in display.html for name in registry().keys("commands"))


@pytest.mark.parametrize("name", registry().keys("magics"))
def test_the_help_of_a_magic_has_the_path_of_its_page(name: str, cells, shell) -> None:
    kind, bare = "cell" if name.startswith("%%") else "line", name.lstrip("%")
    shown = shell.find_magic(bare, kind).__doc__
    pages = PAGE.findall(shown)
    assert pages
    for page in pages:
        path = manual().parent / page
        assert str(path) in shown
        assert path.is_file()


def test_paths_replace_nothing_else() -> None:
    assert (
        with_paths("docs/guides/leaks.md, mydocs/x/y.md, docs/") == f"{manual()}/guides/leaks.md, mydocs/x/y.md, docs/"
    )


@pytest.mark.parametrize(
    ("message", "page"),
    [
        ("circular BLS: a -> b -> a. The request to 'a' can never be served", "hangs_and_crashes"),
        ("execute returned None and the request was not answered", "hangs_and_crashes"),
        ("Exceeds maximum queue size", "where_time_goes"),
        ("Tensor is stored in GPU and cannot be converted to NumPy", "devices"),
        ("a wheel fell off", ""),
    ],
)
def test_the_display_of_an_error_names_its_guide(message: str, page: str) -> None:
    shown = render(ErrorRecord(message))
    found = [text.partition("docs/guides/")[2].partition(".md")[0] for text in (shown.text, shown.html)]
    assert found == [page, page]


def test_the_guide_of_an_error_is_a_link_once_the_manual_has_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Message()
    monkeypatch.setattr("bls_notebook.display.records.errors.metadata", lambda _: declared)
    monkeypatch.setattr(errors, "_manual", errors._manual.__wrapped__)  # without the cache
    record = ErrorRecord("Exceeds maximum queue size")
    assert "href" not in render(record).html
    declared["Project-URL"] = "Source, https://example.org/code"
    declared["Project-URL"] = "Documentation, https://example.org/manual/"
    shown = render(record)
    assert 'href="https://example.org/manual/guides/where_time_goes.html"' in shown.html
    assert "docs/guides/where_time_goes.md" in shown.text


def test_every_guide_of_an_error_exists() -> None:
    remedies = Path(advice.__file__).with_name("remedies.json")
    pages = set(json.loads(remedies.read_text("utf-8"))["guides"].values())
    assert pages
    assert {page for page in pages if not (manual() / "guides" / f"{page}.md").is_file()} == set()
