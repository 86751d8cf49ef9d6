"""A repository of a few files, and what a check finds in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook import ModelRepository
from bls_notebook.checking.records import Finding, Findings

Check = Callable[..., list[Finding]]

MODEL = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.of(r))]) for r in requests]

    def of(self, request):
        return pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
"""
CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def execute(body: str, returns: str = "[]") -> str:
    """Return a model with such lines in its `execute`, and a response of such tensors."""
    lines = "\n".join(f"            {line}" for line in body.strip().splitlines())
    head = MODEL.partition("    def execute")[0]
    return (
        f"{head}    def execute(self, requests):\n        responses = []\n"
        f"        for request in requests:\n{lines}\n"
        f"            responses.append(pb_utils.InferenceResponse(output_tensors={returns}))"
        "\n        return responses\n"
    )


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files; a model of the name alone gets MODEL and CONFIG."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def model(name: str, config: str = CONFIG, source: str = MODEL) -> dict[str, str]:
    """Return the files of a model."""
    return {f"{name}/config.pbtxt": config, f"{name}/1/model.py": source}


@pytest.fixture
def findings(tmp_path: Path) -> Callable[..., Findings]:
    def run(files: dict[str, str], *names: str) -> Findings:
        with ModelRepository(write(tmp_path, files)) as repository:
            return bls.check(*names, repo=repository)

    return run


@pytest.fixture
def check(findings: Callable[..., Findings]) -> Check:
    """Return what is found in files, without what is noted about memory."""
    return lambda files, *names: list(findings(files, *names).findings)


def codes(found: list[Finding]) -> list[str]:
    """Return the codes of findings."""
    return [finding.code for finding in found]
