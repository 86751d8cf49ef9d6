"""The wait graph against brute force: no deadlock missed, no false alarm."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bls_notebook.engine.waiting.wait_graph import ALL, ANY, LIVE, deadlocked

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
    for node in range(len(graph)):
        stuck = deadlocked(node, graph.__getitem__)  # type: ignore[arg-type]
        assert bool(stuck) == (node in stuck) == (node in expected)
        for each, needed in stuck.items():
            assert needed == [n for n in dict.fromkeys(graph[each][1]) if n in expected]


@given(graphs())
def test_asks_each_node_once(graph: Graph) -> None:
    asked: list[int] = []

    def needs(node: int) -> Any:
        asked.append(node)
        return graph[node]

    deadlocked(0, needs)
    assert len(asked) == len(set(asked))


def test_a_long_chain_is_no_problem() -> None:
    end = 50_000
    assert not deadlocked(0, lambda n: (ALL, [n + 1]) if n < end else (LIVE, ()))
    assert deadlocked(0, lambda n: (ALL, [n + 1]) if n < end else (ANY, [0]))


@dataclass
class System:
    """Models with instances, executions that hold them, and requests that wait in queues."""

    instances: list[int]
    holders: list[list[int]] = field(default_factory=list)  # by model: executions
    queues: list[list[int]] = field(default_factory=list)  # by model: requests, first come first
    waits: dict[int, tuple[str, list[int]]] = field(default_factory=dict)  # by execution
    serving: dict[int, int] = field(default_factory=dict)  # request to execution


@st.composite
def systems(draw: st.DrawFn) -> System:
    """Any state that may come about: requests of executions are being served, or queue where all is busy."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    system = System(counts, [[] for _ in counts], [[] for _ in counts])
    executions: list[int] = []
    requests = 0

    def send(model: int) -> int:
        nonlocal requests
        requests += 1
        if len(system.holders[model]) < counts[model]:
            executions.append(len(executions))
            system.holders[model].append(executions[-1])
            system.serving[requests] = executions[-1]
        else:
            system.queues[model].append(requests)
        return requests

    models = st.integers(0, len(counts) - 1)
    for _ in range(draw(st.integers(1, 9))):
        running = [e for e in executions if e not in system.waits]
        if not running or draw(st.booleans()):
            send(draw(models))  # of somebody outside
        else:
            sender = draw(st.sampled_from(running))
            mode = draw(st.sampled_from([ANY, ALL]))
            sent = [send(draw(models)) for _ in range(draw(st.integers(1, 3)))]
            system.waits[sender] = (mode, sent)
    return system


def answerable(system: System, wanted: int) -> bool:
    """Whether some order in which things may end answers a request: tries all of them.

    An execution may end once what it waits for has been answered; its instance goes to the first in
    the queue, whose execution may end at any time.
    """
    seen = set()
    first = (frozenset[int](), tuple(tuple(q) for q in system.queues), frozenset(system.serving.items()))
    todo = [first]
    model_of = {e: m for m, es in enumerate(system.holders) for e in es}
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        ended, queues, serving = state
        answered = {r for r, e in serving if e in ended}
        if wanted in answered:
            return True
        for request, execution in serving:
            del request
            if execution in ended:
                continue
            mode, sent = system.waits.get(execution, (ALL, []))
            if not (all if mode == ALL else any)(r in answered for r in sent):
                continue
            if execution < 0:  # came from the queue, of the model that is -execution // 100
                model = -execution // 100
            else:
                model = model_of[execution]
            now_queued, now_serving = list(queues), set(serving)
            if queues[model]:
                head, *rest = queues[model]
                now_queued[model] = tuple(rest)
                now_serving.add((head, -(model * 100 + head)))
            todo.append((ended | {execution}, tuple(now_queued), frozenset(now_serving)))
    return False


@given(systems())
@settings(max_examples=200)
@example(System([1], [[0]], [[2]], {0: (ALL, [2])}, {1: 0}))  # a -> a
def test_requests_that_can_be_answered_are_never_stuck(system: System) -> None:
    queue_of = {r: m for m, q in enumerate(system.queues) for r in q}

    def needs(node: tuple[str, int]) -> Any:
        kind, number = node
        if kind == "request" and number in queue_of:
            return ANY, [("execution", e) for e in system.holders[queue_of[number]]]
        if kind == "request":
            return ALL, [("execution", system.serving[number])]
        if number not in system.waits:
            return LIVE, ()
        mode, sent = system.waits[number]
        return mode, [("request", r) for r in sent]

    for request in [*system.serving, *queue_of]:
        assert bool(deadlocked(("request", request), needs)) != answerable(system, request)
