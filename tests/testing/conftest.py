"""A user's project: models in Triton's layout, and tests of them that pytest runs with the plugin."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path

import pytest
from _pytest.pytester import SysModulesSnapshot

from tests.magics.conftest import cells, complete, shell  # noqa: F401 - fixtures

CONFIG = """
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
"""
DOUBLE = """
import triton_python_backend_utils as pb_utils
from helper import times

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x.size > 5:
                raise ValueError("too long")
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", times(x))]))
        return out
"""
HELPER = """
def times(x):
    if x is None:
        return 0
    return x * 2
"""
FRONT = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        out = []
        for request in requests:
            answer = await pb_utils.InferenceRequest(
                model_name="double", requested_output_names=["Y"], inputs=request.inputs()
            ).async_exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            out.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return out
"""
INI = """
[pytest]
addopts = -p no:cacheprovider -p pytest_bls_notebook
triton_repository = models
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> None:
    """Exclude the objects of earlier tests from the many garbage collections of drills and memory assertions."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def complete_owner_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the limits of the search for owners of memory, which a loaded machine would exceed."""
    monkeypatch.setattr("bls_notebook.lifetimes.owner_search.SECONDS", 600.0)
    monkeypatch.setattr("bls_notebook.lifetimes.owner_search.OBJECTS", 1 << 30)


def write_models(folder: Path) -> None:
    for name, source in (("double", DOUBLE), ("front", FRONT)):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "model.py").write_text(source)
        (folder / name / "config.pbtxt").write_text(f'backend: "python"\n{CONFIG}')
    (folder / "double" / "1" / "helper.py").write_text(HELPER)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_models(tmp_path / "models")
    return tmp_path / "models"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Where `runpytest_inprocess` runs tests with the plugin, whether or not it is installed."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BLS_UPDATE_SNAPSHOTS", raising=False)
    # What is imported in between stays: packages such as NumPy can be imported once only.
    kept = partial(SysModulesSnapshot, preserve=lambda name: not name.startswith("test_"))
    monkeypatch.setattr(pytester, "_Pytester__take_sys_modules_snapshot", kept)
    monkeypatch.setattr(pytester, "_sys_modules_snapshot", kept())
    write_models(pytester.path / "models")
    pytester.makeini(INI)
    return pytester
