"""Tensors on GPUs of models in processes: CUDA IPC with a substitute for the driver, and simulated GPUs."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.backends.processes import cuda_driver
from bls_notebook.devices import registry
from bls_notebook.devices.cuda_gpus import CudaGPUs
from bls_notebook.devices.transfers import to_cpu
from bls_notebook.pb_utils import Tensor
from bls_notebook.simulation import gpu_memory
from tests.backends.processes import fake_cupy, fake_libcuda
from tests.backends.processes.models import IO, apart, define, x
from tests.engine.harness import until

__all__ = ["apart"]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has memory files")

CAPACITY = 8 << 20
KEEPS = f"""{IO}
parameters {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS" value {{ string_value: "no" }} }}
instance_group {{ kind: KIND_GPU gpus: [ 0 ] }}
"""
FAKE = f"""
{Path(fake_libcuda.__file__).read_text().replace("from __future__ import annotations", "")}
ctypes.CDLL = loads(ctypes.CDLL)
def shown(index, values):
    address = fake.allocate(4 * len(values) + 256)  # the array is not at its begin
    host = over(address + 256, np.shape(values), np.int32)
    host[...] = values
    return Foreign(host, index)
"""
ADDS = """
class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            tensor = pb.get_input_tensor_by_name(request, "X")
            array = Foreign.of(tensor)
            assert not tensor.is_cpu() and tensor.__dlpack_device__() == (2, array.index)
            more = {"values": str(array.host.tolist())}
            out.append(pb.InferenceResponse([pb.Tensor.from_dlpack("Y", shown(array.index, array.host + 1))],
                                            parameters=more))
        return out
"""
PASSES = """
class TritonPythonModel:
    kept = None
    def execute(self, requests):
        out = []
        for request in requests:
            tensor = pb.get_input_tensor_by_name(request, "X")
            if tensor.shape()[0] == 2:
                self.kept = tensor
            memory = pb.PreferredMemory(pb.TRITONSERVER_MEMORY_GPU, 1)
            asked = pb.InferenceRequest(model_name="callee", inputs=[tensor], requested_output_names=["Y"],
                                        preferred_memory=memory)
            response = asked.exec()
            if response.has_error():
                raise pb.TritonModelException(response.error().message())
            output = pb.get_output_tensor_by_name(response, "Y")
            out.append(pb.InferenceResponse([pb.Tensor.from_dlpack("Y", output)],
                                            parameters={"device": str(output.__dlpack_device__()[1]),
                                                        "pid": os.getpid()}))
        return out
"""


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CUDA's GPUs, on host memory; afterwards no block and no open handle is left."""
    bls.simulate_gpus(0)
    module = fake_cupy.fake_cupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(ctypes, "CDLL", fake_libcuda.loads(ctypes.CDLL))
    monkeypatch.setattr(cuda_driver, "_drivers", [])
    there = CudaGPUs()
    monkeypatch.setattr(registry, "_cuda", there)
    monkeypatch.setattr(registry, "_asked_cuda", True)
    monkeypatch.setitem(registry.gpu_arrays, there.array_class, there)
    yield module
    gc.collect()
    assert (fake_cupy.used, fake_libcuda.fake.opened) == ([0, 0], 0)


def output(response: Any) -> Tensor:
    assert response.error is None, response.error
    (tensor,) = response.output_tensors()
    return tensor


def list_of(tensor: Tensor) -> list[int]:
    """Return the values of a tensor on a GPU."""
    return np.asarray(to_cpu(tensor._array)).tolist()


def test_cuda_inputs_and_outputs_stay_on_their_gpu(cuda: Any, apart: bls.ModelRepository) -> None:
    assert define(apart, "m", FAKE + ADDS, KEEPS).warnings == ()
    for index in 0, 1:
        for values in [0, 1, 2], [], list(range(300)):
            response = apart.infer("m", {"X": cuda.asarray(np.array(values, np.int32), index)})
            assert response.error is None, response.error
            assert response.parameters()["values"] == str(values)
            tensor = output(response)
            assert (tensor.is_cpu(), tensor.__dlpack_device__()) == (False, (2, index))
            assert list_of(tensor) == [value + 1 for value in values]


@pytest.mark.parametrize("isolation", ["kernel", "process"])
def test_cuda_tensors_of_bls_in_both_directions(cuda: Any, apart: bls.ModelRepository, isolation: str) -> None:
    define(apart, "callee", FAKE + ADDS, KEEPS)
    define(apart, "m", (FAKE if isolation == "process" else "") + PASSES, KEEPS, isolation=isolation)
    response = apart.infer("m", {"X": cuda.asarray(np.arange(3, dtype=np.int32))})
    assert list_of(output(response)) == [1, 2, 3]
    assert response.parameters()["device"] == "1"


def test_memory_of_an_asynchronous_allocator_is_copied_with_a_warning(
    cuda: Any, apart: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_cupy.Pooled, "shareable", False)
    define(apart, "m", FAKE + ADDS, KEEPS)
    response = apart.infer("m", {"X": cuda.asarray(np.arange(3, dtype=np.int32))})
    assert list_of(output(response)) == [1, 2, 3]
    (warning,) = response.record.warnings
    assert "'X' was copied on its GPU" in warning
    assert "a server reports an error" in warning


def test_cuda_memory_is_kept_until_the_process_drops_it_or_dies(cuda: Any, apart: bls.ModelRepository) -> None:
    define(apart, "callee", FAKE + ADDS, KEEPS)
    define(apart, "m", FAKE + PASSES, KEEPS)
    apart.infer("m", {"X": cuda.asarray(np.arange(3, dtype=np.int32))})
    until(lambda: fake_cupy.used == [0, 0], "memory is left")
    kept = apart.infer("m", {"X": cuda.asarray(np.arange(2, dtype=np.int32))})
    pid = int(kept.parameters()["pid"])
    del kept
    until(lambda: fake_cupy.used == [8, 0], "not only the tensor that the model keeps is left")
    os.kill(pid, signal.SIGKILL)
    until(lambda: fake_cupy.used == [0, 0], "memory of a dead process is left")
    assert list_of(output(apart.infer("m", {"X": cuda.asarray(np.arange(3, dtype=np.int32))}))) == [1, 2, 3]


def test_outputs_go_to_the_cpu_with_a_warning_if_the_kernel_has_no_cupy(
    cuda: Any, apart: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_cuda", None)
    source = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor.from_dlpack("Y", shown(0, [7]))]) for request in requests]
