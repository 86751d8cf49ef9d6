"""Fixtures of the magics' shell, and the environment of the real tritonserver."""

from tests.magics.conftest import cells, complete, shell  # noqa: F401 - fixtures
from tests.shipping.conftest import real_environment  # noqa: F401 - a fixture
