"""What a model in a process is told, and which warnings reach its response: as in the kernel."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import bls_notebook as bls
from tests.backends.processes.models import apart, define, x
from tests.engine.harness import value

__all__ = ["apart"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")


@pytest.mark.parametrize("isolation", ["kernel", "process"])
def test_from_dlpack_of_numpy_and_two_outputs_of_a_name(apart: bls.ModelRepository, isolation: str) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        given = pb.Tensor.from_dlpack("Y", np.array([1], np.int32))
        return [pb.InferenceResponse([given, pb.Tensor("Y", np.array([2], np.int32))]) for r in requests]
"""
    apart.isolation = isolation
    define(apart, "twice", source)
    response = apart.infer("twice", x())
    assert value(response) == 1  # the first of its name
    assert [text for text in response.warnings if "with NumPy 1" in text]
    assert value(apart.infer("twice", {"X": np.ma.MaskedArray([3], [False], np.int32)})) == 1
    with pytest.raises(bls.BLSError, match="masked"):
        apart.infer("twice", {"X": np.ma.MaskedArray([3], [True], np.int32)})


@pytest.mark.parametrize("isolation", ["kernel", "process"])
def test_load_model_with_several_files(apart: bls.ModelRepository, isolation: str) -> None:
    config = '{"backend": "python", "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}]}'
    source = f"""
class TritonPythonModel:
    def execute(self, requests):
        number = int(requests[0].inputs()[0].as_numpy()[0])
        code = b"class TritonPythonModel:\\n    def execute(self, requests): pass\\n"
        files = {{"file:1/model.py": code, **{{f"file:1/{{n}}.txt": b"" for n in range(number)}}}}
        pb.load_model("late", {config!r}, files)
        pb.unload_model("late")
        return [pb.InferenceResponse([pb.Tensor("Y", np.array([number], np.int32))]) for r in requests]
"""
    apart.isolation = isolation
    define(apart, "a", source)
    for number, is_warned in ((0, False), (1, True)):
        response = apart.infer("a", {"X": np.array([number], np.int32)})
        assert value(response) == number
        assert is_warned == any("a server gives each of them the content of another" in w for w in response.warnings)


@pytest.mark.parametrize("isolation", ["kernel", "process"])
def test_state_of_auto_complete_config_does_not_reach_the_instance(apart: bls.ModelRepository, isolation: str) -> None:
    """On a server, it runs in a process of its own."""
    source = """
NUMBER = 1
class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, config):
        global NUMBER
        cls.number = NUMBER = 2
        return config

    def execute(self, requests):
        total = NUMBER + getattr(self, "number", 0)
        return [pb.InferenceResponse([pb.Tensor("Y", np.array([total], np.int32))]) for r in requests]
"""
    apart.isolation = isolation
    define(apart, "a", source)
    assert value(apart.infer("a", x())) == 1
