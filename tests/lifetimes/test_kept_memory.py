"""Memory that models keep outside of tensors, in recordings, assertions and drills."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.testing.claim_checks import left_nothing

IO = """
input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ -1 ] } ]
"""
SOURCE = """\
import functools
import numpy as np
import triton_python_backend_utils as pb
CACHE = {}
tool = lambda: 0
tool.kept = []
class Cache: kept = []
@functools.lru_cache(None)
def big(value):
    return np.full(5000, value)

class TritonPythonModel:
    class Inner: kept = []
    def initialize(self, args):
        self.history = []
        self.weights = np.ones(100_000)

    def execute(self, requests, seen=[]):
        return [self.answer(request, seen) for request in requests]

    def answer(self, request, seen):
        x = pb.get_input_tensor_by_name(request, "X").as_numpy()
        %s
        return pb.InferenceResponse([pb.Tensor("Y", x[:2] + 1)])
"""


def kept(body: str, requests: int = 3, isolation: str = "kernel") -> Lifetimes:
    with bls.ModelRepository() as repo:
        repo.define("m", SOURCE % body, IO, isolation=isolation)
        repo.infer("m", {"X": np.zeros(5000, np.float32)})
        with bls.track_memory() as track:
            for value in range(1, requests + 1):
                assert repo.infer("m", {"X": np.full(5000, value, np.float32)}).error is None
    return track.record


@pytest.mark.parametrize(
    ("body", "owner", "least"),
    [
        ("self.history.append(x * 2)", "m.history", 60_000),
        ("self.history += [x.tobytes()]", "m.history", 60_000),
        ("CACHE[float(x[0])] = x * 2", "m/model.py: CACHE", 60_000),
        ("CACHE.setdefault('all', []).append([0.0] * 2000)", "m/model.py: CACHE", 48_000),
        ("seen.append(bytes(20_000))", "m.execute", 60_000),
        ("big(float(x[0]))", "m/model.py: big", 120_000),
        ("self.history.append((x * 2).sum)", "m.history", 60_000),
        ("self.history.append((x * 2).flat)", "m.history", 60_000),
        ("self.history.append(map(slice, x * 2))", "m.history", 60_000),
        ("self.history.append(list(range(1000, 3000)))", "m.history", 3 * 2000 * (8 + 24)),
        ("self.history.extend({} for _ in range(500))", "m.history", 3 * 500 * 64),
        ("self.Inner.kept.append(x * 2)", "m.Inner.kept", 60_000),
        ("Cache.kept.append(x * 2)", "m/model.py: Cache.kept", 60_000),
        ("tool.kept.append(x * 2)", "m/model.py: tool.kept", 60_000),
    ],
)
def test_growth_names_its_owner_and_the_line_that_adds_to_it(body: str, owner: str, least: int) -> None:
    record = kept(body)
    [growth] = record.kept
    assert (growth.model, growth.owner, growth.bytes >= least) == ("m", owner, True)
    if not body.startswith("seen"):  # the line adds to a parameter of another function
        assert [line.line for line in growth.lines] == [9 if "big" in body else 23]
    assert f"that is no tensor: {owner} " in str(record).replace("\n           ", " ")


def test_replaced_and_unchanged_memory_does_not_grow() -> None:
    assert kept("self.last = x * 2").kept == ()
    assert kept("self.last = x").kept == (), "a block of a tensor is left behind, and counted once"


def test_assert_nothing_left_finds_memory_that_is_no_tensor(triton_repository) -> None:
    repo = triton_repository
    repo.define("m", SOURCE % "self.history.append(x * 2)", IO)
    with pytest.raises(AssertionError, match=r"no tensor, held by m\.history"), repo.assert_nothing_left():
        repo.infer("m", {"X": np.zeros(5000, np.float32)})


def test_the_line_of_a_block_allocated_it(tmp_path: Path) -> None:
    views = {
        "self.kept = x\n        return pb.InferenceResponse([pb.Tensor('Y', x[:2])])": 0,
        "return pb.InferenceResponse([pb.Tensor('Y', big(x[0])[:2].view('f4'))])": 10,
        "return pb.InferenceResponse([pb.Tensor('Y', np.asarray(big(x[0])).reshape(-1)[:2])])": 10,
        "y = x * 2\n        return pb.InferenceResponse([pb.Tensor('Y', y[:2])])": 23,
        "y = x\n        y = np.concatenate([y, y])\n        return pb.InferenceResponse([pb.Tensor('Y', y)])": 24,
        "y = x * 2 if x[0] else x * 3\n        return pb.InferenceResponse([pb.Tensor('Y', y)])": 0,
    }
    for body, line in views.items():
        record = kept(body, 1)
        lines = {life.line.line for life in record.lives if life.bytes >= 10_000 and life.maker.model}
        assert lines == {0, line}, body


def test_a_block_of_an_exception_names_the_exception() -> None:
    body = "try:\n            raise ValueError\n        except ValueError as error:\n            self.error = error"
    [life, *_] = kept(body, 1).left_behind()
    assert [holder.name for holder in life.holders] == ["m.error (the traceback of its ValueError)"]


@pytest.mark.slow
def test_torch_tensors_keep_all_memory_below_a_view_and_name_the_owner_of_an_input() -> None:
    pytest.importorskip("torch")
    [growth] = kept("import torch; self.history.append((torch.from_numpy(x) * 2)[:5])").kept
    assert (growth.owner, growth.bytes >= 60_000) == ("m.history", True)
    [growth] = kept(
        "import torch; w = torch.from_numpy(x * 2).requires_grad_(); self.history.append((w * 2).exp().sum())"
    ).kept
    assert (growth.owner, growth.bytes >= 2 * 60_000) == ("m.history", True), "its graph keeps `w` and the exponentials"
    shared = kept("import torch; self.history.append(torch.from_numpy(x))")
    assert shared.kept == (), "the blocks of the inputs are left behind, and counted once"
    assert {holder.name.partition("[")[0] for life in shared.left_behind() for holder in life.holders} == {"m.history"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")
def test_memory_that_a_model_keeps_in_its_process_is_named_and_left_behind() -> None:
    body = "self.history.append(x * 2); CACHE.setdefault(0, request); self.text = str(x[0]) * 9000"
    record = kept(body, isolation="process")
    assert [(each.owner, each.instance, each.lines[0].line) for each in record.kept] == [("m.history", "m_0", 23)]
    assert record.kept[0].bytes >= 60_000
    assert str(record.kept[0].remedy) == "repo.reload('m')"
    assert [(worker.instance, worker.known) for worker in record.workers] == [("m_0", True)]
    assert record.workers[0].bytes > 1 << 20 or sys.platform != "linux"
    with bls.ModelRepository() as repo:
        repo.define("m", SOURCE % "self.last = request", IO, isolation="process")
        with bls.track_memory() as track:
            repo.infer("m", {"X": np.zeros(5000, np.float32)})
    [life] = track.record.left_behind()
    assert [holder.name for holder in life.holders] == ["a request in the process of m_0"]
    assert not left_nothing(track.record).holds
    small = kept("self.history.append(pb.Tensor('Y', x[:1] * 2))", isolation="process")
    assert [(each.owner, each.bytes < 100) for each in small.kept] == [("m.history", True)]
    assert not left_nothing(small).holds
    assert "that is no tensor" not in str(small), "what it keeps is a tensor"
    assert "more in processes: m.history" in str(small)


@pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")
def test_a_tensor_from_a_process_dies_although_the_next_one_reuses_its_file() -> None:
    with bls.ModelRepository() as repo:
        repo.define("m", SOURCE % "return pb.InferenceResponse([pb.Tensor('Y', x * 2)])", IO, isolation="process")
        with bls.track_memory() as track:
            for _ in range(3):
                assert repo.infer("m", {"X": np.zeros(100_000, np.float32)}).error is None
    assert track.record.left_behind() == ()
    assert [life.bytes for life in track.record.lives if (life.tensor, life.maker.model) == ("Y", "m")] == [400_000] * 3


def test_numbers_in_a_list_have_a_size() -> None:
    [growth] = kept("self.history.extend(x.astype(float).tolist())").kept
    assert growth.bytes >= 3 * 5000 * 8 + 3 * 5000 * 24 * 0.9
