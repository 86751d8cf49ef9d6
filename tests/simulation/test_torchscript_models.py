"""TorchScript models on GPUs: where they compute, where their tensors are, and what that takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from bls_notebook.pb_utils import InferenceRequest
from tests.devices.conftest import Kit

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

from tests.engines import torch_modules as modules  # noqa: E402 - it needs PyTorch
from tests.engines.torch_modules import scripted  # noqa: E402

X = np.array([1, 2, 3], np.float32)


@pytest.fixture
def repo(gpu: Kit) -> Iterator[bls.ModelRepository]:
    if not gpu.simulated and not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    with bls.ModelRepository() as repository:
        yield repository


def load(repo: bls.ModelRepository, module: Any, kind: str = "", **config: Any) -> str:
    """Load a model `m` of one input and output; returns the kind of its instances."""
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    whole = {
        "platform": "pytorch_libtorch",
        "input": [{"name": "x", **tensor}],
        "output": [{"name": "y", **tensor}],
        **({"instance_group": [{"kind": kind}]} if kind else {}),
        **config,
    }
    return str(repo.load("m", whole, {"file:1/model.pt": scripted(module)}).instance_kind)


def host(response: bls.Response, gpu: Kit) -> Any:
    assert response.error is None, response.error
    tensor = response["y"]
    return tensor.as_numpy().tolist() if tensor.is_cpu() else gpu.cupy.from_dlpack(tensor).get().tolist()


@pytest.mark.parametrize("source", ["cpu", "gpu:0"])
@pytest.mark.parametrize("preferred", [None, "cpu", "gpu:0"])
def test_outputs_are_where_the_instance_is(
    gpu: Kit, repo: bls.ModelRepository, source: str, preferred: str | None
) -> None:
    given = X if source == "cpu" else gpu.array(X)
    for kind, own in (("", "gpu:0"), ("KIND_CPU", "cpu")):
        assert load(repo, modules.Identity(), kind) == (kind or "KIND_GPU")
        response = repo.infer("m", {"x": given}, preferred_memory=preferred)
        assert response["y"]._device().name == (preferred or own)
        assert host(response, gpu) == X.tolist()
        assert gpu.array(X).get().tolist() == X.tolist()


def test_requests_from_anywhere_are_run_as_one(gpu: Kit, repo: bls.ModelRepository) -> None:
    load(repo, modules.Identity(), max_batch_size=4)
    instance = host_of(repo).ready("m").instances[0].backend.instance  # type: ignore[attr-defined]
    seen: list[tuple[int, ...]] = []
    run = instance._module
    instance._module = lambda x: seen.append(tuple(x.shape)) or run(x)
    tensors = [bls.pb_utils.Tensor("x", X[None]), bls.pb_utils.Tensor.from_dlpack("x", gpu.array(X[None] * 2))]
    requests = [InferenceRequest(model_name="m", requested_output_names=["y"], inputs=[t]) for t in tensors]
    answers = [gpu.cupy.from_dlpack(r.output_tensors()[0]).get().tolist() for r in instance.execute(requests)]
    assert seen == [(2, 3)]
    assert answers == [[X.tolist()], [(X * 2).tolist()]]


@pytest.mark.parametrize("kind", ["KIND_GPU", "KIND_MODEL"])
def test_code_that_names_cuda(gpu: Kit, repo: bls.ModelRepository, kind: str) -> None:
    load(repo, modules.NamesCuda(), kind)
    assert host(repo.infer("m", {"x": X}), gpu) == (X + 2).tolist()


IN_PYTHON = b"""
import torch
assert torch.cuda.is_available()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        assert x.is_cuda and self.weight.is_cuda
        return x + self.weight + torch.ones(3, device="cuda")
"""


def test_a_module_in_python_sees_the_gpu(gpu: Kit, repo: bls.ModelRepository) -> None:
    tensors = {"data_type": "TYPE_FP32", "dims": [3]}
    config = {
        "backend": "pytorch",
        "runtime": "model.py",
        "input": [{"name": "x", **tensors}],
        "output": [{"name": "y", **tensors}],
        "instance_group": [{"kind": "KIND_GPU", "gpus": [0]}],
    }
    for files in ({"file:1/model.py": IN_PYTHON}, {"file:1/model.pt": scripted(modules.NamesCuda())}):
        repo.load("m", config, files)
        for given in (X, gpu.array(X)):
            answer = repo.infer("m", {"x": given})
            assert host(answer, gpu) == (X + 2).tolist()
            assert answer["y"]._device().name == "gpu:0"


def test_code_that_names_cuda_on_the_cpu_is_as_wrong_as_on_a_server(gpu: Kit, repo: bls.ModelRepository) -> None:
    if not gpu.simulated:
        pytest.skip("a real GPU computes it")
    load(repo, modules.NamesCuda(), "KIND_CPU")
    error = repo.infer("m", {"x": X}).error
    assert "PyTorch execute failure: " in error.message()


def test_a_gpu_that_is_full_is_an_error(gpu: Kit, repo: bls.ModelRepository) -> None:
    if not gpu.simulated:
        pytest.skip("would fill a real GPU")
    load(repo, modules.Identity())
    before = gpu.used()
    many = np.zeros(5 << 20, np.uint8).view(np.float32)
    assert repo.infer("m", {"x": many}, preferred_memory="cpu").error is None
    assert gpu.used() == before
    for size, whose in ((10, "outputs"), (25, "inputs")):
        error = repo.infer("m", {"x": np.zeros(size << 18, np.float32)}).error
        assert f"model 'm', {whose}: Out of memory" in error.message()
    assert gpu.used() == before
