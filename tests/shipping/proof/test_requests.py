"""Generated requests of a proof, without a server."""

from __future__ import annotations

import random

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import Host
from bls_notebook.shipping.proof.requests import Case, generate

pytest.importorskip("hypothesis")


def test_generated_requests_reseed_no_generator(samples: bls.ModelRepository) -> None:
    def draw() -> tuple[float, float]:
        return random.random(), float(np.random.rand())

    def check(case: Case) -> None:
        drawn.append(draw())

    random.seed(5)
    np.random.seed(5)
    expected = [draw() for _ in range(11)]
    random.seed(5)
    np.random.seed(5)
    drawn: list[tuple[float, float]] = []
    generate(Host(samples).ready("add_sub").spec, 10, 0, check)
    drawn.append(draw())
    assert drawn == expected[: len(drawn)]
    assert len(drawn) > 5
