from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.lifetimes.display.block_facts import alive_kinds, device_facts, held, left_behind, sums_text
from bls_notebook.lifetimes.display.lifetime_chart import heaviest_first, layout, life_lanes, pack
from bls_notebook.lifetimes.display.widget import packed
from bls_notebook.lifetimes.records import Holder, Life, Lifetimes, Maker, bytes_over_time
from tests.lifetimes import samples


@st.composite
def tracks(draw: st.DrawFn) -> Lifetimes:
    """Any track, however its lives overlap."""
    lives = []
    for number in range(draw(st.integers(0, 40))):
        born = draw(st.integers(0, 60))
        lives.append(
            Life(
                number + 1, draw(st.sampled_from(["cpu", "gpu:0", "gpu:1"])), draw(st.integers(0, 9)), born,
                draw(st.one_of(st.just(-1), st.integers(born, 80))), tensor=draw(st.sampled_from("ABC")),
                maker=Maker(draw(st.sampled_from(["", "one", "two"]))), how=draw(st.sampled_from(["new", "copy"])),
                source=draw(st.integers(0, number)),
                holders=draw(st.sampled_from([(), (Holder("variable", "x", "del x"),), (Holder("frame"),)])),
            )
        )  # fmt: skip
    return Lifetimes(tuple(sorted(lives, key=lambda life: (life.born, life.id))), (), 90, name="In [1]")


def bytes_at(record: Lifetimes, device: str, ns: int) -> int:
    alive = [each for each in record.lives if each.born <= ns and (each.died < 0 or each.died > ns)]
    return sum(life.bytes for life in alive if life.device == device)


@given(tracks())
def test_bytes_over_time_and_their_peak(record: Lifetimes) -> None:
    for facts in device_facts(record):
        steps = bytes_over_time(life for life in record.lives if life.device == facts.name)
        assert [bytes_at(record, facts.name, ns) for ns, _, _ in steps] == [alive for _, alive, _ in steps]
        assert facts.peak == max(bytes_at(record, facts.name, ns) for ns in range(91))
        assert bytes_at(record, facts.name, facts.peak_ns) == facts.peak
        assert sum(each.bytes for each in facts.at_peak) == facts.peak
        assert facts.left == steps[-1][2]
        mine = [life for life in record.left_behind() if life.device == facts.name]
        assert (facts.left, facts.left_blocks) == (sum(life.bytes for life in mine), len(mine))


@given(tracks(), st.integers(2, 12))
def test_every_block_is_in_one_group_one_row_and_one_lane(record: Lifetimes, most: int) -> None:
    for groups in (held(record.alive()), alive_kinds(record)):
        ids = [life.id for group in groups for life in group.lives]
        assert sorted(ids) == sorted(life.id for life in record.alive())
        assert [group.bytes for group in groups] == sorted((group.bytes for group in groups), reverse=True)
    every = sorted(life.id for life in record.lives)
    packed_rows = pack(record.lives)
    assert sorted(life.id for row in packed_rows for life in row) == every
    for before, after in (pair for row in packed_rows for pair in pairwise(row)):
        assert 0 <= before.died <= after.born
    rows = [row for own in layout(record, most).values() for row in own]
    assert sorted(life.id for row in rows for life in row.lives) == every
    assert len(rows) <= most
    for model, own in layout(record, most).items():
        if model != "\0":
            assert {life.maker.model for row in own for life in row.lives} == {model}
    lanes, info = life_lanes(record), packed(record)["info"]
    assert [(lane["label"], lane["deep"]) for lane in info["lanes"]] == [(lane.label, len(lane.rows)) for lane in lanes]
    in_order = sorted(range(len(lanes)), key=lambda k: int(info["lanes"][k]["rank"]))
    assert [lanes[k] for k in in_order] == heaviest_first(lanes)


def test_blocks_and_models_are_folded_and_those_that_left_most_behind_come_first() -> None:
    groups = layout(samples.many(5000), 36)
    assert next(iter(groups)) == "cache"
    assert sum(map(len, groups.values())) <= 36
    assert any(row.label.startswith("+") for own in groups.values() for row in own)
    lives = tuple(Life(n + 1, "cpu", n, n, n + 1, tensor="T", maker=Maker(f"m{n}")) for n in range(50))
    groups = layout(Lifetimes(lives, (), 60), 10)
    assert (len(groups), groups["\0"][0].label) == (10, "+41 names")


@pytest.mark.parametrize(
    ("holders", "words"),
    [
        ([], "held by an unknown owner"),
        ([("frame", "", ""), ("variable", "r", "del r")], "held by r; to release: del r"),
        ([("response", "", "")], "held by a response"),
        ([("iterator", "stream", "")], "held by an iterator of responses stream"),
        ([("attribute", "m.cache['a'][0]", "x")], "held by m.cache['a'][0]; to release: x"),
    ],
)
def test_the_named_owner_of_several(holders: list[tuple[str, str, str]], words: str) -> None:
    track = samples.Track(samples.CPU)
    life = track.make(1, "OUT", 1000, "m")
    for holder in holders:
        track.hold(life, *holder)
    assert left_behind(track.record(9))[0].endswith(words)


def test_many_holders_and_remedies_are_few_words() -> None:
    track = samples.Track(samples.CPU)
    for number in range(30):
        track.hold(track.make(number, "OUT", 4096, "m"), "variable", f"r{number}", f"del r{number}")
    said = left_behind(track.record(99, dropped=7, dropped_bytes=2048))
    assert len(said) == 7
    assert said[5].startswith("left behind by this cell: 100 KiB more, held by 25 others: r")
    assert "2 KiB in blocks beyond the limit" in said[6]
    track = samples.Track(samples.CPU)
    for number in range(5):
        track.hold(track.make(number, "OUT", 4096, "m"), "variable", f"r[{number}]", f"r[{number}].clear()")
    assert left_behind(track.record(99))[0].endswith("held by r; to release: r[0].clear() (and 4 like it)")
    facts = device_facts(samples.many(500))[0]
    assert re.fullmatch("[^,]*(,[^,]*){2}", said := sums_text(facts.at_peak, 2)), said
    assert "more" in said
