"""The repository and the watchdog of the engine's tests, for the tests of profiles."""

from tests.engine.conftest import pytest_runtest_call, pytest_runtest_teardown, repo  # noqa: F401 - fixtures and hooks
from tests.magics.conftest import cells, complete, sender, shell  # noqa: F401 - fixtures
