"""The wait graph against brute force: no deadlock missed, no false alarm."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bls_notebook.engine.deadlocks.wait_graph import ALL, ANY, LIVE, deadlocked

Graph = list[tuple[str, list[int]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 7))
    node = st.tuples(st.sampled_from([LIVE, ANY, ALL]), st.lists(st.integers(0, size - 1), max_size=4))
    return draw(st.lists(node, min_size=size, max_size=size))


def trapped(graph: Graph) -> set[int]:
    """Nodes of any set whose members all wait for members only, found by trying every set."""

    def is_trap(members: tuple[int, ...]) -> bool:
        for member in members:
            mode, needed = graph[member]
            if mode == LIVE:
                return False
            if mode == ANY and any(n not in members for n in needed):
                return False
            if mode == ALL and not any(n in members for n in needed):
                return False
        return True

    nodes = range(len(graph))
    every = chain.from_iterable(combinations(nodes, n) for n in range(1, len(graph) + 1))
    return {member for members in every if is_trap(members) for member in members}


@pytest.mark.slow
@given(graphs())
@settings(max_examples=300)
@example([(ANY, [])])
@example([(ALL, [])])
@example([(ALL, [0])])
@example([(ANY, [0, 0, 1]), (LIVE, [])])
@example([(ALL, [1, 2]), (LIVE, []), (ANY, [0])])
@example([(LIVE, [1]), (ANY, [1])])
def test_against_every_possible_trap(graph: Graph) -> None:
    expected = trapped(graph)
    for starts in [*([node] for node in range(len(graph))), range(len(graph))]:
        asked: list[int] = []
        stuck = deadlocked(starts, lambda n, asked=asked: (asked.append(n), graph[n])[1])
        assert len(asked) == len(set(asked))  # each once
        assert [node in stuck for node in starts] == [node in expected for node in starts]
        for each, needed in stuck.items():
            assert needed == [n for n in dict.fromkeys(graph[each][1]) if n in expected]


def test_a_long_chain_is_no_problem() -> None:
    end = 5000
    assert not deadlocked([0], lambda n: (ALL, [n + 1]) if n < end else (LIVE, ()))
    assert deadlocked([0], lambda n: (ALL, [n + 1]) if n < end else (ANY, [0]))


def test_a_search_ends_once_its_start_is_known_to_move() -> None:
    asked: list[int] = []

    def needs(node: int) -> tuple[str, list[int]]:
        asked.append(node)
        return (ANY, [*range(1, 1000)]) if node == 0 else (LIVE, [])

    assert not deadlocked([0], needs)
    assert len(asked) == 2
