"""Tensors on CUDA's GPUs of models in processes; the models use CuPy and PyTorch where they are installed.

`test_gpu_tensors.py` tests the same with a substitute for the driver.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import registry
from tests.backends.processes.models import apart, define
from tests.backends.processes.test_gpu_tensors import KEEPS, PASSES, list_of, output
from tests.engine.harness import until

__all__ = ["apart"]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(sys.platform == "win32", reason="needs Linux")]

CUPY = """
import cupy

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            tensor = pb.get_input_tensor_by_name(request, "X")
            with cupy.cuda.Device(tensor.__dlpack_device__()[1]):
                array = cupy.from_dlpack(tensor) + 1
                out.append(pb.InferenceResponse([pb.Tensor.from_dlpack("Y", array)]))
        return out
"""
ASYNCHRONOUS = CUPY.replace(
    "import cupy\n", "import cupy\ncupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)\n"
)
TORCH = """
import torch
from torch.utils.dlpack import from_dlpack

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            tensor = from_dlpack(pb.get_input_tensor_by_name(request, "X").to_dlpack())
            assert tensor.is_cuda
            out.append(pb.InferenceResponse([pb.Tensor.from_dlpack("Y", tensor + 1)]))
        return out
"""
SOURCES = {"cupy": CUPY, "asynchronous": ASYNCHRONOUS, "torch": TORCH}


@pytest.fixture
def cupy() -> Iterator[Any]:
    bls.simulate_gpus(0)
    assert registry.cuda() is not None
    module = bls.cupy()
    before = module.cuda.get_allocator()
    yield module
    module.cuda.set_allocator(before)


@pytest.mark.parametrize("library", SOURCES)
def test_inputs_and_outputs_on_a_gpu(cupy: Any, apart: bls.ModelRepository, library: str) -> None:
    if library == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    define(apart, "m", SOURCES[library], KEEPS)
    for index in range(min(2, cupy.cuda.runtime.getDeviceCount())):
        with cupy.cuda.Device(index):
            block = cupy.arange(1 << 20, dtype=np.int32)
            for given in block, block[100:103], block[:1]:
                response = apart.infer("m", {"X": given})
                assert output(response).__dlpack_device__() == (2, index)
                assert list_of(output(response)) == (given.get() + 1).tolist()
            assert list_of(output(apart.infer("m", {"X": block[:0]}))) == []


def test_an_input_of_an_asynchronous_allocator(cupy: Any, apart: bls.ModelRepository) -> None:
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    define(apart, "m", CUPY, KEEPS)
    assert list_of(output(apart.infer("m", {"X": cupy.arange(300, dtype=np.int32)}))) == list(range(1, 301))


@pytest.mark.parametrize("isolation", ["kernel", "process"])
def test_bls_in_both_directions(cupy: Any, apart: bls.ModelRepository, isolation: str) -> None:
    index = min(1, cupy.cuda.runtime.getDeviceCount() - 1)
    define(apart, "callee", CUPY, KEEPS)
    define(apart, "m", PASSES.replace("GPU, 1)", f"GPU, {index})"), KEEPS, isolation=isolation)
    response = apart.infer("m", {"X": cupy.arange(30_000, dtype=np.int32)})
    assert list_of(output(response)) == list(range(1, 30_001))
    assert response.parameters()["device"] == str(index)


def test_memory_of_a_killed_process_is_free(cupy: Any, apart: bls.ModelRepository) -> None:
    pool = cupy.get_default_memory_pool()
    define(apart, "callee", CUPY, KEEPS)
    define(apart, "m", PASSES.replace("GPU, 1)", "GPU, 0)").replace("shape()[0] == 2", "shape()[0] > 2"), KEEPS)
    before = pool.used_bytes()
    for _ in range(2):
        kept = apart.infer("m", {"X": cupy.arange(1 << 20, dtype=np.int32)})
        pid = int(kept.parameters()["pid"])
        del kept
        until(lambda: pool.used_bytes() == before + (4 << 20), "not only the tensor that the model keeps is left")
    os.kill(pid, signal.SIGKILL)
    until(lambda: pool.used_bytes() == before, "memory of a dead process is left")
    assert list_of(output(apart.infer("m", {"X": cupy.arange(2, dtype=np.int32)}))) == [1, 2]
