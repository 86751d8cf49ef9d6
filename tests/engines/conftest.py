"""An empty repository for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import bls_notebook as bls


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        yield repository
