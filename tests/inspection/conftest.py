"""An empty repository, and simulated GPUs for the inspector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import bls_notebook as bls
from tests.magics.conftest import cells, complete, shell  # noqa: F401 - fixtures
from tests.repository.conftest import repo  # noqa: F401 - a fixture


@pytest.fixture
def simulated_gpu() -> Iterator[Any]:
    """Two simulated GPUs; returns the module that replaces CuPy."""
    bls.simulate_gpus(2, even_with_cuda=True)
    yield bls.cupy()
    bls.simulate_gpus(0)
