"""Modules in Python (`runtime: "model.py"`): which class and file, weights, batches, and what goes wrong."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

from tests.engines.torch_modules import Identity, scripted, tensor  # noqa: E402 - it needs PyTorch

X = np.array([1, 2, 3], np.float32)

NET = """
import torch
from helper import BY

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x, y):
        assert not torch.is_grad_enabled() and not self.training
        return [x * self.weight * BY, y.to(torch.bfloat16)]
"""
HELPER = b"BY = 10\n"


def load(repo: bls.ModelRepository, files: dict[str, bytes], **config: Any) -> Any:
    whole = {
        "backend": "pytorch", "runtime": "model.py", "input": [tensor("first"), tensor("second")],
        "output": [tensor("scaled"), tensor("small", "BF16")], "instance_group": [{"kind": "KIND_CPU"}], **config,
    }  # fmt: skip
    return repo.load("m", whole, {f"file:1/{name}": content for name, content in files.items()})


def weights(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save({name: torch.tensor(array) for name, array in arrays.items()}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("batch", [0, 4])
def test_a_module_with_weights(repo: bls.ModelRepository, batch: int) -> None:
    files = {"model.py": NET.encode(), "helper.py": HELPER, "model.pt": weights(weight=[1.0, 2.0, 3.0])}
    record = load(repo, files, max_batch_size=batch, parameters={"NUM_THREADS": {"string_value": "2"}})
    assert record.warnings[0].startswith("model 'm': not applied here: NUM_THREADS.")
    x = np.array([X, X]) if batch else X
    answer = repo.infer("m", {"first": x, "second": x})
    assert answer.error is None
    assert answer["scaled"].as_numpy().tolist() == (x * [10, 20, 30]).tolist()
    assert torch.from_dlpack(answer["small"].to_dlpack()).dtype == torch.bfloat16


def test_weights_are_not_needed_and_torchscript_will_do(repo: bls.ModelRepository) -> None:
    load(repo, {"model.py": NET.encode(), "helper.py": HELPER})
    assert repo.infer("m", {"first": X, "second": X})["scaled"].as_numpy().tolist() == [10, 20, 30]
    load(repo, {"model.pt": scripted(Identity())}, input=[tensor("x")], output=[tensor("y")])
    assert repo.infer("m", {"x": X})["y"].as_numpy().tolist() == X.tolist()


def test_instances_and_reloads_have_their_own_code(repo: bls.ModelRepository) -> None:
    two = {"instance_group": [{"kind": "KIND_CPU", "count": 2}]}
    for by in (10, 7):
        load(repo, {"model.py": NET.encode(), "helper.py": f"BY = {by}\n".encode()}, **two)
        assert repo.infer("m", {"first": X, "second": X})["scaled"].as_numpy().tolist() == (X * by).tolist()
    instances = [i.backend.instance for i in host_of(repo).ready("m").instances]
    assert type(instances[0]._module) is not type(instances[1]._module)


@pytest.mark.parametrize(("files", "message"), [
    ({"other.txt": b""}, "No model found in "),
    ({"model.py": b"class Net: pass"}, "Cannot find a subclass of torch.nn.Module in model.py"),
    ({"model.py": b"import nothing_of_the_kind"}, "No module named 'nothing_of_the_kind'"),
    ({"model.py": NET.encode(), "helper.py": HELPER, "model.pt": weights(other=[1.0])},
     "Error(s) in loading state_dict for Net"),
])  # fmt: skip
def test_modules_that_cannot_be_loaded(repo: bls.ModelRepository, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(bls.ModelLoadError) as caught:
        load(repo, files)
    assert message in str(caught.value)


def error_of(repo: bls.ModelRepository, source: str, first: Any = X, **config: Any) -> str:
    load(repo, {"model.py": source.encode(), "helper.py": HELPER}, **config)
    error = repo.infer("m", {"first": first, "second": X}).error
    return error.message()


def test_errors_of_requests(repo: bls.ModelRepository) -> None:
    assert "has no attribute 'missing'" in error_of(repo, NET.replace("[x", "[x + self.missing"))
    three = [tensor(name) for name in "abc"]
    assert "forward returned 2 outputs, expected 3" in error_of(repo, NET, output=three)
    texts, of_text = np.array(["a", "b", "c"], np.object_), [tensor("first", "STRING"), tensor("second")]
    assert "DLPack does not have support for string tensors" in error_of(repo, NET, texts, input=of_text)


def test_the_backends_own_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "backends" / "pytorch").mkdir(parents=True)
    source = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([], pb_utils.TritonError("mine")) for _ in requests]
"""
    (tmp_path / "backends" / "pytorch" / "model.py").write_text(source)
    with bls.ModelRepository(backend_directory=tmp_path / "backends") as repo:
        load(repo, {"model.py": NET.encode()})
        assert repo.infer("m", {"first": X, "second": X}).error.message() == "mine"
