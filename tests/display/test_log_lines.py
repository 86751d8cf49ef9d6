"""Lines of models' logs, with and without a terminal's colours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.display import left_out_text, log_line_text
from bls_notebook.records.raw_events import LEVELS, LogLine
from tests.display.samples import HOSTILE

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
def test_whatever_a_model_logs_does_nothing(message: str) -> None:
    for line in (LogLine(message, message, message), LogLine("info", "m", HOSTILE)):
        text = log_line_text(line)
        assert "\x1b" not in text
        assert "\r" not in text
        assert text.endswith("\n")


def test_what_was_left_out() -> None:
    text = left_out_text("some.logger")
    assert text == "… further messages of models are not shown here; Python's logger 'some.logger' has all\n"
    assert PAINT.sub("", left_out_text("l", colour=True)) == left_out_text("l")
