"""Models of a real server, called from here: the same answers as a client of the server gets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.conformance.sides import Sides
from tests.conformance.test_live_models import REQUESTS

pytestmark = pytest.mark.triton
I32 = np.int32
NOT_THERE = {"unknown model", "unknown version", "version left out"}  # refused before anything is sent


@pytest.fixture(scope="module", params=["grpc", "http"])
def far(sides: Sides, request: pytest.FixtureRequest) -> Iterator[Sides]:
    """A repository whose models are all the server's, and the server."""
    sides.on_real(sides.real.index)  # starts the server again if an earlier test ended it
    port = sides.real.grpc_port if request.param == "grpc" else sides.real.http_port
    with bls.ModelRepository() as repo:
        bls.connect(f"{request.param}://127.0.0.1:{port}", repo=repo)
        yield Sides(repo, sides.real)


@pytest.fixture(scope="module")
def streaming(sides: Sides) -> Iterator[bls.ModelRepository]:
    sides.on_real(sides.real.index)
    with bls.ModelRepository() as repo:
        bls.connect(f"grpc://127.0.0.1:{sides.real.grpc_port}", "streams", "identity", repo=repo)
        yield repo


def test_every_kind_of_request(far: Sides) -> None:
    wrong = []
    for case, (model, inputs, more) in REQUESTS.items():
        if case not in NOT_THERE:
            try:
                far.same(model, inputs, **more)
            except AssertionError as error:
                wrong.append(f"{case}: {error}")
    assert not wrong


def test_a_profile_tells_the_server_from_the_network(far: Sides) -> None:
    inputs = {"INPUT0": np.ones(4, np.float32), "INPUT1": np.ones(4, np.float32)}
    count = far.here.statistics("add_sub")["model_stats"][0]["inference_stats"]["success"]["count"]
    with bls.profile() as session:
        for _ in range(3):
            far.here.infer("add_sub", inputs)
    spans = session.record.spans
    assert all(0 < span.device_ns <= span.inferred - span.started for span in spans)
    assert "network and protocol (means, by the server's statistics)" in session.record.notes[0]
    stats = far.here.statistics("add_sub")["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] == count + 3
    assert far.here.statistics_records("add_sub")[0].success.count == count + 3


@pytest.mark.parametrize("values", [[], [1.0, -2.5, float("inf"), -0.0]])
def test_bfloat16(far: Sides, values: list[float]) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    far.same("bfloat", {"IN": np.array(values, ml_dtypes.bfloat16)})


def test_sequences_keep_their_order(far: Sides) -> None:
    """Sent all at once, each sequence is served in the order in which it was sent."""

    async def all_at_once() -> list[bls.Response]:
        steps = [(i, 41, 1 if i == 1 else 2 if i == 9 else 0) for i in range(1, 10)]
        steps += [(10 * i, 42, 1 if i == 1 else 2 if i == 9 else 0) for i in range(1, 10)]
        return await asyncio.gather(
            *(
                far.here.infer_async("sums_direct", {"IN": np.array([[n]], I32)}, correlation_id=key, flags=flags)
                for n, key, flags in steps
            )
        )

    answers = asyncio.run(all_at_once())
    sums = [answer["SUM"].as_numpy().item() for answer in answers]
    ones = [n * (n + 1) // 2 for n in range(1, 10)]
    assert sums == ones + [10 * n for n in ones]


def said(responses: Any) -> list[str]:
    return [
        r.error.message() if r.error is not None else "".join(r["TEXT"].as_numpy()[0].decode() if len(r) else "")
        for r in responses
    ]


@pytest.mark.parametrize(
    ("sends", "wanted"),
    [
        (["a", "bc", "final"], ["a", "bc"]),
        (["a", "b!"], ["a", "b!"]),
        (["final"], [""]),
        (["a", "error:no luck", "final"], ["a", "no luck"]),
        (["error:at once!"], ["at once!"]),
    ],
)
def test_streams(sides: Sides, streaming: bls.ModelRepository, sends: list[str], wanted: list[str]) -> None:
    responses = list(streaming.stream("streams", {"SENDS": sends}))
    assert said(responses) == wanted == said(sides.here.stream("streams", {"SENDS": sends}))
    assert responses[-1].final

    async def there() -> list[bls.Response]:
        return [r async for r in streaming.stream_async("streams", {"SENDS": sends})]

    assert said(asyncio.run(there())) == wanted


def test_leaving_a_stream_early(streaming: bls.ModelRepository) -> None:
    for response in streaming.stream("streams", {"SENDS": ["x"] * 2000 + ["final"]}):
        assert said([response]) == ["x"]
        break
    assert said(streaming.stream("streams", {"SENDS": ["y!"]})) == ["y!"]


def test_a_stream_over_http_is_refused_clearly(sides: Sides) -> None:
    sides.on_real(sides.real.index)
    with bls.ModelRepository() as repo:
        bls.connect(f"http://127.0.0.1:{sides.real.http_port}", "streams", repo=repo)
        (response,) = repo.stream("streams", {"SENDS": ["a!"]})
        assert response.error is not None
        assert "connect to the server's gRPC port" in response.error.message()
