from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.profiling import Tuning
from bls_notebook.profiling import tuner as tuning
from bls_notebook.profiling.tuner import InstanceMemory, memory_of_instance
from tests.profiling.tuning_graphs import GRAPHS, define
from tests.profiling.workloads import CONFIG, HEAD, WORKLOADS
from tests.profiling.workloads import define as define_workload

LIMITED = """
class TritonPythonModel:
    def initialize(self, args):
        if args["model_instance_name"].endswith("_1"):
            raise ValueError("no memory for a second")

    def execute(self, requests):
        time.sleep(0.02)
        return answer(requests)
"""
HEAVY = """
class TritonPythonModel:
    def initialize(self, args):
        self.weights = np.ones(16 << 20, np.uint8)

    def execute(self, requests):
        time.sleep(0.01)
        return answer(requests)
"""


def settings_of(repo: bls.ModelRepository) -> dict[str, str]:
    return {record.name: str(repo.config(record.name)) for record in repo.index()}


def tuned(graph: str, unit: float = 0.02, **options: Any) -> tuple[Tuning, dict[str, int]]:
    (known,) = (each for each in GRAPHS if each.name == graph)
    with bls.ModelRepository() as repo:
        define(repo, known, unit)
        before = settings_of(repo)
        found = bls.tune("root", known.inputs, repeat=1, repo=repo, **options)
        assert settings_of(repo) == before
    assert Tuning.from_dict(found.to_dict()) == found
    return found, {model.name: model.found.count for model in found.models}


def test_what_is_found_for_several_models_holds() -> None:
    found, counts = tuned("chain", unit=0.01, n=4, verify=True)
    assert min(counts.values()) > 1  # four each, where the machine is not too busy to tell
    assert found.measured.now > 2 * found.measured.found > 0
    assert found.then is not None
    assert found.sentence.startswith(("With ", "Less would do")), found.sentence
    assert dict(found.pbtxt)["a"].startswith("# config.pbtxt of a\ninstance_group [{ count: ")


def test_batches_are_measured() -> None:
    (graph,) = (each for each in GRAPHS if each.batches)
    with bls.ModelRepository() as repo:
        define(repo, graph, 0.01)
        found = bls.tune("b", {"IN": np.ones((1, 1), np.float32)}, n=4, verify=True, repeat=1, repo=repo)
        assert not repo.config("b").HasField("dynamic_batching")
    (model,) = found.models
    assert [size for size, _ in model.batch_times] == [1, 2, 4]
    assert all(ns >= 10_000_000 for _, ns in model.batch_times)  # each `execute` waits for 10 ms


def test_nothing_is_predicted_where_instances_wait_for_each_other() -> None:
    (locked,) = (each for each in WORKLOADS if each.name == "a lock that instances share")
    with bls.ModelRepository() as repo:
        define_workload(repo, locked)
        found = bls.tune(locked.model, locked.inputs, n=4, repeat=1, verify=True, repo=repo)
    assert found.models == () == found.pbtxt
    assert found.sentence.startswith("Nothing to tune. The 4 instances of `locked` wait for each other")
    assert "Nothing to tune" in render(found).text


def test_a_lock_that_one_instance_did_not_show_is_found_by_the_run() -> None:
    (locked,) = (each for each in WORKLOADS if each.name == "tried: one instance with a lock")
    with bls.ModelRepository() as repo:
        define_workload(repo, locked)
        for _ in range(3):  # on a busy machine the lock is held for too little of the time to be seen
            found = bls.tune(locked.model, locked.inputs, n=4, repeat=1, verify=True, repo=repo)
            if found.verdict.cause == "contention":
                break
    assert not found.confirmed
    assert found.verdict.cause == "contention"
    assert found.verdict.best == found.verdict.speedup  # more instances bring nothing
    assert any("wait for each other" in each and each.endswith("as it is.") for each in found.advice)
    assert found.pbtxt == ()


def test_what_cannot_be_loaded_is_told() -> None:
    with bls.ModelRepository() as repo:
        repo.define("limited", HEAD + LIMITED, CONFIG)
        found = bls.tune("limited", {"IN": [1.0]}, n=4, repeat=1, verify=True, repo=repo)
        assert repo.infer("limited", {"IN": [1.0]}).error is None
    assert "could not be run: model 'limited' version 1 could not be loaded" in found.sentence
    assert "no memory for a second" in found.problem
    assert found.pbtxt == ()


def test_memory_bounds_the_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "memory_of_instance", lambda repo, name: InstanceMemory(64 << 20, -1, 1))
    with bls.ModelRepository() as repo:
        repo.define("heavy", HEAD + HEAVY, CONFIG)
        memory_of_instance(repo, "heavy")  # what it gives back lies free in the process
        assert memory_of_instance(repo, "heavy").host > 8 << 20
        found = bls.tune("heavy", {"IN": [1.0]}, n=6, repeat=1, repo=repo)
    assert [model.found.count for model in found.models] == [2]
    assert any("takes 64 MiB: there is memory for 2" in each for each in found.advice)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "tune: n: got 0, expected a whole number"),
        ({"repeat": 0}, "tune: repeat: got 0"),
        ({"inputs": 3}, "tune: inputs: got int"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with bls.ModelRepository() as repo:
        repo.define("limited", HEAD + LIMITED, CONFIG)
        with pytest.raises(bls.BLSError, match=message):
            bls.tune("limited", **{"inputs": {"IN": [1.0]}, "repo": repo, **options})


def test_a_failing_model_is_told() -> None:
    with bls.ModelRepository() as repo:
        repo.define("limited", HEAD + LIMITED.replace("time.sleep(0.02)", "raise ValueError('x')"), CONFIG)
        found = bls.tune("limited", {"IN": [1.0]}, n=2, repeat=1, repo=repo)
    assert found.sentence.startswith("Nothing to tune. 2 of 2 requests to `limited` failed")


def test_its_file_holds_what_to_change(tmp_path: Path) -> None:
    found, _ = tuned("fan-out", n=2)
    lines = found.save(tmp_path / "changes.pbtxt").read_text()
    assert "# config.pbtxt of a\ninstance_group [{ count: 2 }]  # 1 now" in lines
    with pytest.raises(bls.BLSError, match=r"must end with \.pbtxt"):
        found.save(tmp_path / "changes.txt")
