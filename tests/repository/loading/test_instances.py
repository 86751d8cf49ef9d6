"""Other instance groups for a model that serves: which instances stay, come and leave, and when.

What stays was settled on a real server; tests/conformance/test_live_regrouping.py asks it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, infer, ints, message, until, value
from tests.engine.sources import model

COUNTING = model("""
def initialize(self, args):
    config = json.loads(args["model_config"])
    self.name, self.n = args["model_instance_name"], 0
    gates.count("made")
    if gates.shared.get("refuse") == gates.counts["made"]:
        raise ValueError("refused")
    gates.shared.setdefault("told", []).append(
        (self.name, args["model_instance_kind"], [g["count"] for g in config["instance_group"]]))

def execute(self, requests):
    self.n += 1
    for request in requests:
        x = int(pb.get_input_tensor_by_name(request, "X").as_numpy().ravel()[0])
        if x:
            gates.open_gate(f"in {x}")
            gates.pass_gate(f"out {x}")
    gates.shared.setdefault("ran", []).append((self.name, self.n))
    return [answer(self.n) for r in requests]

def finalize(self):
    gates.count("ended")
    gates.shared.setdefault("left", []).append(self.name)
""").replace("import asyncio,", "import json, asyncio,")

TENSORS = {
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [-1]}],
}
SCHEDULERS: dict[str, dict[str, Any]] = {"default": {}, "dynamic": {"max_batch_size": 2, "dynamic_batching": {}}}


def group(count: int, kind: str = "KIND_CPU", **more: Any) -> dict[str, Any]:
    return {"count": count, "kind": kind, **more}


def config(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"backend": "python", "instance_group": list(groups), **TENSORS, **more}


def counts() -> tuple[int, int]:
    return gates.counts["made"], gates.counts["ended"]


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[bls.ModelRepository]:
    folder = tmp_path / "models" / "m" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(COUNTING)
    with bls.ModelRepository(tmp_path / "models") as repository:
        yield repository


def served_by(repo: bls.ModelRepository) -> list[str]:
    return [i.name for i in host_of(repo).ready("m").instances]


def test_only_what_is_missing_is_made_and_only_what_is_too_many_ends(repo: bls.ModelRepository) -> None:
    seen = []
    for count in (2, 2, 3, 1):
        repo.load("m", config(group(count)))
        seen.append(counts())
    assert seen == [(2, 0), (2, 0), (3, 0), (3, 2)]
    assert served_by(repo) == ["m_0_2"], "the last of those that are alike stays"
    assert repo.config("m").instance_group[0].count == repo.model("m").instances == 1


def test_an_instance_that_stays_keeps_its_state_and_the_model_its_statistics(repo: bls.ModelRepository) -> None:
    repo.load("m", config(group(1)))
    assert infer(repo, "m") == 1
    repo.load("m", config(group(2)))
    repo.load("m", config(group(1, name="renamed")))
    assert [infer(repo, "m"), infer(repo, "m")] in ([1, 2], [2, 3])
    assert repo.config("m").instance_group[0].name == "renamed"
    assert repo.statistics("m")["model_stats"][0]["inference_count"] == 3


@pytest.mark.parametrize(
    ("groups", "more", "made", "left"),
    [
        ([group(1, name="a"), group(1, name="b")], {}, 2, 0),
        ([group(1, name="a"), group(2, name="b")], {}, 3, 0),
        ([group(1, "KIND_MODEL"), group(1)], {}, 3, 1),
        ([group(2, host_policy="other")], {}, 4, 2),
        ([group(2, rate_limiter={"priority": 2})], {}, 4, 2),
        ([group(1), group(1, passive=True)], {}, 3, 1),
        ([], {}, 2, 1),
        ([group(3)], {"parameters": {"p": {"string_value": "1"}}}, 5, 2),  # it is loaded again
        ([group(2)], {"version_policy": {"all": {}}}, 2, 0),
    ],
)
def test_all_of_a_group_but_its_name_and_count_has_to_be_the_same(
    repo: bls.ModelRepository, groups: list[dict[str, Any]], more: dict[str, Any], made: int, left: int
) -> None:
    repo.load("m", config(group(2)))
    repo.load("m", config(*groups, **more))
    assert counts() == (made, left)


def test_new_instances_are_told_the_configuration_of_the_first_load(repo: bls.ModelRepository) -> None:
    repo.load("m", config(group(2)))
    repo.load("m", config(group(2), group(1, "KIND_MODEL")))
    assert gates.shared["told"] == [("m_0_0", "CPU", [2]), ("m_0_1", "CPU", [2]), ("m_1_0", "MODEL", [2])]
    repo.load("m", config(group(1), group(1, passive=True)))  # which is handed no request
    assert len({infer(repo, "m") for _ in range(3)}) == 3
    assert repo.model("m").instances == 2


def test_by_the_file_and_by_a_cell(repo: bls.ModelRepository) -> None:
    tensor = '%s { name: "%s" data_type: TYPE_INT32 dims: -1 }\n'
    text = tensor % ("input", "X") + tensor % ("output", "Y")
    groups = "instance_group { kind: KIND_CPU count: %d }"
    file = repo.paths[0] / "m" / "config.pbtxt"
    for count in (1, 2):
        file.write_text(text + groups % count)
        repo.load("m")
    file.write_text(file.read_text() + "\n# only a comment\n")
    repo.load("m")
    assert counts() == (2, 0)
    repo.define("cell", COUNTING, text + groups % 1)
    repo.set_config("cell", text + groups % 3)
    assert counts() == (5, 0)
    repo.reload("cell")
    assert counts() == (8, 3), "to reload is to load again"


def test_a_failing_new_instance_changes_nothing(repo: bls.ModelRepository) -> None:
    repo.load("m", config(group(1)))
    gates.shared["refuse"] = 3
    with pytest.raises(bls.ModelLoadError, match="refused") as caught:
        repo.load("m", config(group(3)))
    assert caught.value.reason.startswith("load failed for model 'm': version 1 is at READY state: Internal: ")
    assert gates.shared["left"] == ["m_0_1"], "the new one that was made is finalized"
    assert (served_by(repo), infer(repo, "m"), repo.config("m").instance_group[0].count) == (["m_0_0"], 1, 1)
    repo.load("m", config(group(3)))
    assert served_by(repo) == ["m_0_0", "m_0_1", "m_0_2"]


@pytest.mark.parametrize("more", SCHEDULERS.values(), ids=SCHEDULERS)
def test_one_that_runs_leaves_when_it_is_done(repo: bls.ModelRepository, more: dict[str, Any]) -> None:
    shape = (1, 1) if more else (1,)
    repo.load("m", config(group(2), **more))
    callers = [Caller(lambda n=n: value(repo.infer("m", {"X": np.full(shape, n, np.int32)}))) for n in (1, 2)]
    for n in (1, 2):
        gates.pass_gate(f"in {n}")
    loading = Caller(repo.load, "m", config(group(1), **more))
    until(lambda: len(served_by(repo)) == 1)
    assert counts() == (2, 0), "both still run"
    if "sequence" not in str(more):  # as on a server
        assert not loading.done
    gates.open_gate("out 1")
    gates.open_gate("out 2")
    assert [c.result() for c in callers] == [1, 1]
    loading.result()
    until(lambda: counts() == (2, 1))
    assert value(repo.infer("m", {"X": np.zeros(shape, np.int32)})) == 2
    assert_all_idle(repo)


@pytest.mark.parametrize("more", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_new_instance_takes_what_is_queued(repo: bls.ModelRepository, more: dict[str, Any]) -> None:
    shape = (1, 1) if more else (1,)
    repo.load("m", config(group(1), **more))
    first = Caller(lambda: value(repo.infer("m", {"X": np.full(shape, 1, np.int32)})))
    gates.pass_gate("in 1")
    second = Caller(lambda: value(repo.infer("m", {"X": np.zeros(shape, np.int32)})))
    until(lambda: host_of(repo).ready("m").scheduler.pending == 1)
    repo.load("m", config(group(2), **more))
    assert second.result() == 1
    gates.open_gate("out 1")
    assert first.result() == 1
    assert_all_idle(repo)


@pytest.mark.parametrize("more", SCHEDULERS.values(), ids=SCHEDULERS)
def test_passive_instances_alone_serve_nobody(repo: bls.ModelRepository, more: dict[str, Any]) -> None:
    shape = (1, 1) if more else (1,)
    repo.load("m", config(group(1), **more))
    caller = Caller(lambda: repo.infer("m", {"X": np.ones(shape, np.int32)}))
    gates.pass_gate("in 1")
    loading = Caller(repo.load, "m", config(group(2, passive=True), **more))
    until(lambda: not served_by(repo))
    gates.open_gate("out 1")
    loading.result()
    assert caller.result().error is None  # by the instance that serves no more
    for _ in range(2):
        response = repo.infer("m", {"X": np.ones(shape, np.int32)})
        assert "every instance of model 'm' is passive" in message(response)
    repo.load("m", config(group(1), **more))
    assert repo.infer("m", {"X": np.zeros(shape, np.int32)}).error is None


def test_unloading_waits_for_those_that_leave(repo: bls.ModelRepository) -> None:
    repo.load("m", config(group(2)))
    caller = Caller(lambda: value(repo.infer("m", ints(1))))
    gates.pass_gate("in 1")
    loading = Caller(repo.load, "m", config(group(1, host_policy="another")))
    until(lambda: counts() == (3, 1))
    unloading = Caller(repo.unload, "m")
    gates.open_gate("out 1")
    unloading.result()
    loading.result()
    assert (counts(), caller.result()) == ((3, 3), 1)


def test_a_sequence_stays_on_its_instance_until_it_ends(repo: bls.ModelRepository) -> None:
    control = [{"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}]}]
    more: dict[str, Any] = {"max_batch_size": 1, "sequence_batching": {"control_input": control}}

    def step(sequence: int, flags: int = 0) -> int:
        inputs = {"X": np.zeros((1, 1), np.int32)}
        return value(repo.infer("m", inputs, correlation_id=sequence, flags=flags))

    repo.load("m", config(group(2), **more))
    assert (step(1, 1), step(2, 1)) == (1, 1)
    repo.load("m", config(group(1), **more))
    assert (step(1), step(2), counts(), step(1, 2), step(2, 2)) == (2, 2, (2, 0), 3, 3)
    until(lambda: counts() == (2, 1))
    assert step(3, 1) == 4, "one instance is left"
    waiting = Caller(lambda: step(4, 1))
    until(lambda: host_of(repo).ready("m").scheduler.pending == 1)
    repo.load("m", config(group(2), **more))
    assert waiting.result() == 1, "a sequence that waits gets a slot of a new instance"
    assert_all_idle(repo)


def test_a_stream_is_finished_by_the_instance_that_began_it() -> None:
    gates.shared["senders"] = []
    source = COUNTING.replace(
        "self.n += 1\n", "gates.shared['senders'].append(requests[0].get_response_sender())\n        return\n"
    )
    with bls.ModelRepository() as repo:
        more: dict[str, Any] = {"model_transaction_policy": {"decoupled": True}}
        repo.define("m", source, json_config := config(group(1), **more))
        stream = Caller(lambda: list(repo.stream("m", ints(0))))
        until(lambda: gates.shared["senders"])
        repo.set_config("m", {**json_config, "instance_group": [group(1, host_policy="another")]})
        assert counts() == (2, 0)
        [sender] = gates.shared["senders"]
        sender.send(flags=1)
        stream.result()
        until(lambda: counts() == (2, 1))
