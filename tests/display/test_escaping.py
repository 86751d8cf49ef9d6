"""Whatever names, messages and values hold, it is shown, and it does nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.display import Display, render, render_config
from bls_notebook.profiling.code_lines import CodeLine
from bls_notebook.profiling.dependences.records import CodeChange, Overlap, SentCall
from bls_notebook.records.models import Change, ModelRecord
from bls_notebook.records.responses import ResponseRecord
from bls_notebook.records.statistics import FamilyRecord, StatisticsRecord
from bls_notebook.records.visible_text import visible
from tests.display.page import Page
from tests.display.samples import CHOOSING, HOSTILE, everything, hostile, lists
from tests.profiling.test_comparison_report import overlap

ALLOWED_TAGS = {
    "div", "style", "span", "b", "code", "pre", "i", "table", "caption", "thead", "tbody", "tr", "th", "td",
    "details", "summary", "ul", "li", "img",
}  # fmt: skip
ALLOWED_ATTRIBUTES = {
    "class", "title", "scope", "rowspan", "colspan", "open", "style", "role", "aria-label", "src", "alt",
    "width", "height",
}  # fmt: skip
ALLOWED_STYLES = {"", "text-align:left", "color:#d32f2f"}
SIZES = re.compile(r"(width|height):\d+\.\d+%")  # of bars


def hostile_code() -> list[Overlap]:
    """A change to write, and one to be made by hand; without timelines, which have tests of their own."""
    found = overlap()
    found = replace(found, model=HOSTILE, written=replace(found.written, spans=()))
    call = SentCall(HOSTILE, 0, 0, CodeLine(HOSTILE, 3, HOSTILE, HOSTILE))
    found = replace(found, sentence=HOSTILE, calls=(call,) * 3, notes=(HOSTILE,))
    change = Change(HOSTILE, 1, 1, (("-", HOSTILE), ("+", HOSTILE)), (3, 0))
    by_hand = CodeChange(HOSTILE, HOSTILE, reason=f"`{HOSTILE}`", template=HOSTILE)
    return [replace(found, code=CodeChange(HOSTILE, "", HOSTILE, change, proof=HOSTILE)), replace(found, code=by_hand)]


def displays() -> list[Callable[[], Display]]:
    records = [hostile(each, kept) for each in everything() for kept in (CHOOSING, frozenset[str]())]
    models = [r for r in records if isinstance(r, ModelRecord)]
    responses = [r for r in records if isinstance(r, ResponseRecord)]
    return [
        *(partial(render, each) for each in (*records, models, responses, *map(hostile, lists()), *hostile_code())),
        partial(render, responses, stream=True),
        partial(render_config, HOSTILE, HOSTILE),
        partial(render_config, HOSTILE, f'name: "{HOSTILE}" # {HOSTILE}'),
    ]


DISPLAYS = displays()


@pytest.mark.parametrize("shown", DISPLAYS, ids=range(len(DISPLAYS)))
def test_only_our_own_markup_and_no_hidden_character_comes_out(shown: Callable[[], Display]) -> None:
    display = shown()
    page = Page(display.html)
    assert {tag for tag, _ in page.tags} <= ALLOWED_TAGS
    assert {name for _, attributes in page.tags for name in attributes} <= ALLOWED_ATTRIBUTES
    styles = {attributes.get("style") or "" for _, attributes in page.tags}
    assert {style for style in styles if not SIZES.fullmatch(style)} <= ALLOWED_STYLES
    for _, attributes in page.tags:
        classes = (attributes.get("class") or "").split()
        assert all(re.fullmatch(r"bls-[a-z-]+|(mathjax|tex2jax)_ignore", name) for name in classes)
    assert "<script>alert(1)</script>" in page.text
    assert len(page.styles) == 1
    assert "alert" not in page.styles[0]
    for form in (display.text, display.html):
        hidden = {c for c in form if unicodedata.category(c) in ("Cc", "Cf", "Cs")}
        assert hidden <= {"\n"}
    assert r"\x1b[31m\x00\u202egnp\u2066\ud800" in page.text


@given(st.from_type(ModelRecord) | st.from_type(ResponseRecord))
def test_any_record_at_all(record: Any) -> None:
    display = render(record)
    page = Page(display.html)
    assert {tag for tag, _ in page.tags} <= ALLOWED_TAGS
    assert display.text.strip()
    assert "\x1b" not in display.text


@pytest.mark.slow
@given(st.lists(st.from_type(ResponseRecord), max_size=3), st.sampled_from([1, 10]), st.booleans())
def test_any_responses_at_all(records: list[ResponseRecord], times: int, stream: bool) -> None:
    display = render(records * times, stream=stream)
    assert {tag for tag, _ in Page(display.html).tags} <= ALLOWED_TAGS
    assert display.text.strip()


@given(st.lists(st.from_type(StatisticsRecord), max_size=3) | st.lists(st.from_type(FamilyRecord), max_size=3))
def test_any_figures_at_all(records: list[Any]) -> None:
    display = render(records)
    assert {tag for tag, _ in Page(display.html).tags} <= ALLOWED_TAGS
    # Hypothesis also makes families without a name, which nobody can.
    assert display.text.strip() or not any(r.name.strip() for r in records)
    assert "\x1b" not in display.text


@given(st.text())
def test_a_config_keeps_every_character_that_can_be_seen(pbtxt: str) -> None:
    display = render_config("m", pbtxt)
    shown = visible(pbtxt.rstrip().expandtabs(4), lines=True)
    assert Page(display.html).text.endswith(shown)
