"""Names that a model reads and never defines, modules and their distributions, and models that are called."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.checking import pip_packages
from bls_notebook.checking.pip_packages import distribution_of, install_advice
from bls_notebook.repository.repository import define_cell
from bls_notebook.repository.source.code_analysis import (
    called_models,
    stray_imports,
    undefined_name_warnings,
    undefined_names,
)
from tests.repository.models import ECHO, ECHOES

ROOT = Path(__file__).resolve().parents[3]

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32) * {name})])]
"""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f():\n    return scale * 2", {"scale": 2}),
        ("def f():\n    return b + a\n\ndef g():\n    return a", {"a": 2, "b": 2}), ("print(x)", {"x": 1}),
        ("class A:\n    y = z", {"z": 2}),
        ("def f():\n    def g():\n        return [q for _ in range(3) if r]\n    return g", {"q": 3, "r": 3}),
        ("f = lambda a: a + b", {"b": 1}), ("@decorate\ndef f(): pass", {"decorate": 1}),
        ("def f(a=default): return a", {"default": 1}), ("def f(x):\n    return x\n\ndef g():\n    return x", {"x": 5}),
        ("def f():\n    x.append(1)\n    del x[0]\n    x[1] += 2", {"x": 2}),
        ("def f():\n    def g(x): pass\n    return x", {"x": 3}),
        ("def f():\n    global count\n    return count", {"count": 3}), ("x: int = y", {"y": 1}),
        ("def f():\n    return display(1), get_ipython()", {"display": 2, "get_ipython": 2}),
        ("f'{name!r:>{width}}'", {"name": 1, "width": 1}),
        ("async def f():\n    async with lock:\n        await gather()", {"lock": 2, "gather": 3}),
        ("def f(x):\n    match x:\n        case Point(y): return y", {"Point": 3}),
        # `symtable` calls its own scopes so.
        *[(f"def {name}(a):\n    return a, missing", {"missing": 2}) for name in ("top", "class_", "module")],
    ],
)  # fmt: skip
def test_undefined_names_are_found(source: str, found: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "display", print, raising=False)  # as IPython adds it
    assert undefined_names(source) == found


@pytest.mark.parametrize(
    "source",
    [
        "import os.path\nimport numpy as np\nfrom a import b as c\nprint(os, np, c)",
        "def f():\n    return later\nlater = 1", "def f():\n    return later()\ndef later(): pass",
        "try:\n    import cupy as cp\nexcept ImportError as e:\n    cp = None\n    print(e)\nprint(cp)",
        "for i in range(3): print(i)\nwith open('x') as file: print(file)\nwhile (n := 3): print(n)",
        "def set_up():\n    global model\n    model = 1\ndef use(): return model",
        "class A:\n    def f(self): return super().f(), __class__\n    b = 1\n    c = b",
        "class A:\n    def f(self, other: 'A'): return A()",
        "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x += 1\n    return g",
        "def f(*args, **kw): return [a for a in args], {k: v for k, v in kw.items()}",
        "print(__name__, __file__, __doc__, len, ValueError, NotImplemented)",
        "from helper import *\ndef f(): return anything", "globals()['x'] = 1\ndef f(): return x",
        "exec('x = 1')\nprint(x)", "from __future__ import annotations\ndef f(a: Nowhere) -> Nowhere: b: Nowhere = a",
        "from __future__ import annotations\nclass A:\n    field: Nowhere", "def f(", "\0",
        "def f(x):\n    match x:\n        case [1, *a]: return a\n        case {'a': b, **c}: return b, c",
    ],
)  # fmt: skip
def test_defined_and_unknowable_names_are_not_found(source: str) -> None:
    assert undefined_names(source) == {}


@pytest.mark.slow
def test_the_package_itself_and_the_sample_models_raise_no_false_alarm() -> None:
    for file in (*sorted((ROOT / "bls_notebook").rglob("*.py"))[::12], *ROOT.glob("model_repository/*/1/model.py")):
        assert undefined_names(file.read_text("utf-8")) == {}, file


def test_the_words() -> None:
    notebook, unknown = undefined_name_warnings("def f():\n    print(scale)\n    return scael", "m", {"scale"})
    assert notebook.startswith("model 'm', line 2: notebook variable 'scale' will not exist on Triton")
    assert unknown.startswith("model 'm', line 3: 'scael' is not defined in the model")


