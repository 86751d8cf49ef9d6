from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.records.visible_text import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("naïve 数字 שלום", "naïve 数字 שלום"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x00\x7f\x85", r"\x00\x7f\x85"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("\u2066\u200f\ufeff\u2028", r"\u2066\u200f\ufeff\u2028"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("no\u00a0break", "no\u00a0break"),
        ("\u0646\u200c\u0647", "\u0646\u200c\u0647"),  # a joiner that spelling needs
    ],
)
def test_one_line(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_and_tabs_stay_where_asked() -> None:
    assert visible("a\n\tb\r\x07", lines=True) == "a\n\tb\\r\\x07"


@given(st.text(alphabet=st.characters()))
def test_nothing_hidden_is_left(text: str) -> None:
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
    shown.encode("utf-8")  # no lone surrogate
    assert visible(shown) == shown
