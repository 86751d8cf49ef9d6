from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.magics.arguments import UnfinishedError, split_words


def texts(line: str) -> list[str]:
    return [word.text for word in split_words(line)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  \t ", []),
        ("a b", ["a", "b"]),
        ("A=[1, 2, 3] B=f(x, y)", ["A=[1, 2, 3]", "B=f(x, y)"]),
        ('A="one two" B=\'it "is"\'', ['A="one two"', "B='it \"is\"'"]),
        (r'A="a \" b" c', [r'A="a \" b"', "c"]),
        ('A="""a " b""" c', ['A="""a " b"""', "c"]),
        ("A={'x': [1, ')']} z", ["A={'x': [1, ')']}", "z"]),
        ("A=x[1: 2][ 0 ]  b", ["A=x[1: 2][ 0 ]", "b"]),
        ("a) b", ["a)", "b"]),
    ],
)
def test_spaces_inside_quotes_and_brackets_do_not_split(line: str, words: list[str]) -> None:
    assert texts(line) == words


@pytest.mark.parametrize(
    ("line", "opener", "start"), [("a B=[1", "[", 2), ("'x", "'", 0), ('A="""x"', '"""', 0), ("(]", "(", 0)]
)
def test_what_is_left_open_is_named(line: str, opener: str, start: int) -> None:
    with pytest.raises(UnfinishedError) as caught:
        split_words(line)
    assert (caught.value.opener, caught.value.start) == (opener, start)


def test_other_characters_may_split() -> None:
    assert [w.text for w in split_words('a=1,b="x,y",c=f(1,2)', lambda c: c == ",")] == ["a=1", 'b="x,y"', "c=f(1,2)"]


def test_plain_takes_quotes_off_only_around_the_whole_word() -> None:
    plain = [word.plain for word in split_words("""'a b' "c" 'a'b'c' x'y' ''""")]
    assert plain == ["a b", "c", "'a'b'c'", "x'y'", ""]


@given(st.text(alphabet="ab =[](){}'\"\\,\t", max_size=30))
def test_words_and_the_spaces_between_make_up_the_line(line: str) -> None:
    try:
        words = split_words(line)
    except UnfinishedError:
        return
    assert all(line[w.start : w.end] == w.text for w in words)
    edges = [0, *(edge for w in words for edge in (w.start, w.end)), len(line)]
    gaps = [line[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
    assert all(not gap.strip() for gap in gaps)
    assert all(gaps[1:-1])
