"""Fixtures of the magics' shell, and the environment of the real tritonserver for tests marked `triton`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.shipping.servers.server_programs import ServerEnvironment, TritonServerError, make_environment
from tests.magics.conftest import cells, complete, shell  # noqa: F401 - fixtures
from tests.shipping.fake_tritonserver import private  # noqa: F401 - a fixture

SAMPLES = Path(__file__).parents[2] / "model_repository"


@pytest.fixture
def samples() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository(SAMPLES) as repo:
        repo.load("add_sub")
        yield repo


@pytest.fixture(scope="session")
def real_environment() -> ServerEnvironment:
    try:
        return make_environment()
    except TritonServerError as error:
        if "BLS_NOTEBOOK_TRITON_ENV" in os.environ:  # the user expects it there
            raise
        pytest.skip(str(error))
