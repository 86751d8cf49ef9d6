"""Stubs: shapes, values and the mark of their answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.repository.substitution.made_up_responses import Declared, Stub, output_dims
from tests.engine.harness import message

Repository = bls.ModelRepository


def stubbed(repo: Repository, root: Path, config: str, **how: Any) -> None:
    """Serve a model by a stub."""
    name = config.split('"')[1]
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config, encoding="utf-8")
    source = repo._source(name)
    repo._serve(replace(source, stub=Stub("asked for", **how)))


@pytest.fixture
def repo(tmp_path: Path) -> Any:
    with bls.ModelRepository(tmp_path) as repository:
        yield repository


@pytest.mark.parametrize(
    ("dims", "inputs", "expected"),
    [
        ((3, 4), [((-1,), (7,))], (3, 4)),
        ((-1,), [], (1,)),
        ((-1, 768), [((-1,), (12,))], (12, 768)),
        ((-1, -1), [((3, -1, -1), (3, 5, 6))], (5, 6)),
        ((3, -1, -1), [((3, -1, -1), (3, 5, 6))], (3, 5, 6)),
        ((-1, 3), [((1,), (1,)), ((-1,), (9,))], (9, 3)),  # the only one with a size that varies
        ((-1, -1, -1), [((-1,), (9,))], (9, 8, 8)),
        ((-1, -1, -1), [((3, 640), (3, 640))], (1, 8, 8)),
        ((-1,), [((4, 4), (4, 4))], (1,)),
        ((37, -1), [((3, 64, 64), (3, 64, 64))], (37, 8)),
        ((-1, -1, 768), [((-1, 77), (2, 77))], (2, 77, 768)),
        ((-1, -1), [((-1, 4), (2, 4)), ((-1,), (9,))], (2, 9)),
    ],
)
def test_sizes_that_vary_are_those_of_the_request(dims: Any, inputs: Any, expected: Any) -> None:
    given = [(Declared(f"IN{i}", "FP32", of), sizes) for i, (of, sizes) in enumerate(inputs)]
    assert output_dims(Declared("OUT", "FP32", dims), given) == expected
    same = [(Declared("IDS", "INT64", (-1,)), (3,)), (Declared("MASK", "INT64", (-1,)), (9,))]
    assert output_dims(Declared("MASK", "INT64", (-1,)), same) == (9,)  # an input of the same name counts most


ALL = """name: "all" platform: "tensorrt_plan" max_batch_size: 8
input [
  { name: "IN" data_type: TYPE_FP32 dims: [-1] }, { name: "ON" data_type: TYPE_BOOL dims: [1] optional: true }
]
output [
  { name: "F" data_type: TYPE_FP16 dims: [-1, 2] }, { name: "I" data_type: TYPE_UINT8 dims: [3] },
  { name: "T" data_type: TYPE_STRING dims: [1] }, { name: "B" data_type: TYPE_BF16 dims: [2] },
  { name: "S" data_type: TYPE_FP32 dims: [1] reshape { shape: [] } }
]
instance_group [{ kind: KIND_CPU count: 2 }] dynamic_batching { }
"""


def test_outputs_are_as_configured_and_follow_the_batch(repo: Repository, tmp_path: Path) -> None:
    stubbed(repo, tmp_path, ALL, seconds=0.02)
    repo.strict = True
    began = perf_counter()
    answer = repo.infer("all", {"IN": np.ones((4, 5), np.float32)})
    assert perf_counter() - began >= 0.02
    assert answer.error is None
    assert (answer.stubs, [w for w in answer.warnings if "stub" not in w]) == (("all",), [])
    assert {n: tuple(answer[n].shape()) for n in answer} == {
        "F": (4, 5, 2), "I": (4, 3), "T": (4, 1), "B": (4, 2), "S": (4, 1),
    }  # fmt: skip
    arrays = answer.as_numpy()
    assert not arrays["F"].any()
    assert arrays["T"][0, 0] == b"text of the stub of all"
    assert list(repo.infer("all", {"IN": np.ones((1, 5), np.float32)}, outputs=["I"])) == ["I"]
    assert (repo.model("all").stub, repo.model("all").backend) == ("asked for", "tensorrt")


def test_random_values_depend_on_request_and_seed_and_recorded_ones_on_neither(
    repo: Repository, tmp_path: Path
) -> None:
    stubbed(repo, tmp_path, ALL, values="random", seed=3)
    rows = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
    stubbed(repo, tmp_path, ALL.replace('"all"', '"kept"'), recorded={"I": rows})
    answer = repo.infer("kept", {"IN": np.ones((3, 5), np.float32)})
    assert answer["I"].as_numpy().tolist() == [[1, 2, 3], [4, 5, 6], [1, 2, 3]]  # recorded ones follow the batch
    ones, twos = (np.full((1, 5), value, np.float32) for value in (1, 2))

    def values(given: Any) -> Any:
        return repo.infer("all", {"IN": given}).as_numpy()

    first: Mapping[str, Any] = values(ones)
    assert all((first[name] == again).all() for name, again in values(ones).items())
    assert (first["F"] != values(twos)["F"]).any()
    assert first["F"].any()


def test_an_impossible_shape_is_one_clear_line(repo: Repository, tmp_path: Path) -> None:
    config = 'name: "huge" backend: "x" output [{ name: "OUT" data_type: TYPE_FP32 dims: [100000, 100000] }]'
    stubbed(repo, tmp_path, config)
    error = message(repo.infer("huge", {}))
    assert re.search(
        r"stub of 'huge', output 'OUT': FP32\[100000, 100000\] would need 37.3 GiB.*expected at most 2", error
    )


def test_decoupled_ones_stream(repo: Repository, tmp_path: Path) -> None:
    config = """name: "talks" backend: "vllm" model_transaction_policy { decoupled: true }
    input [{ name: "IN" data_type: TYPE_STRING dims: [1] }]
    output [{ name: "OUT" data_type: TYPE_STRING dims: [1] }]"""
    stubbed(repo, tmp_path, config)
    answers = list(repo.stream("talks", {"IN": "a"}))
    assert [answer.final for answer in answers] == [False, False, True]
    assert all(answer.stubs == ("talks",) and "OUT" in answer for answer in answers)


def test_sequences_are_answered_with_their_controls(repo: Repository, tmp_path: Path) -> None:
    config = """name: "turns" backend: "x" max_batch_size: 2
    input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }]
    output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }]
    sequence_batching { control_input [{ name: "START"
      control [{ kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }] }] }"""
    stubbed(repo, tmp_path, config)
    answer = repo.infer("turns", {"IN": [[1.0]]}, correlation_id=7, flags=1)
    assert answer.error is None
    assert answer["OUT"].as_numpy().tolist() == [[0.0]]
