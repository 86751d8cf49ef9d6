"""`rate_limiter` of an instance group: without effect, as on a server without `--rate-limit`."""

from __future__ import annotations

import threading

import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.harness import Caller, infer
from tests.engine.sources import model

RESOURCE = 'rate_limiter { resources { name: "R" count: 3 } priority: 2 }'
IO = """
input { name: "X" data_type: TYPE_INT32 dims: -1 }
output { name: "Y" data_type: TYPE_INT32 dims: -1 }
"""


@pytest.mark.parametrize("group", [RESOURCE, RESOURCE.replace("count: 3", "count: 3 global: true")])
def test_instances_that_need_one_resource_run_side_by_side(repo: bls.ModelRepository, group: str) -> None:
    gates.shared["meeting"] = threading.Barrier(2)
    config = f"{IO} instance_group {{ count: 2 kind: KIND_CPU {group} }}"
    repo.define("m", model("""
def execute(self, requests):
    gates.shared["meeting"].wait(gates.LIMIT)
    return [answer(number(r)) for r in requests]
"""), config)  # fmt: skip
    callers = [Caller(infer, repo, "m", n) for n in range(2)]
    assert [caller.result() for caller in callers] == [0, 1]
    kept = repo.config("m").instance_group[0].rate_limiter
    assert (kept.resources[0].name, kept.resources[0].count, kept.priority) == ("R", 3, 2)
