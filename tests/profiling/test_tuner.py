from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.profiling import Tuning
from bls_notebook.profiling import tuner as tuning
from bls_notebook.profiling.analysis.queue_simulation import UNLIMITED, Batcher, Recipe, Sent
from bls_notebook.profiling.analysis.setting_search import ENOUGH, NEVER, Space, search
from bls_notebook.profiling.records.tuning import ModelSetting
from bls_notebook.profiling.tuner import InstanceMemory, memory_of_instance
from bls_notebook.records.statistics import DeviceRecord
from tests.engine import gates
from tests.profiling.simulated import Locked, Model, simulate_times
from tests.profiling.tuning_graphs import GRAPHS, TuningGraph, define
from tests.profiling.workloads import CONFIG, HEAD

MS = 1_000_000
LIMITED = """
class TritonPythonModel:
    def initialize(self, args):
        if args["model_instance_name"].endswith("_1"):
            raise ValueError("no memory for a second")

    def execute(self, requests):
        return answer(requests)
"""
LATE = """
from tests.engine import gates

class TritonPythonModel:
    def execute(self, requests):
        return answer(requests)

    def finalize(self):
        time.sleep(0.1)
        gates.shared["released"].append(1)
"""


def settings_of(repo: bls.ModelRepository) -> dict[str, str]:
    return {record.name: str(repo.config(record.name)) for record in repo.index()}


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tuning]:
    """Tune models that only answer; the times are those of `models`, whose last one gets the requests."""

    def tune(models: dict[str, Model], source: str = LIMITED.replace("_1", "_none"), **options: Any) -> Tuning:
        simulate_times(monkeypatch, models)
        with bls.ModelRepository() as repo:
            for name, model in models.items():
                repo.define(name, HEAD + source, CONFIG + f"instance_group [{{ count: {model.instances} }}]")
            before = settings_of(repo)
            found = bls.tune(name, {"IN": [1.0]}, repeat=1, repo=repo, **options)
            assert settings_of(repo) == before
            assert repo.infer(name, {"IN": [1.0]}).error is None
        assert Tuning.from_dict(found.to_dict()) == found
        return found

    monkeypatch.setattr(tuning, "memory_of_instance", lambda repo, name: InstanceMemory())
    return tune


def test_settings_found_for_several_models_hold(tuned: Callable[..., Tuning], tmp_path: Path) -> None:
    models = {"a": Model([MS]), "b": Model([30 * MS]), "root": Model(["a", "b"])}
    found = tuned(models, n=4, verify=True)
    assert {model.name: model.found.count for model in found.models} == {"root": 4, "a": 2, "b": 4}
    assert found.measured.found == pytest.approx(found.predicted.found, rel=0.01)
    assert found.measured.now > 2 * found.measured.found
    assert found.confirmed
    assert found.sentence.startswith("With 2 instances of `a`, 4 of `b` and 4 of `root`, 4 requests at once took")
    lines = found.save(tmp_path / "changes.pbtxt").read_text()
    assert "# config.pbtxt of b\ninstance_group [{ count: 4 }]  # 1 now" in lines
    with pytest.raises(bls.BLSError, match=r"must end with \.pbtxt"):
        found.save(tmp_path / "changes.txt")


@pytest.mark.slow
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_any_graph_is_tuned_and_left_as_it_was(graph: TuningGraph) -> None:
    with bls.ModelRepository() as repo:
        define(repo, graph, 0.002)
        before = settings_of(repo)
        found = bls.tune("root", graph.inputs, n=3, verify=True, repeat=1, repo=repo)
        assert settings_of(repo) == before
    assert Tuning.from_dict(found.to_dict()) == found
    assert {m.name for m in found.models} <= set(graph.models)
    assert "could not" not in found.sentence


@pytest.mark.slow
def test_batches_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_PATIENCE", 60_000_000_000)  # a full batch waits no longer
    simulate_times(monkeypatch, {"b": Model([20 * MS])})
    (graph,) = (each for each in GRAPHS if each.batches)
    with bls.ModelRepository() as repo:
        define(repo, graph, 0.01)
        found = bls.tune("b", {"IN": np.ones((1, 1), np.float32)}, n=4, verify=True, repeat=1, repo=repo)
        assert not repo.config("b").HasField("dynamic_batching")
    (model,) = found.models
    assert [size for size, _ in model.batch_times] == [1, 2, 4]
    assert all(ns >= 10_000_000 for _, ns in model.batch_times)  # each `execute` waits for 10 ms


