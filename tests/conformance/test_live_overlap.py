"""What is told of calls sent together holds on a real server: the direction, and about the factor."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import pytest

import bls_notebook as bls
from tests.conformance.sides import Sides

pytestmark = pytest.mark.triton
RUNS = 5


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
