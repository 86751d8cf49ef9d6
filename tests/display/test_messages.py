"""One-line messages, and configs."""

from __future__ import annotations

import pytest

from bls_notebook.display import render_config
from bls_notebook.records.repository import MessageRecord
from tests.display.page import Page, as_html, as_text

PBTXT = """name: "digits" # the model
max_batch_size: 8
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1, 4 ] } ]
dynamic_batching { }
optional: true
"""


@pytest.mark.parametrize(
    ("kind", "mark", "cls"),
    [
        ("done", "✓", "bls-message-done"), ("info", "·", ""), ("warning", "!", "bls-message-warning"),
        ("error", "✗", "bls-message-wrong"), ("nonsense", "·", ""),
    ],
)  # fmt: skip
def test_marks(kind: str, mark: str, cls: str) -> None:
    record = MessageRecord("m loaded", kind, "see also", 0.0031)
    assert as_text(record) == f"{mark} m loaded  3.10 ms\n  see also"
    page = Page(as_html(record))
    assert page.text == f"{mark} m loaded 3.10 mssee also"
    assert len(page.find("span", cls or "bls-message-mark")) > 0
    assert len(page.find("span", "bls-time")) == 1
    assert as_text(MessageRecord("unloaded")) == "✓ unloaded"


def test_config_text_is_the_config_after_a_comment() -> None:
    assert render_config("digits", PBTXT).text == "# config.pbtxt of digits\n" + PBTXT.rstrip()
    assert render_config("a\nb", "x: 1").text == "# config.pbtxt of a\\nb\nx: 1"


def test_config_html_colours_tokens_and_changes_nothing() -> None:
    html = render_config("digits", PBTXT).html
    page = Page(html)
    assert page.text == "digits config.pbtxt" + PBTXT.rstrip()

    def of(cls: str) -> list[str]:
        return [part.split("</span>")[0] for part in html.split(f'<span class="bls-config-{cls}">')[1:]]

    assert of("key") == [
        "name", "max_batch_size", "input", "name", "data_type", "dims", "dynamic_batching", "optional",
    ]  # fmt: skip
    assert of("str") == ["&quot;digits&quot;", "&quot;A&quot;"]
    assert of("lit") == ["8", "TYPE_FP32", "-1", "4", "true"]
    assert of("com") == ["# the model"]
