"""One-line messages, configs, and lines of models' logs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.display import left_out_text, log_line_text, render_config
from bls_notebook.records.messages import LEVELS, LogLine, MessageRecord
from tests.display.page import Page, as_html, as_text
from tests.display.samples import HOSTILE

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


PAINT = re.compile(r"\x1b\[[\d;]*m")


def test_a_line() -> None:
    assert log_line_text(LogLine("info", "chatty", "loaded 3 labels")) == "[info] chatty: loaded 3 labels\n"
    assert log_line_text(LogLine("error", "m", "a\n  b\n")) == "[error] m: a\n      b\n"
    assert log_line_text(LogLine("error", "m", "")) == "[error] m: \n"
    line = LogLine("warning", "m", "x")
    assert log_line_text(line, cell="In [3]") == "[warning] m (by In [3]): x\n"
    assert log_line_text(LogLine("info", "m", "x", background=True)) == "[info] m (in the background): x\n"
    assert log_line_text(LogLine("info", "m", "x" * 10_000)).endswith("x … 6,000 more characters\n")


@pytest.mark.parametrize("level", LEVELS)
def test_colours_change_no_word(level: str) -> None:
    line = LogLine(level, "m", "x\ny")
    painted = log_line_text(line, colour=True, cell="In [1]")
    assert painted != log_line_text(line, cell="In [1]")
    assert PAINT.sub("", painted) == log_line_text(line, cell="In [1]")
    assert len({log_line_text(LogLine(each, "m", "x"), colour=True) for each in LEVELS}) == 4


@given(st.text())
def test_log_lines_are_escaped(message: str) -> None:
    for line in (LogLine(message, message, message), LogLine("info", "m", HOSTILE)):
        text = log_line_text(line)
        assert "\x1b" not in text
        assert "\r" not in text
        assert text.endswith("\n")


def test_left_out_messages_are_told() -> None:
    text = left_out_text("some.logger")
    assert text == "… further messages of models are not shown here; Python's logger 'some.logger' has all\n"
    assert PAINT.sub("", left_out_text("l", colour=True)) == left_out_text("l")
