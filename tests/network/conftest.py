"""Fixtures of the magics' shell, and the environment of the real tritonserver."""

from contextlib import suppress

import pytest

from tests.magics.conftest import cells, complete, shell  # noqa: F401 - fixtures

with suppress(ImportError):  # the test of removed capabilities
    from tests.shipping.conftest import real_environment  # noqa: F401 - a fixture


@pytest.fixture
def service():
    return pytest.importorskip("tests.network.servers").Service()
