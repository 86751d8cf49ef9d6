"""The response cache: hits and misses, what makes requests equal, and that entries stay untouched."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.core.response_cache import CacheEntry, ResponseCache
from bls_notebook.extending import host_of
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor
from tests.checking.conftest import write
from tests.engine import gates
from tests.engine.ensembles import chain
from tests.engine.harness import Caller, infer, ints, message, until, value
from tests.engine.sources import GATED, model, pbtxt

COUNTS = model("""
def initialize(self, args):
    self.calls = 0

def execute(self, requests):
    out = []
    for r in requests:
        self.calls += 1
        if number(r) < 0:
            out.append(pb.InferenceResponse([], pb.TritonError("negative")))
        else:
            tensors = [pb.Tensor(n, np.array([self.calls], np.int32)) for n in "YZ"]
            out.append(pb.InferenceResponse(tensors))
    return out
""")
CACHED = pbtxt(outputs="Y:INT32 Z:INT32") + "\nresponse_cache { enable: true }"


@pytest.fixture
def cached(repo: bls.ModelRepository) -> bls.ModelRepository:
    repo.define("c", COUNTS, CACHED)
    return repo


def stats(repo: bls.ModelRepository, name: str = "c") -> dict[str, Any]:
    return repo.statistics(name)["model_stats"][0]["inference_stats"]  # type: ignore[no-any-return]


def test_equal_requests_are_answered_once(cached: bls.ModelRepository) -> None:
    assert [infer(cached, "c", x) for x in (1, 1, 2, 1, 2)] == [1, 1, 2, 1, 2]
    found = stats(cached)
    assert (found["cache_hit"]["count"], found["cache_miss"]["count"]) == (3, 2)
    assert (found["success"]["count"], found["compute_infer"]["count"]) == (5, 2)
    assert cached.statistics("c")["model_stats"][0]["inference_count"] == 2


def test_async_and_streamed_requests_share_it(cached: bls.ModelRepository) -> None:
    asyncio.run(cached.infer_async("c", ints(1)))
    assert infer(cached, "c", 1) == 1
    assert [r["Y"].as_numpy()[0] for r in cached.stream("c", ints(1))] == [1]
    assert asyncio.run(cached.infer_async("c", ints(1)))["Y"].as_numpy()[0] == 1
    assert stats(cached)["cache_hit"]["count"] == 3
    cached.unload("c")  # every request is accounted for, or this would wait forever


def test_writing_to_a_cached_response_changes_no_other(cached: bls.ModelRepository) -> None:
    for _ in range(2):
        array = cached.infer("c", ints(1))["Y"].as_numpy()
        assert array[0] == 1
        array[0] = 99


def test_an_error_is_kept_as_a_response_without_outputs(cached: bls.ModelRepository) -> None:
    assert message(cached.infer("c", ints(-1))) == "negative"
    again = cached.infer("c", ints(-1))
    assert (again.error, list(again)) == (None, [])
    (warning,) = again.warnings
    assert "without outputs and without an error, because the first equal request failed (negative)" in warning
    found = stats(cached)
    assert (found["cache_miss"]["count"], found["cache_hit"]["count"]) == (1, 1)
    cached.define("e", "", chain("c") + "\nresponse_cache { enable: true }")  # an ensemble's own errors are not kept
    cached.define("c", COUNTS, CACHED.replace("true", "false"))
    assert [message(cached.infer("e", ints(-1))) for _ in range(2)] == ["in ensemble 'e', negative"] * 2


def test_an_error_of_the_queue_is_not_kept(repo: bls.ModelRepository) -> None:
    queue = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
    repo.define("c", GATED, f"{pbtxt()}\nresponse_cache {{ enable: true }} {queue}")
    callers = [Caller(infer, repo, "c", 1)]
    gates.pass_gate("begun")
    callers.append(Caller(infer, repo, "c", 2))
    until(lambda: host_of(repo).ready("c").scheduler.pending == 1)
    assert "Exceeds maximum queue size" in message(repo.infer("c", ints(3)))
    gates.open_gate("go on")
    assert [caller.result() for caller in callers] == [1, 2]
    assert infer(repo, "c", 3) == 3


def test_requested_outputs_and_shapes_are_not_compared(cached: bls.ModelRepository) -> None:
    infer(cached, "c", 1)
    fewer = cached.infer("c", ints(1), outputs=["Z"])
    assert list(fewer) == ["Y", "Z"]
    assert "with the outputs of the first equal request (Y, Z)" in fewer.warnings[0]
    assert list(cached.infer("c", ints(2), outputs=["Z"])) == ["Z"]
    assert list(cached.infer("c", ints(2))) == ["Z"]
    config = CACHED.replace("-1", "-1, -1", 1)
    cached.define("rows", COUNTS.replace("number(r)", "r.inputs()[0].as_numpy().sum()"), config)
    first, second = (cached.infer("rows", {"X": np.ones(shape, np.int32)}) for shape in ((1, 2), (2, 1)))
    assert (value(first), value(second), first.warnings) == (1, 1, ())
    assert "with the response to another request, with X [1, 2]" in second.warnings[0]


def test_responses_outlast_the_load_that_made_them(tmp_path: Path) -> None:
    write(tmp_path, {"c/config.pbtxt": CACHED, "c/1/model.py": COUNTS})
    with bls.ModelRepository(tmp_path) as repo:
        repo.load("c")
        assert infer(repo, "c", 1) == 1
        for leave in (lambda: None, lambda: repo.unload("c")):
            leave()
            (tmp_path / "c" / "1" / "model.py").write_text(COUNTS.replace("self.calls = 0", "self.calls = 10"))
            repo.load("c")
            response = repo.infer("c", ints(1))
            assert value(response) == 1
            assert "a response from before the model was loaded again" in response.warnings[0]
        assert infer(repo, "c", 2) == 11


def test_a_new_definition_starts_afresh(cached: bls.ModelRepository) -> None:
    infer(cached, "c", 1)
    cached.define("c", COUNTS.replace("self.calls = 0", "self.calls = 10"), CACHED)
    assert infer(cached, "c", 1) == 11


def test_the_response_cache_can_be_left_out() -> None:
    with bls.ModelRepository(cache_bytes=0) as repo:
        repo.define("c", COUNTS, CACHED)
        assert [infer(repo, "c", 1) for _ in range(2)] == [1, 2]


def test_members_of_an_ensemble_and_ensembles_use_it(cached: bls.ModelRepository) -> None:
    cached.define("inner", "", chain("c"))
    assert [infer(cached, "inner", 1) for _ in range(2)] == [1, 1]
    cached.define("outer", "", chain("c") + "\nresponse_cache { enable: true }")
    assert [infer(cached, "outer", 1) for _ in range(2)] == [1, 1]
    assert stats(cached, "outer")["cache_hit"]["count"] == 1


def request(**arrays: np.ndarray[Any, Any]) -> InferenceRequest:
    return InferenceRequest("", 0, [Tensor(n, a) for n, a in arrays.items()], [], "m")


def answer_of(size: int) -> InferenceResponse:
    return InferenceResponse([Tensor("Y", np.zeros(size, np.uint8))])


def test_cache_keys_of_equal_requests() -> None:
    def key(**arrays: np.ndarray[Any, Any]) -> Any:
        return ResponseCache.key(1, request(**arrays))[0]

    a, b = np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)
    text = np.array([b"ab", b"c"], np.object_)
    assert key(A=a, B=b) == key(B=b, A=a)
    assert key(A=a) == key(A=a.reshape(2, 2))
    different = [
        key(A=a), key(B=a), key(A=a + 1), key(A=text), key(A=np.array([b"a", b"bc"], np.object_)), key(),
        ResponseCache.key(2, request(A=a))[0],
    ]  # fmt: skip
    assert len(set(different)) == len(different)


def test_the_least_recently_used_goes_first() -> None:
    cache = ResponseCache(200)
    keys = [ResponseCache.key(1, request(A=np.array([n])))[0] for n in range(4)]

    def insert(number: int, size: int) -> bool:
        return cache.insert(keys[number], CacheEntry(answer_of(size), (), 1, ""))

    assert insert(0, 40)
    assert insert(1, 40)
    assert cache.lookup(keys[0]) is not None
    assert insert(2, 40)
    assert [cache.lookup(k) is not None for k in keys[:3]] == [True, False, True]
    counts = cache.counts()
    assert (counts.entries, counts.evictions, counts.hits, counts.misses) == (2, 1, 3, 1)
    assert insert(3, 201)  # larger than the cache: what is there stays
    assert not insert(0, 10)  # the first response with a key stays
    assert cache.counts().bytes == counts.bytes == 2 * CacheEntry(answer_of(40), (), 1, "").bytes
    cache.forget(1)
    assert cache.counts().bytes == cache.counts().entries == 0
