"""Inks are stable, different from each other, and different in grey."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.display.svg import ALARM, NOTEBOOK, Ink, model_inks


@given(st.lists(st.text(min_size=1), max_size=30, unique=True))
def test_each_model_has_an_ink_of_its_own(names: list[str]) -> None:
    inks = model_inks(names, {})
    assert set(inks) == {"", *names}
    assert len({ALARM, *inks.values()}) == len(names) + 2


@given(st.lists(st.text(), max_size=8))
def test_order_and_repetition_do_not_matter(names: list[str]) -> None:
    assert model_inks(names, {}) == model_inks(reversed([*names, *names]), {})


@given(st.lists(st.sets(st.text(min_size=1), max_size=8), max_size=8))
def test_a_name_keeps_its_ink_in_every_later_picture(pictures: list[set[str]]) -> None:
    slots, seen = dict[str, int](), dict[str, Ink]()
    for names in pictures:
        found = model_inks(names, slots)
        assert found.items() >= {name: seen[name] for name in names & seen.keys()}.items()
        seen |= found


def test_ten_models_differ_in_colour_alone_whenever_they_come() -> None:
    slots: dict[str, int] = {}
    found = [model_inks([name], slots)[name] for name in "abcdefghij"]
    assert len({ink.light for ink in found}) == len({ink.dark for ink in found}) == 10
    assert {ink.hatch for ink in found} == {""}


def test_a_picture_reuses_colours_that_it_does_not_have() -> None:
    slots: dict[str, int] = {}
    model_inks(map(str, range(10)), slots)
    for name in "abcdefghij":
        pair = model_inks([name, "1"], slots)
        assert pair[name].light != pair["1"].light


def test_the_notebook_is_grey_and_every_color_is_written_in_full() -> None:
    assert model_inks([""]) == {"": NOTEBOOK}
    inks: list[Ink] = [*model_inks("abcdef").values(), ALARM]
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for ink in inks for colour in (ink.light, ink.dark))