CONFIG = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }]
"""


def test_the_record_of_a_model_carries_them(repo: bls.ModelRepository) -> None:
    record = define_cell(repo, "m", MODEL.format(name="scale"), CONFIG, 1, {"scale", "np"}, None)
    assert len(record.warnings) == 1
    assert "notebook variable 'scale'" in record.warnings[0]
    assert repo.model("m").warnings == record.warnings
    assert repo.set_config("m", CONFIG).warnings == record.warnings  # type: ignore[union-attr]
    assert define_cell(repo, "m", MODEL.format(name="2"), CONFIG, 1, {"scale"}, None).warnings == ()


def test_called_models_that_a_source_names() -> None:
    source = """
import triton_python_backend_utils as pb
a = pb.InferenceRequest(model_name="a", inputs=[])
b = InferenceRequest("", 0, [], [], "b")
c = pb.InferenceRequest(model_name=name)
d = Other(model_name="d")
"""
    assert (called_models(source), called_models("x = = 1")) == ({"a", "b"}, frozenset())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notebook's, which the kernel has on its path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "beside.py").write_text("X = 1\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "numpy.py").write_text("")  # the installed one is there on Triton too
    (tmp_path / "json.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import beside", {"beside": 1}),
        ("import beside.deep as b", {"beside": 1}),
        ("from beside import X", {"beside": 1}),
        ("import json, os\nimport package.sub, beside", {"beside": 2, "package": 2}),
        ("def f():\n    import beside\nimport beside", {"beside": 2}),
        ("try:\n    import beside\nexcept ImportError:\n    pass", {"beside": 2}),
        ("import numpy, json, triton_python_backend_utils, bls_notebook, nowhere", {}),
        ("from .beside import X\nfrom . import beside", {}),
        ("beside = 1\n'import beside'", {}),
        ("import beside)", {}),
    ],
)
def test_modules_beside_the_notebook(folder: Path, source: str, found: dict[str, int]) -> None:
    assert stray_imports(source) == found
    assert "beside" not in sys.modules


def test_a_module_that_lies_elsewhere_too_or_in_a_folder_that_is_not_on_the_path(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(folder))])
        assert stray_imports("import beside") == {}
    other = tmp_path_factory.mktemp("other")
    (other / "beside.py").write_text("")
    monkeypatch.syspath_prepend(str(other))
    assert stray_imports("import beside") == {}


SOURCE = f"import package\n{ECHOES}"


def test_the_record_of_a_model_carries_stray_imports(folder: Path, repo: bls.ModelRepository) -> None:
    (warning,) = repo.define("m", SOURCE, ECHO).warnings
    assert warning.startswith("model 'm', line 1: module 'package' exists only in the notebook's folder")
    assert repo.model("m").warnings == (warning,)
    repo.strict = True
    with pytest.raises(bls.ModelLoadError, match="only in the notebook's folder"):
        repo.define("other", SOURCE, ECHO)


def plain(name: str) -> str:
    return name.strip("'").partition("<")[0].partition("[")[0].lower().replace("_", "-")


def test_the_table_agrees_with_the_metadata_of_installed_distributions() -> None:
    found = pip_packages.installed_distributions()
    installed = {top: {name.lower().replace("_", "-") for name in names} for top, names in found.items()}
    table = pip_packages._TABLE["distributions"]
    checked = {module for module in table if module in installed}
    assert {"PIL", "yaml", "numpy", "dateutil"} <= checked
    assert [module for module in checked if plain(table[module]) not in installed[module] and module != "cv2"] == []


def test_a_distribution_is_known_or_empty() -> None:
    known = {"cv2": "opencv-python-headless", "sklearn.svm": "scikit-learn", "google.protobuf.json_format": "protobuf",
             "torch": "torch", "pytest": "pytest"}  # fmt: skip
    known |= dict.fromkeys(("google.nothing", "riva", "clip", "cupy", "utils", "bls_notebook"), "")
    assert {module: distribution_of(module) for module in known} == known


def test_install_advice_for_missing_packages() -> None:
    advice = install_advice(["torch", "riva", "PIL.Image", "cupy", "pkg_resources"], "%pip install")
    assert advice == (
        "`%pip install torch pillow 'setuptools<81'`; `riva`: the distribution is unknown; "
        "`cupy`: cupy-cuda12x or cupy-cuda13x, for the version of CUDA"
    )
