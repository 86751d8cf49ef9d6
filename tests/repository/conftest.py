"""Repositories for the tests: one in memory, and one of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import bls_notebook as bls


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        yield repository


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[bls.ModelRepository]:
    """A repository of `disk.paths[0]`, empty at first."""
    folder = tmp_path / "models"
    folder.mkdir()
    with bls.ModelRepository(folder) as repository:
        yield repository
