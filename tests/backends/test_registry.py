"""Backends by name: those there are, one of one's own, and none of that name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.backends import protocol as registry
from bls_notebook.backends.protocol import BackendError, VersionFiles
from bls_notebook.pb_utils import InferenceResponse, ModelConfig, Tensor


class Doubling:
    """A backend in a few lines: twice the input, plus the number in its file."""

    is_async = False

    def __init__(self, files: VersionFiles) -> None:
        if not (files.folder / files.filename).is_file():
            raise BackendError(f"no {files.filename}", "Unavailable")
        self._plus = float((files.folder / files.filename).read_text("utf-8"))
        self.arguments: dict[str, str] = {}
        self.finalized = 0

    def auto_complete_config(self, config: ModelConfig) -> ModelConfig:
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    def make_instance(self, arguments: dict[str, str]) -> Doubling:
        self.arguments = arguments
        return self

    def execute(self, requests: list[Any]) -> list[InferenceResponse]:
        return [
            InferenceResponse([Tensor("OUT", r.inputs()[0].as_numpy() * 2 + np.float32(self._plus))]) for r in requests
        ]

    def finalize(self) -> None:
        self.finalized += 1

    def ready(self) -> bool:
        return True


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch) -> Iterator[bls.ModelRepository]:
    monkeypatch.setattr(registry, "_modules", dict(registry._modules))
    with bls.ModelRepository() as repository:
        yield repository


CONFIG = {"backend": "doubling", "default_model_filename": "plus.txt"}


def test_a_backend_of_ones_own(repo: bls.ModelRepository) -> None:
    made: list[Doubling] = []

    def open_model(files: VersionFiles) -> Doubling:
        made.append(Doubling(files))
        return made[-1]

    registry.register_backend_module("doubling", lambda: SimpleNamespace(open_model=open_model))
    record = repo.load("d", CONFIG, {"file:3/plus.txt": b"0.5"})
    assert (record.backend, record.version) == ("doubling", 3)
    assert repo.infer("d", {"IN": [1, 2]})["OUT"].as_numpy().tolist() == [2.5, 4.5]
    assert made[0].arguments["model_version"] == "3"
    assert '"name":"IN"' in made[0].arguments["model_config"]
    repo.unload("d")
    assert made[0].finalized == 1


def test_a_backend_refusal_of_a_load_is_one_line(repo: bls.ModelRepository) -> None:
    registry.register_backend_module("doubling", lambda: SimpleNamespace(open_model=Doubling))
    with pytest.raises(bls.ModelLoadError) as caught:
        repo.load("d", CONFIG, {"file:1/other.txt": b""})
    assert str(caught.value) == "model 'd' version 1 could not be loaded: no plus.txt"
    assert "UNAVAILABLE state: Unavailable: no plus.txt;" in caught.value.reason
    assert not repo.ready("d")


@pytest.mark.parametrize(
    ("name", "runtime", "there"),
    [
        ("pytorch", "model.py", True),
        ("pytorch", "other.so", False),
        ("onnxruntime", "model.py", False),
        ("mine", "model.py", False),
    ],
)
def test_runtimes_of_backends(name: str, runtime: str, there: bool) -> None:
    assert registry.has_runtime(name, runtime) is there


@pytest.mark.slow
def test_a_python_model_imports_the_runtime_of_no_other_backend() -> None:
    code = (
        "import sys, bls_notebook as bls\n"
        "import bls_notebook.engines.onnxruntime, bls_notebook.engines.pytorch\n"
        "repo = bls.ModelRepository()\n"
        "repo.define('m', 'class TritonPythonModel:\\n  def execute(self, requests): return []')\n"
        "print(repo.ready('m'), {'onnxruntime', 'torch'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True set()", done.stderr
