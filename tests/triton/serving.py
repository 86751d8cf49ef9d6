"""What tests of serving share: a server on PATH, and a place for temporary folders."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.triton.test_tritonserver import stand_in


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "private"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str = "") -> None:
    bin_folder = stand_in(folder, behaviour).server / "bin"
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
