"""What has to hold after anything was interrupted."""

from __future__ import annotations

import bls_notebook as bls
from tests.engine.harness import assert_all_idle, infer


def assert_usable(repo: bls.ModelRepository, *names: str) -> None:
    assert_all_idle(repo)
    for name in names:
        assert infer(repo, name) in (0, 1)
    assert_all_idle(repo)
