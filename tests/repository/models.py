"""Sources and folders of small models for the tests of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bls_notebook as bls

TEXT = 'output [{ name: "OUT" data_type: TYPE_STRING dims: [-1] }]'
ECHO = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""
FLOATS = """
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
"""
HEAD = """
import numpy as np
import triton_python_backend_utils as pb_utils
"""


def saying(expression: str, before: str = "", inside: str = "") -> str:
    """Source of a model whose output is the text of an expression."""
    lines = "\n".join("        " + line for line in inside.splitlines())
    return f"""{before}{HEAD}

class TritonPythonModel:
    def execute(self, requests):
{lines}
        text = np.array([str({expression})], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for _ in requests]
"""


def with_method(source: str, method: str, body: str) -> str:
    """Add a method to the class of a model, given as its signature without ``def`` and its body."""
    lines = "\n".join("        " + line for line in body.splitlines())
    return source.replace("    def execute", f"    def {method}:\n{lines}\n\n    def execute", 1)


ECHOES = f"""{HEAD}

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests
        ]
"""


def write(root: Path, name: str, source: str, config: str = TEXT, version: Any = 1, **files: str) -> Path:
    """Write a model to a folder; `files` are beside model.py, by their paths without ``.py``."""
    folder = root / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(source, encoding="utf-8")
    (root / name / "config.pbtxt").write_text(f'backend: "python"\n{config}', encoding="utf-8")
    for key, content in files.items():
        file = folder / f"{key}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return folder


def said(repo: bls.ModelRepository, name: str, version: int = -1) -> str:
    """What a model says; an error's message where it fails."""
    response = repo.infer(name, {}, version=version)
    if response.error is not None:
        return str(response.error.message())
    return str(response["OUT"].as_numpy()[0].decode())


def values(response: Any, name: str = "Y") -> list[float]:
    """The values of an output; an error fails the test."""
    assert response.error is None, response.error
    return list(response[name].as_numpy().tolist())
