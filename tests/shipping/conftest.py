"""The shell of the magics, for the tests of the magics here."""

from tests.magics.conftest import cells, complete, shell  # noqa: F401 - fixtures
