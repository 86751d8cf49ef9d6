"""Columns, clipping, units: what every text display stands on."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.display.as_text import cells, clip, note, table
from bls_notebook.records.units import TIME_WIDTH, count, duration, shape, size

TIME_PATTERN = r"[ \t]*\b\d+(?:\.\d+)? (?:µs|ms|s)\b"  # with the padding before it


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0.00 µs"), (7.31e-6, "7.31 µs"), (9.996e-6, "10.0 µs"), (42e-6, "42.0 µs"), (99.96e-6, "100 µs"),
        (420e-6, "420 µs"), (999.6e-6, "1.00 ms"), (0.01234, "12.3 ms"), (0.9996, "1.00 s"), (1.45, "1.45 s"),
        (125, "125 s"),
    ],
)  # fmt: skip
def test_duration(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@given(st.floats(0, 9999))
def test_every_time_is_matched_whole_and_fits_its_column(seconds: float) -> None:
    shown = duration(seconds)
    assert re.fullmatch(TIME_PATTERN, f"  {shown}")
    assert cells(shown) <= TIME_WIDTH
    value, unit = shown.split()
    spelled = float(value) * {"µs": 1e-6, "ms": 1e-3, "s": 1}[unit]
    assert math.isclose(spelled, seconds, rel_tol=0.006, abs_tol=6e-9)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0 B"), (64, "64 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"),
        (602112, "588 KiB"), (16 * 2**20, "16 MiB"), (2**20 - 1, "1 MiB"), (2**50, "1024 TiB"), (-1, "?"),
    ],
)  # fmt: skip
def test_size(number: int, shown: str) -> None:
    # 2**20 - 1 is 1023.999 KiB: the nearest short spelling is the next unit's.
    assert size(number).replace("1.0 MiB", "1 MiB") == shown


def test_counts_shapes_and_clipped_text() -> None:
    assert shape((1, -1)) == "[1, -1]"
    assert shape((), batch=True) == "[batch]"
    assert (count(1, "error"), count(1200, "error")) == ("1 error", "1,200 errors")
    assert clip("abc", 3) == "abc"
    assert clip("abcd", 3) == "ab…"
    assert clip("数字数字", 5) == "数字…"
    assert clip("ab cdef", 4) == "ab…"


def test_wide_and_combining_characters_keep_columns_straight() -> None:
    lines = table([["数字", "x"], ["e\u0301e", "y"], ["abcd", "z"]], indent="")
    assert [cells(line[: line.index(c)]) for line, c in zip(lines, "xyz", strict=True)] == [6, 6, 6]


def test_empty_columns_vanish_and_short_rows_reach_to_the_right_edge() -> None:
    assert table([["a", "", "b"]], heads=["x", "y", "z"], indent="") == ["x  z", "a  b"]
    assert table([]) == []
    assert table([["", ""]]) == [""]
    lines = table([["1", "aa", "b"], ["2", "a long remark about it"]], indent="")
    assert lines == ["1  aa  b", "2  a long remark about it"]


def test_the_last_column_is_clipped_or_wrapped() -> None:
    rows = [["k", "word " * 20]]
    assert max(map(len, table(rows, width=40))) <= 40
    wrapped = table(rows, width=40, last="wrap")
    assert " ".join(wrapped).split().count("word") == 20
    assert max(map(len, wrapped)) <= 40
    assert note("warning", "one two three four five six", 36) == [
        "  warning: one two three four five",
        "           six",
    ]


@given(st.lists(st.lists(st.text(max_size=60), min_size=3, max_size=3), min_size=1, max_size=6), st.integers(40, 160))
def test_no_line_is_wider_than_it_may_be(rows: list[list[str]], width: int) -> None:
    for line in table(rows, width=width, most=20):
        assert cells(line) <= max(width, 2 + 2 * 22 + 24)
        assert "\n" not in line
