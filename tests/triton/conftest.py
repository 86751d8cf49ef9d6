"""The environment of the real tritonserver, for tests marked `triton`."""

from __future__ import annotations

import os

import pytest

from bls_notebook.triton.tritonserver import ServerEnvironment, TritonServerError, make_environment


@pytest.fixture(scope="session")
def real_environment() -> ServerEnvironment:
    """Made when first asked for; tests are skipped where it cannot be installed."""
    try:
        return make_environment()
    except TritonServerError as error:
        if "BLS_NOTEBOOK_TRITON_ENV" in os.environ:  # somebody counts on it
            raise
        pytest.skip(str(error))
