"""What `%blsprofile` concludes here is so on a real server: the same models, the same requests, both ways.

The models of the first pipeline wait, so that nothing hangs on how fast the machine is, or how busy.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.conformance.sides import Sides

pytestmark = pytest.mark.triton

FOLDER = Path(__file__).parent / "compared"
MODELS = ["waits_short", "waits_long", "waits_in_turn", "asks_both_ways"]
N = 8
RUNS = 5
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


def speedup(seconds: np.ndarray[Any, Any]) -> float:
    one, all_ = np.median(seconds, axis=0)
    return float(one / all_)


def on_real(both: Sides, case: tuple[str, str, dict[str, Any]], runs: int = 3) -> float:
    answer = both.ask_real("asks_both_ways", question(*case, runs))
    assert answer.error is None, answer.error
    return speedup(answer.outputs["SECONDS"])


def test_a_pipeline_gains_as_much_on_the_server_as_the_comparison_says(both: Sides) -> None:
    found = bls.compare("waits_in_turn", WAITS[2], n=N, repeat=3, repo=both.here)
    assert (found.verdict.cause, found.verdict.speedup > 1.5) == ("queue", True), found.verdict.sentence
    real = on_real(both, WAITS)
    assert real > 1.5
    assert found.speedup == pytest.approx(real, rel=0.3)
    # A model that does it by BLS, in the kernel: the same again.
    here = both.ask_here("asks_both_ways", question(*WAITS))
    assert here.error is None, here.error
    assert speedup(here.outputs["SECONDS"]) == pytest.approx(real, rel=0.3)


def test_where_async_brings_nothing_here_it_brings_nothing_there(both: Sides) -> None:
    """The digits: one instance of the reader serves one request after the other, however they are sent."""
    found = bls.compare("digit_reader", DIGITS[2], n=N, repeat=9, repo=both.here)
    assert found.verdict.cause not in ("helped", "partly", "batched"), found.verdict.sentence
    assert found.speedup < 1.5
    assert on_real(both, DIGITS, runs=15) < 1.5


@pytest.mark.parametrize(("pipeline", "factor"), [("pair", 2.0), ("diamond", 1.5)])
def test_calls_together_bring_as_much_there(sides: Sides, pipeline: str, factor: float) -> None:
    """Callees that rest make the factor a matter of the pipeline, whatever else the machine does."""

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
    took = {how: [] for how in ("in_order", "together")}
    for how in RUNS * tuple(took):
        took[how].append(real(how))
    there = median(took["in_order"]) / median(took["together"])
    assert there == pytest.approx(factor, rel=0.3)
    assert here.predicted == pytest.approx(there, rel=0.3)
