"""The capability that docs/extending.md builds works; its code is read from the document."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USE = """
import numpy as np
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
shell.run_line_magic("load_ext", "bls_notebook")
import bls_notebook as bls

MODEL = '''
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.Tensor("OUT", r.inputs()[0].as_numpy()) for r in requests]
        return [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
'''
CONFIG = '''input [{ name: "IN", data_type: TYPE_FP32, dims: [1] }]
output [{ name: "OUT", data_type: TYPE_FP32, dims: [1] }]'''
repo = bls.current_repository()
repo.define("busy", MODEL, CONFIG)
repo.define("quiet", MODEL, CONFIG)
repo.infer("busy", {"IN": np.float32([1])})
found = shell.run_line_magic("tritonrepo", "idle")
assert found == bls.idle_models() and found.names == ("quiet",) and found.loaded == 2, found
shown, _ = shell.display_formatter.format(found)
assert "1 of 2 models are idle" in shown["text/plain"], shown
assert "<code>quiet</code>" in shown["text/html"], shown
assert "idle" in shell.complete("", "%tritonrepo id", 14)[1]
assert "list the models that have not answered" in shell.find_line_magic("tritonrepo").__doc__
"""


@pytest.mark.slow
def test_the_capability_of_the_document_works(tmp_path: Path) -> None:
    text = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    files = re.findall(r"Put this into `([\w/]+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in files] == [
        "idle_models/records.py", "idle_models/idle.py", "idle_models/__init__.py",
    ]  # fmt: skip
    assert 50 <= sum(len(code.splitlines()) for _, code in files) <= 75
    for name, code in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code, encoding="utf-8")
    (group, entry) = re.findall(r"\[project\.entry-points\.\"([\w.]+)\"\]\n(.*?)\n```", text, re.DOTALL)[0]
    installed = tmp_path / "idle_models-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: idle-models\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[{group}]\n{entry.replace(chr(34), '')}\n")
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    environ = {**os.environ, "PYTHONPATH": path, "IPYTHONDIR": str(tmp_path / "ipython")}
    done = subprocess.run(
        [sys.executable, "-c", USE], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
