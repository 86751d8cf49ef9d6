from __future__ import annotations

from tests.magics.conftest import cells, complete, folder, shell  # noqa: F401 - fixtures
