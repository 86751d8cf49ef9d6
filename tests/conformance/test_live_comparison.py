"""Requests and calls sent together gain on a real server what they gain here, and nothing where they gain nothing.

A wait is never shorter than its time, so one run together that is shorter than any run in order can be proves the gain,
however busy the machine is: a test runs until there is one.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.conformance.sides import Sides

pytestmark = pytest.mark.triton

FOLDER = Path(__file__).parent / "compared"
MODELS = ["waits_short", "waits_long", "waits_in_turn", "asks_both_ways"]
N = 8
REST, PATIENCE = 0.04, 60.0  # seconds: the longer wait of a callee, at least; until a run was not disturbed
IMAGE = np.zeros((40, 30), np.uint8)
IMAGE[5:35, 13:17] = 255
WAITS = ("waits_in_turn", "Y", {"X": np.ones(1, np.float32)})
DIGITS = ("digit_reader", "DIGIT", {"IMAGE": IMAGE})


@pytest.fixture(scope="module")
def both(sides: Sides, models: Path) -> Iterator[Sides]:
    for model in MODELS:
        shutil.copytree(FOLDER / model, models / model)
        if model == "waits_long":
            shutil.copytree(FOLDER / "waits_short" / "1", models / model / "1")
        assert sides.same_load(model) is None
    try:
        yield sides
    finally:
        for model in reversed(MODELS):
            sides.here.unload(model)
            sides.on_real(lambda name=model: sides.real.unload(name))
            shutil.rmtree(models / model)


def question(model: str, output: str, inputs: dict[str, Any], runs: int = 3) -> dict[str, Any]:
    words = {"MODEL": np.array([model], np.object_), "OUTPUT": np.array([output], np.object_)}
    return {**words, "N": np.array([N], np.int32), "RUNS": np.array([runs], np.int32), **inputs}


def shortest_below(limit: float, run: Callable[[], float]) -> None:
    """Run until a run takes less than `limit` (s)."""
    until = time.monotonic() + PATIENCE
    while (took := run()) >= limit:
        assert time.monotonic() < until, f"{took} s, expected less than {limit} s"


@pytest.mark.parametrize("side", ["here", "real", "compare"])
def test_a_pipeline_gains_here_and_on_the_server(both: Sides, side: str) -> None:
    shortest = N * (REST / 2 + REST)  # of requests one after the other

    def together() -> float:
        if side == "compare":
            found = bls.compare("waits_in_turn", WAITS[2], n=N, repeat=1, repo=both.here)
            assert found.sequential.wall > shortest * 1e9
            return found.gathered.wall / 1e9
        answer = (both.ask_here if side == "here" else both.ask_real)("asks_both_ways", question(*WAITS))
        assert answer.error is None, answer.error
        one, all_ = answer.outputs["SECONDS"].min(axis=0)
        assert one > shortest
        return float(all_)

    shortest_below(shortest / 1.5, together)


def test_one_instance_serves_one_request_after_the_other(both: Sides) -> None:
    found = bls.compare("digit_reader", DIGITS[2], n=N, repeat=1, repo=both.here)
    spans = sorted((s for s in found.gathered.spans if s.model == "digit_reader"), key=lambda s: s.started)
    assert len(spans) == N
    assert all(one.inferred <= two.started for one, two in itertools.pairwise(spans))
    answer = both.ask_real("asks_both_ways", question(*DIGITS, 15))
    assert answer.error is None, answer.error
    one, all_ = answer.outputs["SECONDS"].T
    assert (one < 1.5 * all_).any()


@pytest.mark.parametrize(("pipeline", "calls"), [("pair", 2), ("diamond", 3)])
def test_calls_together_are_shorter_there_than_calls_in_order_can_be(sides: Sides, pipeline: str, calls: int) -> None:
    def inputs(how: str) -> dict[str, np.ndarray]:
        return {"DO": np.array([f"_{pipeline}_{how}"], np.object_), "X": np.ones(2, np.float32)}

    def real(how: str) -> float:
        begun = time.perf_counter()
        answer = sides.ask_real("script_async", inputs(how))
        took = time.perf_counter() - begun
        assert answer.as_text() == sides.ask_here("script_async", inputs(how)).as_text()
        return took

    here = bls.overlap("script_async", inputs("in_order"), repo=sides.here)
    assert not here.problem
    assert 1 < here.predicted <= 2
    assert real("in_order") > calls * REST
    shortest_below(calls * REST, lambda: real("together"))
