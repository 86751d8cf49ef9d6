"""What the tests of the sample models share: the digits, and the models that cells of the course define."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.magics.magic import parser_of
from bls_notebook.magics.tritonmodel import config_of
from bls_notebook.testing import RepositoryUnderTest
from tests.testing.conftest import complete_owner_search  # noqa: F401 - a fixture

COURSE = Path(__file__).parents[2] / "notebooks"
Define = Callable[..., None]


@pytest.fixture(scope="session")
def digits() -> Any:
    """scikit-learn's: `images` (8 x 8, 0 to 16), `target`, and `features` (64, 0 to 1)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    found.features = (found.data / found.data.max(axis=1, keepdims=True)).astype(np.float32)
    return found


@pytest.fixture
def simulated_gpu(triton_repository: RepositoryUnderTest) -> Iterator[None]:
    bls.simulate_gpus(1, even_with_cuda=True)
    yield
    triton_repository.close()
    bls.simulate_gpus(0)


@pytest.fixture
def from_notebook(triton_repository: RepositoryUnderTest) -> Define:
    """Define models as the last cell of a notebook that does leaves them, or the `nth` of such cells."""

    def define(notebook: str, model: str, nth: int = -1) -> None:
        with (COURSE / notebook).open(encoding="utf-8") as file:
            cells = ["".join(cell["source"]) for cell in json.load(file)["cells"]]
        cell = [c for c in cells if c.startswith(f"%%tritonmodel {model}")][nth]
        line, _, source = cell.partition("\n")
        options = parser_of("%%tritonmodel")[0].parse(line.removeprefix("%%tritonmodel "), {})
        triton_repository.define(model, source, config_of(options, {}))

    return define
