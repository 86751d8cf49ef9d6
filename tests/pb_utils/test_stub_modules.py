"""What a model finds in `triton_python_backend_utils` while its files are imported, and afterwards."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.engine.errors import ModelLoadError
from bls_notebook.pb_utils.stub_modules import ADDED, API, NAMES, add_names, utils_module
from bls_notebook.records import advice
from tests.engine.harness import message

PB = "import triton_python_backend_utils as pb_utils\n"
MODEL = (
    "\nclass TritonPythonModel:\n    def execute(self, requests):\n"
    "        import triton_python_backend_utils as pb\n"
    "        return [pb.InferenceResponse() for _ in requests]\n"
)
ALONE = {
    "annotation": ("def of(tensor: pb_utils.Tensor): ...", "Tensor", "from __future__ import annotations"),
    "returned": ("def of() -> list[pb_utils.InferenceResponse]: ...", "InferenceResponse", "from __future__"),
    "base": ("class Refused(pb_utils.TritonModelException): ...", "TritonModelException", "`Exception`"),
    "constant": ("LOG = pb_utils.Logger", "Logger", "in `initialize` or later: `self.name = pb_utils.Logger`"),
    "default": ("def of(memory=pb_utils.TRITONSERVER_MEMORY_CPU): ...", "TRITONSERVER_MEMORY_CPU", "in `initialize`"),
    "called": (
        "def ready():\n    return pb_utils.is_model_ready('a')\nREADY = ready()",
        "is_model_ready",
        "initialize",
    ),
    "by its name": (f"import importlib\nL = importlib.import_module({API!r}).Logger", "Logger", "initialize"),
    "of sys.modules": (f"import sys\nL = sys.modules[{API!r}].Logger", "Logger", "initialize"),
}


@pytest.mark.parametrize("case", ALONE)
def test_a_model_that_uses_a_late_name_while_it_is_imported_does_not_load(repo: bls.ModelRepository, case: str) -> None:
    source, name, remedy = ALONE[case]
    words = f"AttributeError: module '{API}' has no attribute '{name}' (model.py line "
    with pytest.raises(ModelLoadError, match=re.escape(words)) as raised:
        repo.define("m", PB + source + MODEL)
    assert raised.value.record is not None
    assert remedy in raised.value.record.hint
    assert not repo.ready("m")


def test_a_late_name_cannot_be_imported(repo: bls.ModelRepository) -> None:
    words = f"ImportError: cannot import name 'Tensor' from '{API}' "
    with pytest.raises(ModelLoadError, match=re.escape(words)) as raised:
        repo.define("m", f"from {API} import Tensor" + MODEL)
    assert raised.value.record is not None
    assert f"`import {API} as pb_utils`" in raised.value.record.hint


@pytest.mark.parametrize("source", [
    "from __future__ import annotations\n" + PB + "def of(t: pb_utils.Tensor): ...",
    PB + "def of(t: 'pb_utils.Tensor'): ...",
    PB + "try:\n    LOG = pb_utils.Logger\nexcept AttributeError:\n    pass",
    PB + "assert not hasattr(pb_utils, 'Tensor')\nMAKE = lambda: pb_utils.Tensor",
    "import c_python_backend_utils\nclass Mine(c_python_backend_utils.TritonModelException): ...",
    f"from {API} import *\nX = np.zeros(1), json, struct, ModelConfig, TRITON_STRING_TO_NUMPY",
    PB + "START = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START\nGET = pb_utils.get_input_tensor_by_name",
])  # fmt: skip
def test_a_model_that_waits_for_late_names_loads(repo: bls.ModelRepository, source: str) -> None:
    repo.define("m", source + MODEL)
    assert repo.infer("m", {}).error is None


def test_a_helper_module_sees_late_names_if_it_is_imported_late(tmp_path: Path) -> None:
    lines = {
        "early": "import helper\n" + MODEL,
        "late": MODEL.replace("        return", "        import helper\n        return"),
    }
    for name, text in lines.items():
        folder = tmp_path / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(text)
        (folder / "helper.py").write_text(PB + "class Refused(pb_utils.TritonModelException): ...\n")
    with bls.ModelRepository(tmp_path) as repo:
        with pytest.raises(ModelLoadError, match=r"no attribute 'TritonModelException' \(helper.py line 2\)"):
            repo.load("early")
        repo.load("late")
        assert repo.infer("late", {}).error is None


def test_a_model_has_the_names_of_a_server_and_the_notebook_has_all(repo: bls.ModelRepository) -> None:
    repo.define("m", PB + MODEL.replace("        return", "        pb_utils.MetricKind\n        return"))
    assert f"module '{API}' has no attribute 'MetricKind'" in message(repo.infer("m", {}))
    from_notebook = sys.modules[API]
    assert from_notebook is bls.pb_utils
    assert from_notebook.MetricKind is not None


def test_each_model_has_a_module_of_its_own(repo: bls.ModelRepository) -> None:
    repo.define("changes", PB + "pb_utils.Mine = 1" + MODEL)
    repo.define("m", PB + MODEL.replace("        return", "        pb_utils.Mine\n        return"))
    assert "has no attribute 'Mine'" in message(repo.infer("m", {}))
    assert not hasattr(bls.pb_utils, "Mine")


def test_the_remedy_knows_every_late_name() -> None:
    module = utils_module()
    assert not set(ADDED) & vars(module).keys()
    add_names(module)
    assert {name for name in NAMES if hasattr(module, name)} == set(NAMES)
    assert {name for name in NAMES if re.fullmatch(advice._ADDED, name)} == set(ADDED)
