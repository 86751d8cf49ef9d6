"""Calls sent together gain on a real server, as `bls.overlap` predicts here.

A wait is never shorter than its time, so one run together that is shorter than any run in order can be proves the gain,
however busy the machine is: the test runs until there is one.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

import bls_notebook as bls
from tests.conformance.sides import Sides

pytestmark = [pytest.mark.triton, pytest.mark.extra]

REST, PATIENCE = 0.04, 60.0  # seconds: the wait of a callee, at least; until a run was not disturbed


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
    assert (here.outcome, "`FAMILIES` (line" in here.sentence) == ("unknown", True)  # which requests of `script` share
    assert real("in_order") > calls * REST
    until = time.monotonic() + PATIENCE
    while (took := real("together")) >= calls * REST:
        assert time.monotonic() < until, f"{took} s, expected less than {calls * REST} s"
