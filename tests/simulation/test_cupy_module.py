"""`import cupy` in models: what stands in for it while GPUs are simulated, the real one otherwise; and never
anything for the notebook.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import bls_notebook as bls
from tests.devices.conftest import Kit
from tests.devices.models import HEAD, define

IMPORTS = [
    "import cupy",
    "import cupy as cp; cupy = cp",
    "import cupy.cuda; import cupy.linalg as la; assert la is cupy.linalg",
    "from cupy import cuda, zeros, ndarray; import cupy; assert cuda is cupy.cuda",
    "from cupy.cuda import Device; import cupy; assert Device is cupy.cuda.Device",
    "from cupy.cuda.runtime import getDeviceCount; import cupy; assert getDeviceCount()",
    "cupy = __import__('cupy')",
]
BODY = """
class TritonPythonModel:
    def execute(self, requests):
        x = cupy.asarray(requests[0].inputs()[0].as_numpy())
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", cupy.square(x))])]
"""


@pytest.mark.parametrize("statement", IMPORTS)
def test_ways_to_import_it(gpu: Kit, repo: bls.ModelRepository, statement: str) -> None:
    define(repo, "square", HEAD + statement + BODY, force_cpu=True)
    response = repo.infer("square", {"IN": [1, 2, 3]}, preferred_memory="cpu")
    assert response.error is None, response.error.message()
    assert response["OUT"].as_numpy().tolist() == [1, 4, 9]


def test_a_lazy_import(gpu: Kit, repo: bls.ModelRepository) -> None:
    source = HEAD + BODY.replace("        x =", "        import cupy\n        x =")
    define(repo, "square", source, force_cpu=True)
    assert repo.infer("square", {"IN": [3]}, preferred_memory="cpu")["OUT"].as_numpy().tolist() == [9]


def test_in_a_module_beside_the_model(gpu: Kit, tmp_path: Path) -> None:
    folder = tmp_path / "square" / "1"
    folder.mkdir(parents=True)
    (folder / "helper.py").write_text("import cupy\ndef square(x): return cupy.square(cupy.asarray(x))\n")
    body = BODY.replace("cupy.square(x)", "square(x)").replace("cupy.asarray", "")
    (folder / "model.py").write_text(f"{HEAD}from helper import square\n{body}")
    (folder.parent / "config.pbtxt").write_text(
        'input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }\n'
        'output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }\n'
    )
    with bls.ModelRepository(tmp_path) as repo:
        repo.load("square")
        assert repo.infer("square", {"IN": [3]}, preferred_memory="cpu")["OUT"].as_numpy().tolist() == [9]


def test_a_model_of_that_name_comes_first(simulated: Kit, tmp_path: Path) -> None:
    if importlib.util.find_spec("cupy") is not None:
        pytest.skip("what is installed wins, as on Triton")
    folder = tmp_path / "own" / "1"
    folder.mkdir(parents=True)
    (folder / "cupy.py").write_text("VALUE = 5\n")
    (folder / "model.py").write_text(
        f"{HEAD}import cupy, numpy\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        '        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", numpy.float32([cupy.VALUE]))])]\n'
    )
    (folder.parent / "config.pbtxt").write_text('output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }')
    with bls.ModelRepository(tmp_path) as repo:
        repo.load("own")
        assert repo.infer("own", {})["OUT"].as_numpy().tolist() == [5]


@pytest.mark.parametrize(("statement", "told"), [
    ("import cupy.nonsense", "No module named 'cupy.nonsense'"),
    ("from cupy import RawKernel", "cannot import name 'RawKernel'"),
])  # fmt: skip
def test_missing_names_of_simulated_cupy(simulated: Kit, repo: bls.ModelRepository, statement: str, told: str) -> None:
    with pytest.raises(bls.ModelLoadError, match=told):
        define(repo, "square", HEAD + statement + "\nimport cupy" + BODY)


def test_the_notebook_gets_none_of_it(
    simulated: Kit, repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)  # a real one
    define(repo, "square", HEAD + "import cupy" + BODY)
    assert "cupy" not in sys.modules


def test_models_keep_what_they_imported(simulated: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "square", HEAD + "import cupy" + BODY, force_cpu=True)
    bls.simulate_gpus(1, "1 MiB", even_with_cuda=True)
    assert repo.infer("square", {"IN": [3]}, preferred_memory="cpu")["OUT"].as_numpy().tolist() == [9]
