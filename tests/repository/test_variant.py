"""`variant`: changed models beside the serving ones."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from bls_notebook.repository.config import to_dict
from bls_notebook.repository.variant import Variant, VariantChange
from tests.repository.models import FLOATS, HEAD, values
from tests.waiting import LIMIT

Repository = bls.ModelRepository
COUNTS = f"""{HEAD}
class TritonPythonModel:
    count = 0

    def execute(self, requests):
        self.count += 1
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.float32([self.count]))]) for r in requests]
"""
X = {"X": np.ones(1, np.float32)}


@pytest.fixture
def repo(repo: Repository) -> Repository:
    repo.define("counts", COUNTS, FLOATS)
    return repo


def count(repo: Repository) -> float:
    return values(repo.infer("counts", X))[0]


def test_a_variant_has_fresh_state_and_the_model_keeps_its_own(repo: Repository) -> None:
    assert [count(repo), count(repo)] == [1, 2]
    own = host_of(repo).find("counts")
    with Variant(repo, {"counts": VariantChange()}) as fresh:
        (loaded,) = fresh.models("counts").values()
        assert count(repo) == 3
        with fresh.serving():
            assert [count(repo), count(repo)] == [1, 2]
        assert count(repo) == 4
        with fresh.serving():
            assert count(repo) == 3
    assert host_of(repo).find("counts") is own
    assert loaded.closed.wait(LIMIT)
    assert count(repo) == 5


def test_another_source_and_another_config(repo: Repository) -> None:
    other = COUNTS.replace("self.count += 1", "self.count += 10")
    config = {**to_dict(repo.config("counts")), "instance_group": [{"count": 2, "kind": "KIND_CPU"}]}
    with Variant(repo, {"counts": VariantChange(source=other, config=config)}) as changed:
        assert len(changed.models("counts")[1].instances) == 2
        with changed.serving():
            assert count(repo) == 10
            file = f"{changed.models('counts')[1].directory}/model.py"
            assert "        self.count += 1\n" in linecache.getlines(file)  # for tracebacks of the model in service
    assert count(repo) == 1


def test_errors_name_the_changed_source(repo: Repository) -> None:
    broken = COUNTS.replace("self.count += 1", "self.count += nothing")
    with Variant(repo, {"counts": VariantChange(source=broken, label="cell 3")}) as changed, changed.serving():
        response: Any = repo.infer("counts", X)
    assert "nothing" in response.error.message()
    assert any("cell 3, changed" in str(frame) for frame in response.record.error.frames)


def test_a_variant_that_cannot_be_loaded_changes_nothing(repo: Repository) -> None:
    broken = VariantChange(source="raise RuntimeError('it was run')")
    repo.define("other", COUNTS, FLOATS)
    with pytest.raises(bls.ModelLoadError, match="it was run"):
        Variant(repo, {"other": VariantChange(), "counts": broken}).__enter__()
    with pytest.raises(bls.ModelNotFoundError):
        Variant(repo, {"nowhere": VariantChange()}).__enter__()
    assert [count(repo), count(repo)] == [1, 2]


def test_a_model_that_is_replaced_meanwhile(repo: Repository) -> None:
    with Variant(repo, {"counts": VariantChange()}) as fresh:
        with fresh.serving():
            repo.define("counts", COUNTS.replace("+= 1", "+= 100"), FLOATS)
            assert count(repo) == 1
        assert count(repo) == 100


METERED = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily("variant_requests", "", pb_utils.MetricFamily.COUNTER)
        self.metric = self.family.Metric({})

    def execute(self, requests):
        self.metric.increment(len(requests))
        value = np.array([self.metric.value()], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("N", value)]) for _ in requests]
"""


def test_the_metrics_of_a_variant_begin_at_zero() -> None:
    config = 'output [{ name: "N" data_type: TYPE_INT32 dims: [ 1 ] }]'
    with Repository() as repo:
        repo.define("metered", METERED, config)
        assert [repo.infer("metered", {})["N"].as_numpy()[0] for _ in range(2)] == [1, 2]
        with Variant(repo, {"metered": VariantChange()}) as fresh, fresh.serving():
            assert repo.infer("metered", {})["N"].as_numpy()[0] == 1
        assert repo.infer("metered", {})["N"].as_numpy()[0] == 3
