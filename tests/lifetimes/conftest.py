"""The repository and the watchdog of the engine's tests, for the tests of memory recordings."""

from tests.engine.conftest import pytest_runtest_call, pytest_runtest_teardown, repo  # noqa: F401 - fixtures and hooks
from tests.magics.conftest import cells, complete, sender, shell  # noqa: F401 - fixtures
from tests.testing.conftest import complete_owner_search  # noqa: F401 - a fixture