@pytest.mark.slow
def test_batches_are_measured_up_to_the_size_that_the_code_of_a_model_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_PATIENCE", 60_000_000_000)
    simulate_times(monkeypatch, {"b": Model([20 * MS])})
    own = "def auto_complete_config(config):\n        config.set_max_batch_size(2)\n        return config\n"
    with bls.ModelRepository() as repo:
        source = HEAD + LIMITED.replace("    def initialize", f"    @staticmethod\n    {own}\n    def initialize")
        repo.define("b", source, CONFIG)
        found = bls.tune("b", {"IN": np.ones((1, 1), np.float32)}, n=4, verify=False, repeat=1, repo=repo)
    assert [size for size, _ in found.models[0].batch_times] == [1, 2]
    assert "not measured" not in found.sentence


def test_nothing_is_predicted_where_instances_wait_for_each_other(tuned: Callable[..., Tuning]) -> None:
    found = tuned({"locked": Model([Locked(20 * MS)], instances=4)}, n=4, verify=True)
    assert found.models == () == found.pbtxt
    assert found.sentence.startswith("Nothing to tune. The 4 instances of `locked` wait for each other")
    assert "Nothing to tune" in render(found).text


def test_a_lock_that_one_instance_did_not_show_is_found_by_the_run(tuned: Callable[..., Tuning]) -> None:
    found = tuned({"locked": Model([Locked(20 * MS)])}, n=4, verify=True)
    assert not found.confirmed
    assert found.sentence.startswith(
        "With 4 instances of `locked`, 4 requests at once took 80 ms, not the predicted 20"
    )
    assert found.verdict.cause == "contention"
    assert found.verdict.best == found.verdict.speedup  # more instances bring nothing
    assert any("wait for each other" in each and each.endswith("as it is.") for each in found.advice)
    assert found.pbtxt == ()


def test_a_setting_that_cannot_be_loaded_is_told(tuned: Callable[..., Tuning]) -> None:
    found = tuned({"limited": Model([20 * MS])}, LIMITED, n=4, verify=True)
    assert "could not be run: model 'limited' version 1 could not be loaded" in found.sentence
    assert "no memory for a second" in found.problem
    assert found.pbtxt == ()


def test_memory_bounds_the_instances(tuned: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "memory_of_instance", lambda repo, name: InstanceMemory(64 << 20, -1, 1))
    found = tuned({"heavy": Model([10 * MS])}, n=6)
    assert [model.found.count for model in found.models] == [2]
    assert any("takes 64 MiB: there is memory for 2" in each for each in found.advice)


@pytest.mark.parametrize(
    ("grown", "host", "room"), [(64, 64 << 20, 9), (3, 0, -1), (-1, -1, -1)], ids=["more", "noise", "less"]
)
def test_the_memory_of_an_instance(monkeypatch: pytest.MonkeyPatch, grown: int, host: int, room: int) -> None:
    used = iter((100, 100 + grown))
    monkeypatch.setattr(
        tuning, "device_records", lambda: [DeviceRecord("cpu", "", False, next(used) << 20, 0, 180 << 20, 1000 << 20)]
    )
    released: list[int] = []
    monkeypatch.setitem(gates.shared, "released", released)
    with bls.ModelRepository() as repo:
        repo.define("late", HEAD + LATE, CONFIG)
        assert memory_of_instance(repo, "late") == InstanceMemory(host, -1, room)
        assert released  # or the next measurement would be short of it


def test_bad_arguments_and_failing_models_are_told() -> None:
    with bls.ModelRepository() as repo:
        repo.define("limited", HEAD + LIMITED.replace("return answer(requests)", "raise ValueError('x')"), CONFIG)
        for n, inputs, message in (
            (0, {"IN": [1.0]}, "tune: n: got 0, expected a whole number"),
            (2, 3, "tune: inputs: got int"),
        ):
            with pytest.raises(bls.BLSError, match=message):
                bls.tune("limited", inputs, n=n, repo=repo)  # type: ignore[arg-type]
        found = bls.tune("limited", {"IN": [1.0]}, n=2, repeat=1, repo=repo)
    assert found.sentence.startswith("Nothing to tune. 2 of 2 requests to `limited` failed")


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
def test_found_settings_are_enough_and_minimal(works: list[tuple[int, int]], bound: int) -> None:
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
def test_the_search_finds_what_trying_everything_finds(works: list[tuple[int, int]], bound: int) -> None:
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
