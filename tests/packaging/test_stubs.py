"""Editors and type checkers see exactly Triton's names in `triton_python_backend_utils`."""

from __future__ import annotations

import ast
from pathlib import Path

import jedi
import pytest

from bls_notebook import pb_utils

ROOT = Path(__file__).resolve().parents[2]
STUBS = ROOT / "triton_python_backend_utils-stubs" / "__init__.pyi"

MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]):
        tensor = pb_utils.get_input_tensor_by_name(requests[0], "IN")
        request = pb_utils.InferenceRequest(model_name="m", inputs=[tensor], requested_output_names=[])
        response = request.exec()
        """


def test_the_stubs_have_the_modules_names() -> None:
    names = []
    for node in ast.parse(STUBS.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module == "bls_notebook.pb_utils":
            names += [alias.asname for alias in node.names]
        elif isinstance(node, ast.ClassDef):
            names.append(node.name)
    assert sorted(name for name in names if name and not name.startswith("_")) == sorted(pb_utils.__all__)


def test_the_modules_own_modules_do_not_show() -> None:
    assert dir(pb_utils) == sorted(pb_utils.__all__)
    assert "dtypes" in vars(pb_utils)  # they are there


@pytest.mark.parametrize(
    ("begun", "of"),
    [
        ("pb_utils", pb_utils), ("tensor", pb_utils.Tensor), ("requests[0]", pb_utils.InferenceRequest),
        ("response", pb_utils.InferenceResponse), ("response.error()", pb_utils.TritonError),
    ],
)  # fmt: skip
def test_an_editor_completes_it(begun: str, of: object, tmp_path: Path) -> None:
    editor = jedi.Script(MODEL + begun + ".", project=jedi.Project(tmp_path, added_sys_path=[str(ROOT)]))
    offered = {each.name for each in editor.complete() if not each.name.startswith("_")}
    assert offered == {name for name in dir(of) if not name.startswith("_")}
