"""Inks are stable, different from each other, and different in grey."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.display.palette import ALARM, NOTEBOOK, Ink, Inks, model_inks


@given(st.lists(st.text(min_size=1), max_size=30, unique=True))
def test_each_model_has_an_ink_of_its_own(names: list[str]) -> None:
    inks = Inks().of(names)
    assert set(inks) == set(names)
    assert len(set(inks.values())) == len(names)
    assert not {ALARM, NOTEBOOK} & set(inks.values())


@given(st.lists(st.text(), max_size=8))
def test_order_and_repetition_do_not_matter(names: list[str]) -> None:
    assert Inks().of(names) == Inks().of(reversed([*names, *names]))


@given(st.lists(st.sets(st.text(min_size=1), max_size=8), max_size=8))
def test_a_name_keeps_its_ink_in_every_later_picture(pictures: list[set[str]]) -> None:
    inks, seen = Inks(), dict[str, Ink]()
    for names in pictures:
        found = inks.of(names)
        assert found.items() >= {name: seen[name] for name in names & seen.keys()}.items()
        seen |= found


def test_ten_models_differ_in_colour_alone_whenever_they_come() -> None:
    inks = Inks()
    found = [inks.of([name])[name] for name in "abcdefghij"]
    assert len({ink.light for ink in found}) == len({ink.dark for ink in found}) == 10
    assert {ink.hatch for ink in found} == {""}


def test_where_colours_run_out_a_picture_takes_what_it_does_not_have() -> None:
    inks = Inks()
    inks.of(map(str, range(10)))
    for name in "abcdefghij":
        pair = inks.of([name, "1"])
        assert pair[name].light != pair["1"].light


def test_the_notebook_is_grey_and_every_color_is_written_in_full() -> None:
    assert model_inks([""]) == {"": NOTEBOOK}
    inks: list[Ink] = [*model_inks("abcdef").values(), ALARM]
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for ink in inks for colour in (ink.light, ink.dark))
