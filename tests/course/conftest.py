"""The shell of the magics, for the tests of the magics here, and a score of their own."""

from pathlib import Path

import pytest

from tests.magics.conftest import cells, complete, shell  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def no_saved_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
