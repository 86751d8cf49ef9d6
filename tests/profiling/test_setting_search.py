"""The search for the smallest setting, and what it is made of: pure, against brute force."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bls_notebook.profiling.analysis.queue_simulation import (
    UNLIMITED,
    Batcher,
    Machine,
    Recipe,
    Sent,
    Use,
    recipes,
    replay,
)
from bls_notebook.profiling.analysis.tuning import ENOUGH, NEVER, ModelSetting, Space, search, uses
from bls_notebook.profiling.records.comparison import ClockSample
from tests.profiling.simulated import Model, session

MS = 1_000_000
A, B = ("a", 1), ("b", 1)
ALONE = Machine(2.0, {})


def work(model: tuple[str, int], ns: int) -> Recipe:
    return Recipe(model, gap=ns)


def space(requests: list[Recipe], names: dict[str, int], machine: Machine = ALONE, **given: object) -> Space:
    now = {name: ModelSetting(1) for name in names}
    options = {
        "requests": requests, "sent": (), "capacity": {(name, 1): 1 for name in names}, "now": now,
        "ways": {name: [setting] for name, setting in now.items()}, "most": names,
        "batcher": lambda name, setting: None, "machine": machine, **given,
    }  # fmt: skip
    return Space(**options)  # type: ignore[arg-type]


# -- processors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "processors", "expected"),
    [
        (Use(), 2, 10),  # four that wait do not meet
        (Use(cpu=1.0), 2, 20),
        (Use(cpu=1.0), 8, 10),
        (Use(cpu=1.0, width=2.0), 2, 40),  # each wants both
        (Use(python=1.0), 8, 40),  # they take turns
        (Use(cpu=0.5), 2, 10),  # half of the time each: just enough
        (Use(python=0.25), 8, 10),
    ],
)
def test_work_shares_the_machine(use: Use, processors: float, expected: float) -> None:
    machine = Machine(processors, {A: use})
    took = replay([work(A, 10 * MS)] * 4, {}, machine=machine)
    assert took == pytest.approx(expected * MS, rel=0.001)


def test_instances_apart_have_locks_of_their_own() -> None:
    machine = Machine(2.0, {A: Use(python=1.0)}).apart()
    assert replay([work(A, 10 * MS)] * 4, {}, machine=machine) == pytest.approx(20 * MS, rel=0.001)


def test_waiting_goes_on_beside_work() -> None:
    machine = Machine(1.0, {A: Use(cpu=1.0)})
    requests = [work(A, 10 * MS), work(A, 10 * MS), work(B, 15 * MS)]
    assert replay(requests, {}, machine=machine) == pytest.approx(20 * MS, rel=0.001)


def test_work_that_begins_later_slows_what_is_under_way() -> None:
    machine = Machine(1.0, {A: Use(cpu=1.0)})
    # The first is half done when the second comes: 5 alone, 10 together, and 5 alone.
    took = replay([work(A, 10 * MS)] * 2, {}, sent=[0, 5 * MS], machine=machine)
    assert took == pytest.approx(20 * MS, rel=0.001)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50), st.integers(0, 60)), min_size=1, max_size=7),
    st.sampled_from([1.0, 2.0]),
)
@settings(max_examples=60, deadline=None)
def test_shared_work_is_never_quicker_than_alone_nor_than_the_machine(
    pieces: list[tuple[int, int, int]], processors: float
) -> None:
    keys = [A, B, ("c", 1)]
    machine = Machine(processors, {A: Use(cpu=1.0), B: Use(python=0.8)})
    requests = [work(keys[k], ms * MS) for k, ms, _ in pieces]
    sent = [at * MS for _, _, at in pieces]
    took = replay(requests, {}, sent=sent, machine=machine)
    computed = sum(ms * (1.0, 0.8, 0.0)[k] for k, ms, _ in pieces) * MS
    slack = 1.001
    assert took * slack >= replay(requests, {}, sent=sent)
    assert took * slack >= computed / processors
    assert took * slack >= sum(0.8 * ms * MS for k, ms, _ in pieces if k == 1)
    assert took <= (max(sent) + sum(ms for _, ms, _ in pieces) * MS) * slack


def test_what_was_computed_is_of_the_model_that_worked() -> None:
    run = session({"a": Model([20 * MS, "b", 20 * MS]), "b": Model([20 * MS])}, "a")
    looks = [
        ClockSample(0, 20 * MS, 20 * MS, 16 * MS, True),
        ClockSample(20 * MS, 40 * MS, 0, 1 * MS, False),
        ClockSample(40 * MS, 60 * MS, 20 * MS, 16 * MS, True),
    ]
    found = uses([(run, looks)])
    assert found.keys() == {A}
    assert found[A].python == pytest.approx(1.0, abs=0.01)
    nothing = uses([(run, [ClockSample(0, 60 * MS, 0, 1 * MS, False)])])
    assert nothing == {}


# -- the search --------------------------------------------------------------------------------------


def chain(first: int, second: int) -> Recipe:
    return Recipe(("front", 1), sent=(Sent(work(A, first)), Sent(work(B, second), (0,))), waited=(1,))


def smallest(tried: Space, most: dict[str, int]) -> tuple[int, int]:
    """The fewest instances that are enough, of all settings, and the best wall."""
    walls = []
    for counts in product(*(range(1, each + 1) for each in most.values())):
        setting = {name: ModelSetting(count) for name, count in zip(most, counts, strict=True)}
        walls.append((sum(counts), tried.wall(setting)))
    best = min(wall for _, wall in walls)
    return min(count for count, wall in walls if wall * ENOUGH <= best), best


WORKS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=3)
USES: list[dict[tuple[str, int], Use]] = [{}, {A: Use(cpu=1.0)}, {A: Use(python=0.5), B: Use(cpu=0.5)}]


def chains(works: list[tuple[int, int]], uses_of: dict[tuple[str, int], Use]) -> tuple[Space, dict[str, int]]:
    most = dict.fromkeys(("front", "a", "b"), len(works))
    return space([chain(a * MS, b * MS) for a, b in works], most, Machine(2.0, uses_of)), most


@given(WORKS, st.sampled_from(USES))
@example([(2, 1), (2, 3), (2, 1)], {A: Use(cpu=1.0)})  # fewer instances are faster here
@settings(max_examples=60, deadline=None)
def test_what_it_finds_is_enough_and_nothing_can_be_left_out(
    works: list[tuple[int, int]], uses_of: dict[tuple[str, int], Use]
) -> None:
    tried, most = chains(works, uses_of)
    found = search(tried)
    enough = found.best / ENOUGH
    assert found.wall == tried.wall(found.setting) <= enough
    assert found.best <= min(found.now, tried.wall({name: ModelSetting(n) for name, n in most.items()}))
    for name, each in found.setting.items():
        fewer = {**found.setting, name: ModelSetting(each.count - 1)}
        assert each.count == 1 or tried.wall(fewer) > enough


@pytest.mark.parametrize("uses_of", USES)
@pytest.mark.parametrize("works", [[(5, 5)] * 3, [(30, 1), (20, 2), (10, 3)], [(1, 20), (1, 10), (2, 5)]])
def test_it_finds_what_trying_everything_finds(
    works: list[tuple[int, int]], uses_of: dict[tuple[str, int], Use]
) -> None:
    tried, most = chains(works, uses_of)
    found = search(tried)
    fewest, best = smallest(chains(works, uses_of)[0], most)
    assert (sum(each.count for each in found.setting.values()), found.best) == (fewest, best)


def test_a_part_of_the_best_takes_fewer() -> None:
    tried = space([work(A, 10 * MS)] * 8, {"a": 8})
    assert [search(tried, part).setting["a"].count for part in (0.95, 0.5, 0.3, 0.1)] == [8, 4, 3, 1]


def test_what_serves_any_number_is_not_counted() -> None:
    requests = [work(A, 10 * MS)] * 4
    tried = space(requests, {}, capacity={A: UNLIMITED})
    assert search(tried).wall == 10 * MS


def test_a_model_that_calls_itself_has_instances_enough() -> None:
    itself = Recipe(A, sent=(Sent(work(A, MS)),), waited=(0,))
    tried = space([itself] * 2, {"a": 4})
    assert tried.wall({"a": ModelSetting(1)}) == NEVER
    assert search(tried).setting["a"].count >= 2


def test_a_batch_takes_the_place_of_instances() -> None:
    now, batches = ModelSetting(1, 4), ModelSetting(1, 4, True, (4,))
    tried = space(
        [work(A, 10 * MS)] * 4, {"a": 4}, now={"a": now}, ways={"a": [now, batches]},
        batcher=lambda name, setting: Batcher.greedy(4, 10 * MS, 0) if setting.batches else None,
    )  # fmt: skip
    found = search(tried)
    assert (found.setting["a"], found.wall) == (batches, 10 * MS)


def test_the_setting_stays_where_another_brings_nothing() -> None:
    tried = space([work(A, 10 * MS)], {"a": 1})
    assert search(tried).setting == tried.now


def test_rows_are_those_of_the_spans() -> None:
    assert [recipe.rows for recipe in recipes(session({"a": Model([MS])}, "a"))] == [1]
