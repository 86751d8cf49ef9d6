"""The modules that `import bls_notebook` and loading the extension import, each in a new interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]

# Slow to import or not installed everywhere: the feature that uses one imports it.
HEAVY = {
    "anywidget", "cupy", "google.protobuf", "grpc", "ipywidgets", "jedi", "matplotlib", "onnx", "onnxruntime",
    "pandas", "PIL", "scipy", "sklearn", "torch", "tritonclient.grpc", "tritonclient.http",
}  # fmt: skip

LOAD_EXTENSION = """
import IPython, numpy
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
before = set(sys.modules)
shell.run_line_magic("load_ext", "bls_notebook")
assert "bls_notebook" in shell.extension_manager.loaded
"""


def loaded_modules(code: str, tmp_path: Path) -> set[str]:
    """Return the modules that `code` imports in a new interpreter, except those in its set `before`."""
    script = (
        "import json, sys\nbefore = set()\n" + code + "\nprint('\\n' + json.dumps(sorted(set(sys.modules) - before)))"
    )
    return set(json.loads(run(script, tmp_path).stdout.splitlines()[-1]))


def run(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_import_loads_nothing_heavy_and_no_ipython(tmp_path: Path) -> None:
    loaded = loaded_modules("import bls_notebook, bls_notebook.display", tmp_path)
    assert "bls_notebook" in loaded
    assert not loaded & (HEAVY | {"IPython", "traitlets"})


def test_loading_the_extension_adds_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_modules(LOAD_EXTENSION, tmp_path)
    assert "bls_notebook.magics" in loaded
    assert not loaded & HEAVY


def test_the_models_module_exists_only_once_the_package_is_imported(tmp_path: Path) -> None:
    """A real Triton stub process in the same environment must import its own."""
    without = "import importlib.util; assert importlib.util.find_spec('triton_python_backend_utils') is None"
    run(f"{without}\nimport bls_notebook, triton_python_backend_utils as pb_utils\npb_utils.Tensor", tmp_path)
