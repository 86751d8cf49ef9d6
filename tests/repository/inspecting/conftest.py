"""A simulated GPU for what the inspector does where arrays lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import bls_notebook as bls


@pytest.fixture
def simulated_gpu() -> Iterator[Any]:
    """What stands in for CuPy, with two GPUs."""
    bls.simulate_gpus(2, even_with_cuda=True)
    yield bls.cupy()
    bls.simulate_gpus(0)
