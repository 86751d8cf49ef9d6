from __future__ import annotations

from collections.abc import Callable

import pytest

from bls_notebook.checking.records import Findings
from bls_notebook.checking.shared_memory import pool_bytes
from tests.checking.conftest import CONFIG, model

MIB = 1 << 20


@pytest.mark.parametrize(
    ("tensors", "mebibytes"),
    [
        ([], 1),
        ([64, 64], 1),
        ([800_000, 800_000], 2),
        ([16_000_000, 16_000_000], 33),  # as measured on a server
        ([2_000_000, 2_000_000], 5),
        ([MIB] * 3, 5),
    ],
)
def test_a_pool_grows_by_what_does_not_fit(tensors: list[int], mebibytes: int) -> None:
    assert pool_bytes(tensors) == mebibytes * MIB


def test_shared_memory_of_instances(findings: Callable[..., Findings]) -> None:
    sized = CONFIG.replace("[ -1 ]", "[ 500000 ]")
    files = {**model("big", sized + "max_batch_size: 8\ninstance_group [ { count: 3 } ]"), **model("open")}
    found = findings(files)
    needs = {need.model: need for need in found.memory}
    assert (needs["big"].instances, needs["big"].each, needs["big"].known) == (3, 33 * MIB, True)
    assert ((needs["open"].each, needs["open"].known), found.shm_bytes) == ((MIB, False), 100 * MIB)
    (warning,) = [each for each in found.findings if each.code == "memory-shm"]
    assert (warning.model, warning.line) == ("big", 5)
    assert "--shm-size=1g" in warning.mend
