from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.profiling.analysis.call_graph import overlapping
from bls_notebook.profiling.intervals import events, gaps, levels, minus, occupied, total, total_within, union

intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda t: (min(t), max(t))))


def moments(given_intervals: list[tuple[int, int]]) -> set[int]:
    return {t for begin, end in given_intervals for t in range(begin, end)}


@given(intervals)
def test_union(some: list[tuple[int, int]]) -> None:
    out = union(some)
    assert moments(out) == moments(some)
    assert total(out) == len(moments(some))
    assert all(a[1] < b[0] for a, b in itertools.pairwise(out))


@given(intervals, intervals)
def test_minus(some: list[tuple[int, int]], holes: list[tuple[int, int]]) -> None:
    out = minus(some, holes)
    assert moments(out) == moments(some) - moments(holes)
    assert total(out) == len(moments(out))


@given(intervals, intervals)
def test_gaps_are_what_minus_finds(some: list[tuple[int, int]], holes: list[tuple[int, int]]) -> None:
    for begin, end in some:
        assert gaps(begin, end, holes) == minus([(begin, end)], holes)


@given(intervals)
def test_occupied(some: list[tuple[int, int]]) -> None:
    found = occupied(events(some))
    at = [sum(begin <= t < end for begin, end in some) for t in range(31)]
    assert found.once == sum(level > 0 for level in at) == total(union(some))
    assert found.twice == sum(level > 1 for level in at)
    assert found.sum == sum(at)
    assert found.most == max(at)


@given(intervals)
def test_levels(some: list[tuple[int, int]]) -> None:
    found = levels(some)
    changes = dict(found)
    level = 0
    for t in range(31):
        level = changes.get(t, level)
        assert level == sum(begin <= t < end for begin, end in some)
    assert not found or found[-1][1] == 0
    assert all(a[1] != b[1] for a, b in itertools.pairwise(found))


@given(intervals)
def test_overlapping(some: list[tuple[int, int]]) -> None:
    assert overlapping(some) == [
        any(i != j and max(a[0], b[0]) < min(a[1], b[1]) for j, b in enumerate(some)) for i, a in enumerate(some)
    ]


def test_the_length_within_others() -> None:
    assert total_within([(0, 10), (5, 20), (30, 40)], [(8, 12), (11, 35)]) == 17
    assert total_within([], [(0, 9)]) == total_within([(0, 9)], []) == 0
