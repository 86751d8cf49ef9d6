"""Names that do not exist while a server imports a model's files: found without running them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bls_notebook.checking.records import Finding
from tests.checking.conftest import MODEL, Check, model

FOUND = {
    "annotation": "def of(a, *b: int, c: pb_utils.Tensor = None): ...",
    "annotated variable": "KEPT: list[pb_utils.Tensor] = []",
    "of a method": "class Helper:\n    async def of(self) -> pb_utils.InferenceResponse: ...",
    "base": "class Refused(pb_utils.TritonModelException): ...",
    "constant": "LOG = pb_utils.Logger",
    "default": "def of(memory=pb_utils.PreferredMemory): ...",
    "decorator": "def tell(f):\n    pb_utils.Logger.log_info('x')\n    return f\n@tell\ndef of(): ...",
    "called": "def count():\n    return pb_utils.MetricFamily('a', 'b', 0)\nFAMILY = count()",
    "in a loop": "for name in 'ab':\n    pb_utils.load_model(name)",
    "imported": "from triton_python_backend_utils import TritonError",
    "with another except": "try:\n    LOG = pb_utils.Logger\nexcept KeyError:\n    LOG = None",
}
NOT_FOUND = {
    "quoted": "def of(a: 'pb_utils.Tensor') -> 'pb_utils.Tensor': ...",
    "in a function": "def of():\n    def inner(a): return pb_utils.Tensor\n    return inner",
    "local variable": "def of():\n    a: pb_utils.Tensor = None\nof()",
    "lambda": "of = lambda: pb_utils.Tensor",
    "tolerated": "try:\n    LOG = pb_utils.Logger\nexcept AttributeError:\n    LOG = None",
    "tested": "if hasattr(pb_utils, 'Logger'):\n    LOG = pb_utils.Logger",
    "type checking": "if typing.TYPE_CHECKING:\n    from triton_python_backend_utils import Tensor",
    "early name": "GET = pb_utils.get_input_tensor_by_name\nfrom triton_python_backend_utils import ModelConfig",
    "of the C++ module": "from c_python_backend_utils import Tensor",
    "set": "pb_utils.Tensor = object",
}


def early(check: Check, *files: dict[str, str]) -> list[Finding]:
    return [found for found in check({k: v for f in files for k, v in f.items()}) if found.code == "name-too-early"]


@pytest.mark.parametrize("case", FOUND)
def test_a_name_that_is_used_too_early_is_found(check: Check, case: str) -> None:
    (found,) = early(check, model("a", source=f"{MODEL}{FOUND[case]}\n"))
    assert found.severity == "error"
    assert found.line > 0
    assert found.mend


@pytest.mark.parametrize("case", NOT_FOUND)
def test_a_name_that_is_used_late_is_not_found(check: Check, case: str) -> None:
    assert early(check, model("a", source=f"{MODEL}{NOT_FOUND[case]}\n")) == []


def test_annotations_that_are_not_evaluated_are_not_found(check: Check) -> None:
    lazy = f"from __future__ import annotations\n{MODEL}{FOUND['annotation']}\n"
    assert early(check, model("a", source=lazy)) == []


def test_a_helper_module_is_read_if_model_py_imports_it_at_once(check: Check) -> None:
    files = {}
    for name, source in ("early", f"from helper import *\n{MODEL}"), ("late", f"{MODEL}\ndef of():\n    import helper"):
        files.update(model(name, source=source))
        files[f"{name}/1/helper.py"] = "import deep\n"
        files[f"{name}/deep.py"] = "import triton_python_backend_utils as u\nX = u.Logger\n"
    (found,) = early(check, files)
    assert (found.model, Path(found.file).name, found.line) == ("early", "deep.py", 2)
