"""The response cache: hits and misses, what makes requests equal, and that entries stay untouched."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.core.response_cache import ResponseCache
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor
from tests.engine.ensembles import chain
from tests.engine.harness import infer, ints
from tests.engine.sources import model, pbtxt

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


def test_errors_are_not_kept(cached: bls.ModelRepository) -> None:
    assert cached.infer("c", ints(-1)).error is not None
    assert cached.infer("c", ints(-1)).error is not None
    assert stats(cached)["cache_miss"]["count"] == 0


def test_outputs_that_were_not_asked_for_are_withheld(cached: bls.ModelRepository) -> None:
    infer(cached, "c", 1)
    fewer = cached.infer("c", ints(1), outputs=["Z"])
    assert list(fewer) == ["Z"]
    assert stats(cached)["cache_hit"]["count"] == 1
    cached.infer("c", ints(2), outputs=["Z"])
    assert list(cached.infer("c", ints(2))) == ["Y", "Z"]  # an answer without Y does not serve here
    assert stats(cached)["cache_hit"]["count"] == 1


def test_a_new_definition_starts_afresh(cached: bls.ModelRepository) -> None:
    infer(cached, "c", 1)
    cached.define("c", COUNTS.replace("self.calls = 0", "self.calls = 10"), CACHED)
    assert infer(cached, "c", 1) == 11
    assert cached._server.cache.counts().entries == 1


def test_it_can_be_left_out() -> None:
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
        return ResponseCache.key(1, request(**arrays))

    a, b = np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)
    text = np.array([b"ab", b"c"], np.object_)
    assert key(A=a, B=b) == key(B=b, A=a)
    different = [
        key(A=a), key(B=a), key(A=a.reshape(2, 2)), key(A=a.view(np.uint32)), key(A=a + 1),
        key(A=text), key(A=np.array([b"a", b"bc"], np.object_)), key(), ResponseCache.key(2, request(A=a)),
    ]  # fmt: skip
    assert len(set(different)) == len(different)


def test_the_least_recently_used_goes_first() -> None:
    cache = ResponseCache(100)
    keys = [ResponseCache.key(1, request(A=np.array([n]))) for n in range(3)]
    cache.insert(keys[0], ("Y",), answer_of(40))
    cache.insert(keys[1], ("Y",), answer_of(40))
    assert cache.lookup(keys[0], ("Y",)) is not None
    cache.insert(keys[2], ("Y",), answer_of(40))
    assert [cache.lookup(k, ("Y",)) is not None for k in keys] == [True, False, True]
    counts = cache.counts()
    assert (counts.entries, counts.bytes, counts.evictions, counts.hits, counts.misses) == (2, 80, 1, 3, 1)
    cache.insert(keys[0], ("Y",), answer_of(101))  # larger than the cache: what is there stays
    assert cache.counts().bytes == 80
    cache.insert(keys[0], ("Y",), answer_of(10))
    assert cache.counts().bytes == 50
    cache.forget(1)
    assert cache.counts().bytes == cache.counts().entries == 0