"""
    define(apart, "m", FAKE + source)
    response = apart.infer("m", x(1))
    assert output(response).as_numpy().tolist() == [7]
    assert [text for text in response.warnings if "the kernel has no CuPy" in text]


def test_a_gpu_that_the_process_does_not_have_is_an_error(cuda: Any, apart: bls.ModelRepository) -> None:
    define(apart, "m", ADDS, KEEPS)  # its process has no driver
    assert "load it again" in str(apart.infer("m", {"X": cuda.asarray(np.arange(3, dtype=np.int32))}).error)


@pytest.fixture
def simulated() -> Iterator[Any]:
    bls.simulate_gpus(2, CAPACITY, even_with_cuda=True)
    yield bls.cupy()
    gc.collect()
    assert [gpu.used for gpu in gpu_memory.gpus()] == [0, 0]
    bls.simulate_gpus(0)


CUPY = """
import cupy, cupy.linalg
from cupy.cuda import Device

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            tensor = pb.get_input_tensor_by_name(request, "X")
            kind, index = tensor.__dlpack_device__()
            with Device(index):
                array = cupy.from_dlpack(tensor.to_dlpack()) + 1
                if array.size == 1:
                    cupy.zeros(1 << 21)
            more = {"where": f"{tensor.is_cpu()} {kind} {cupy.cuda.runtime.getDeviceCount()} {type(array).__name__}"}
            out.append(pb.InferenceResponse([pb.Tensor.from_dlpack("Y", array)], parameters=more))
        return out
"""


@pytest.mark.parametrize("size", [0, 3, 30_000])
@pytest.mark.parametrize("isolation", ["kernel", "process"])
def test_simulated_gpus_in_a_process(simulated: Any, apart: bls.ModelRepository, size: int, isolation: str) -> None:
    assert define(apart, "callee", CUPY, KEEPS, isolation=isolation).warnings == ()
    with simulated.cuda.Device(1):
        given = simulated.arange(size).astype(np.int32)
    response = apart.infer("callee", {"X": given})
    assert response.parameters()["where"] == "False 2 2 ndarray"
    assert output(response).__dlpack_device__() == (2, 1)
    assert list_of(output(response)) == list(range(1, size + 1))
    define(apart, "m", PASSES, KEEPS, isolation=isolation)
    response = apart.infer("m", {"X": given})
    assert response.parameters()["device"] == "1"
    assert list_of(output(response)) == list(range(1, size + 1))


def test_a_load_warns_of_pytorch_which_sees_no_simulated_gpu_in_a_process(
    simulated: Any, apart: bls.ModelRepository
) -> None:
    source = 'sys.modules["torch"] = sys\n' + CUPY  # as if it were installed
    (warning,) = define(apart, "m", source, KEEPS).warnings
    assert "the model imports PyTorch" in warning


def test_a_simulated_gpu_of_a_process_is_full(simulated: Any, apart: bls.ModelRepository) -> None:
    define(apart, "m", CUPY, KEEPS)
    error = apart.infer("m", {"X": simulated.zeros(1, np.int32)}).error
    assert "Out of memory allocating 16,777,216 bytes" in str(error)


def test_a_recording_has_each_tensor_on_a_gpu_once(simulated: Any, apart: bls.ModelRepository) -> None:
    seen = []
    for isolation in "kernel", "process":
        define(apart, "m", CUPY, KEEPS, isolation=isolation)
        with bls.track_memory() as track:
            apart.infer("m", {"X": simulated.zeros(30_000, np.int32)})
        lives = [life for life in track.record.lives if life.device == "gpu:0" and life.tensor]
        seen.append([(life.tensor, life.bytes, life.how, life.died >= 0) for life in lives])
    assert seen[0] == seen[1]
    assert [name for name, *_ in seen[0]] == ["X", "X", "Y"]  # the notebook's, and the model's own copy


def test_text_on_a_gpu_passes_through_a_process(simulated: Any, apart: bls.ModelRepository) -> None:
    texts = KEEPS.replace("TYPE_INT32", "TYPE_STRING")
    source = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("Y", np.array([b"ab", b"c"], np.object_))]) for request in requests]
"""
    takes = """
class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            memory = pb.PreferredMemory(pb.TRITONSERVER_MEMORY_GPU, 0)
            asked = pb.InferenceRequest(model_name="a", inputs=request.inputs(), requested_output_names=["Y"],
                                        preferred_memory=memory)
            output = pb.get_output_tensor_by_name(asked.exec(), "Y")
            assert not output.is_cpu()
            out.append(pb.InferenceResponse([output]))
        return out
"""
    define(apart, "a", source, texts)
    define(apart, "m", takes, texts)
    given = apart.infer("m", {"X": ["x"]}, preferred_memory="cpu")
    assert output(given).as_numpy().tolist() == [b"ab", b"c"]
