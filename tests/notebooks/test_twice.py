"""A notebook of the course shows the same when all of its cells are run again in the same kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.notebooks.twice import ROOT, differences


@pytest.mark.extra
@pytest.mark.slow
def test_the_quickstart_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("sklearn")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    assert differences(ROOT / "notebooks" / "00_quickstart.ipynb") == []
