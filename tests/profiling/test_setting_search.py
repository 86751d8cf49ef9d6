from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls_notebook.profiling.analysis.queue_simulation import UNLIMITED, Batcher, Recipe, Sent
from bls_notebook.profiling.analysis.setting_search import ENOUGH, NEVER, Space, search
from bls_notebook.profiling.records.tuning import ModelSetting

MS = 1_000_000
A, B = ("a", 1), ("b", 1)


def work(model: tuple[str, int], ns: int) -> Recipe:
    return Recipe(model, gap=ns)


def space(requests: list[Recipe], names: dict[str, int], **given: object) -> Space:
    now = {name: ModelSetting(1) for name in names}
    options = {
        "requests": requests, "capacity": {(name, 1): 1 for name in names}, "now": now,
        "ways": {name: [setting] for name, setting in now.items()}, "most": names,
        "batcher": lambda name, setting: None, **given,
    }  # fmt: skip
    return Space(**options)  # type: ignore[arg-type]


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
BOUNDS = [0, 20 * MS, 1000 * MS]


def chains(works: list[tuple[int, int]], bound: int) -> tuple[Space, dict[str, int]]:
    most = dict.fromkeys(("front", "a", "b"), len(works))
    return space([chain(a * MS, b * MS) for a, b in works], most, bound=lambda setting: bound), most


@given(WORKS, st.sampled_from(BOUNDS))
@settings(max_examples=60, deadline=None)
def test_what_it_finds_is_enough_and_nothing_can_be_left_out(works: list[tuple[int, int]], bound: int) -> None:
    tried, most = chains(works, bound)
    found = search(tried)
    enough = found.best / ENOUGH
    assert found.wall == tried.wall(found.setting) <= enough
    assert found.best <= min(found.now, tried.wall({name: ModelSetting(n) for name, n in most.items()}))
    for name, each in found.setting.items():
        fewer = {**found.setting, name: ModelSetting(each.count - 1)}
        assert each.count == 1 or tried.wall(fewer) > enough


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("works", [[(5, 5)] * 3, [(30, 1), (20, 2), (10, 3)], [(1, 20), (1, 10), (2, 5)]])
def test_it_finds_what_trying_everything_finds(works: list[tuple[int, int]], bound: int) -> None:
    tried, most = chains(works, bound)
    found = search(tried)
    fewest, best = smallest(chains(works, bound)[0], most)
    assert (sum(each.count for each in found.setting.values()), found.best) == (fewest, best)


def test_a_part_of_the_best_takes_fewer_and_what_brings_nothing_none() -> None:
    tried = space([work(A, 10 * MS)] * 8, {"a": 8})
    assert [search(tried, part).setting["a"].count for part in (0.95, 0.5, 0.3, 0.1)] == [8, 4, 3, 1]
    tried = space([work(A, 10 * MS)], {"a": 1})
    assert search(tried).setting == tried.now
    assert search(space([work(A, 10 * MS)] * 4, {}, capacity={A: UNLIMITED})).wall == 10 * MS  # it serves any number


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
