"""A model of a cell that calls another one, whose inputs or outputs change afterwards."""

from __future__ import annotations

import logging

import pytest

import bls_notebook as bls
from bls_notebook.repository.stale_callers import called_models
from tests.repository.models import ECHO, HEAD

CALLEE = f"""{HEAD}
class TritonPythonModel:
    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.zeros(1, np.float32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
WIDER = ECHO.replace('"IN" data_type: TYPE_FP32', '"IN" data_type: TYPE_INT64')
STALE = "it calls 'callee', which changed since: input IN was FP32 [-1], is INT64 [-1]"


def calling(name: str = '"callee"') -> str:
    return f"""{HEAD}
class TritonPythonModel:
    def execute(self, requests):
        tensor = pb_utils.Tensor("IN", np.zeros(1, np.float32))
        request = pb_utils.InferenceRequest(
            model_name={name}, requested_output_names=["OUT"], inputs=[tensor])
        request.exec()
        out = pb_utils.Tensor("OUT", np.zeros(1, np.float32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


def reason(repo: bls.ModelRepository, name: str = "caller") -> str:
    return repo.record(name).reason


def test_names_that_a_source_says_plainly() -> None:
    source = """
import triton_python_backend_utils as pb
a = pb.InferenceRequest(model_name="a", inputs=[])
b = InferenceRequest("", 0, [], [], "b")
c = pb.InferenceRequest(model_name=name)
d = Other(model_name="d")
"""
    assert called_models(source) == {"a", "b"}
    assert called_models("x = = 1") == frozenset()


def test_told_when_the_callee_is_defined_and_once_when_the_caller_is_called(
    repo: bls.ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    repo.define("callee", CALLEE, ECHO)
    repo.define("caller", calling(), ECHO)
    repo.define("apart", CALLEE, ECHO)
    assert repo.define("callee", CALLEE, ECHO).warnings == ()
    (warning,) = repo.define("callee", CALLEE, WIDER).warnings
    assert "'caller'" in warning
    assert STALE in warning
    assert [r.name for r in repo.index() if STALE in r.reason] == ["caller"]
    assert repo.record("callee").warnings == ()
    with caplog.at_level(logging.WARNING, "bls_notebook.model"):
        for _ in range(2):
            repo.infer("caller", {"IN": [1]})
    assert [r.name for r in caplog.records if STALE in r.getMessage()] == ["bls_notebook.model.caller"]
    assert STALE in reason(repo)


def test_over_when_it_is_loaded_again_or_the_callee_is_as_it_was(
    repo: bls.ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    repo.define("callee", CALLEE, ECHO)
    repo.define("caller", calling(), ECHO)
    repo.define("callee", CALLEE, WIDER)
    assert repo.define("callee", CALLEE, ECHO).warnings == ()
    assert reason(repo) == ""
    with caplog.at_level(logging.WARNING, "bls_notebook.model"):
        assert repo.infer("caller", {"IN": [1]}).error is None
    assert not caplog.records
    repo.unload("callee")
    assert repo.define("callee", CALLEE, WIDER).warnings  # also after a while without it
    repo.define("caller", calling(), ECHO)
    assert reason(repo) == ""


def test_a_name_that_is_computed_is_known_from_its_first_call(repo: bls.ModelRepository) -> None:
    repo.define("callee", CALLEE, ECHO)
    repo.define("caller", calling('"call" + "ee"'), ECHO)
    assert repo.define("callee", CALLEE, WIDER).warnings == ()
    repo.define("callee", CALLEE, ECHO)
    repo.infer("caller", {"IN": [1]})
    assert repo.define("callee", CALLEE, WIDER).warnings


def test_only_models_of_cells(disk: bls.ModelRepository) -> None:
    version = disk.paths[0] / "caller" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(calling())
    (version.parent / "config.pbtxt").write_text(ECHO)
    disk.define("callee", CALLEE, ECHO)
    disk.load("caller")
    disk.infer("caller", {"IN": [1]})
    assert disk.define("callee", CALLEE, WIDER).warnings == ()
