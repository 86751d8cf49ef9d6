"""`pb_utils.Tensor` over memory of a GPU: DLPack in and out without a copy, and Triton's errors."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import dlpack
from bls_notebook.pb_utils import Tensor, TritonModelException
from bls_notebook.pb_utils.tensor import datatype_of
from tests.devices.conftest import Kit, pointer

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
]  # fmt: skip


def test_a_gpu_tensor_tells_its_device(gpu: Kit) -> None:
    tensor = Tensor.from_dlpack("T", gpu.array([[1, 2], [3, 4]]))
    assert not tensor.is_cpu()
    assert (tensor.name(), tensor.shape(), datatype_of(tensor)) == ("T", [2, 2], "FP32")
    assert tensor.__dlpack_device__() == (2, 0)
    assert repr(tensor) == f"Tensor('T', FP32, shape=[2, 2], on {gpu.label()})"
    with pytest.raises(TritonModelException, match=r"^Tensor is stored in GPU and cannot be converted to NumPy\.$"):
        tensor.as_numpy()


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_and_out_without_a_copy(gpu: Kit, dtype: str) -> None:
    x = gpu.array([[0, 1, 1], [1, 0, 1]], dtype=dtype)
    for given in (x, x.__dlpack__(), Tensor.from_dlpack("A", x), Tensor.from_dlpack("A", x).to_dlpack()):
        tensor = Tensor.from_dlpack("T", given)
        assert (pointer(tensor), tensor.shape()) == (x.data.ptr, [2, 3])
        for out in (tensor, tensor.to_dlpack(), tensor.__dlpack__(stream=None)):
            back = gpu.cupy.from_dlpack(out)
            assert (back.data.ptr, back.dtype) == (x.data.ptr, np.dtype(dtype))
            assert (back == x).all()


def test_views_at_an_offset(gpu: Kit) -> None:
    x = gpu.array(np.arange(12).reshape(3, 4))
    tensor = Tensor.from_dlpack("T", x[1:])
    assert gpu.cupy.from_dlpack(tensor).get().tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    tensor = Tensor.from_dlpack("T", x[2].__dlpack__())
    assert gpu.cupy.from_dlpack(tensor).get().tolist() == [8, 9, 10, 11]


@pytest.mark.parametrize("way", [lambda x: x, lambda x: x.__dlpack__()])
def test_only_contiguous_memory_of_tritons_types(gpu: Kit, way: Any) -> None:
    x = gpu.array(np.arange(12).reshape(3, 4))
    for spoilt in (x.T, x[:, ::2], x[:, 1:]):
        with pytest.raises(TritonModelException, match=r"DLPack tensor is not contiguous\. Only"):
            Tensor.from_dlpack("T", way(spoilt))
    with pytest.raises(TritonModelException, match="is not supported by Triton"):
        Tensor.from_dlpack("T", way(gpu.cupy.ones(3, np.complex64)))


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), ()])
def test_empty_tensors_and_scalars(gpu: Kit, shape: tuple[int, ...]) -> None:
    x = gpu.cupy.ones(shape, np.float32)
    for given in (x, x.__dlpack__()):
        tensor = Tensor.from_dlpack("T", given)
        assert (tensor.shape(), gpu.cupy.from_dlpack(tensor).shape) == (list(shape), shape)


def test_bfloat16(gpu: Kit) -> None:
    bits = gpu.array([0x3F80, 0x4000], dtype=np.uint16)
    capsule = bits.__dlpack__()
    dlpack.as_bfloat16(capsule)
    tensor = Tensor.from_dlpack("T", capsule)
    assert (datatype_of(tensor), pointer(tensor)) == ("BF16", bits.data.ptr)
    again = Tensor.from_dlpack("U", tensor.to_dlpack())
    assert (datatype_of(again), pointer(again)) == ("BF16", bits.data.ptr)
    with pytest.raises(TritonModelException, match="stored in GPU"):
        tensor.as_numpy()


def test_a_capsule_is_used_once(gpu: Kit) -> None:
    capsule = gpu.array([1]).__dlpack__()
    Tensor.from_dlpack("T", capsule)
    with pytest.raises(TritonModelException, match="used before"):
        Tensor.from_dlpack("T", capsule)
    with pytest.raises((ValueError, RuntimeError)):
        gpu.cupy.from_dlpack(capsule)


def test_a_capsule_keeps_its_tensor(simulated: Kit) -> None:
    kept = Tensor.from_dlpack("T", simulated.array([1]))
    alone = sys.getrefcount(kept)
    capsule = kept.to_dlpack()
    assert sys.getrefcount(kept) == alone + 1
    again = Tensor.from_dlpack("A", capsule)
    del capsule
    assert (sys.getrefcount(kept), again.is_cpu()) == (alone + 1, False)
    del again
    assert sys.getrefcount(kept) == alone


def test_numpy_cannot_read_it_as_if_it_were_the_cpus(gpu: Kit) -> None:
    tensor = Tensor.from_dlpack("T", gpu.array([1, 2]))
    for exporter in (tensor, tensor._array):
        with pytest.raises((RuntimeError, BufferError, TypeError)):
            np.from_dlpack(exporter)
    assert np.from_dlpack(gpu.array([1, 2]), device="cpu").tolist() == [1, 2]  # a copy, asked for by name


def test_cupy_takes_no_tensor_of_the_cpu(gpu: Kit) -> None:
    with pytest.raises(TypeError, match="CPU arrays cannot be directly imported to CuPy"):
        gpu.cupy.from_dlpack(Tensor("T", np.ones(2)))
    with pytest.raises(RuntimeError):
        gpu.cupy.from_dlpack(Tensor("T", np.ones(2)).to_dlpack())


def test_wrong_arguments(gpu: Kit) -> None:
    with pytest.raises(TypeError, match=r"got an array on a GPU.*use pb_utils\.Tensor\.from_dlpack\('T', array\)"):
        Tensor("T", gpu.array([1]))
    with pytest.raises(TritonModelException, match="cannot be an empty string"):
        Tensor.from_dlpack("", gpu.array([1]))
    with pytest.raises(TypeError):
        Tensor.from_dlpack(3, gpu.array([1]))  # type: ignore[arg-type]


def test_a_gpu_tensor_where_there_is_no_gpu(simulated: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    from bls_notebook.devices import registry

    capsule = simulated.array([1]).__dlpack__()
    monkeypatch.setattr(registry, "_cuda", None)
    monkeypatch.setattr(registry, "_asked_cuda", True)
    bls.simulate_gpus(0)
    with pytest.raises(TritonModelException) as caught:
        Tensor.from_dlpack("T", capsule)
    assert str(caught.value).startswith(
        "DLPack capsule passed pointer to memory allocated on GPU device, when GPU is not available"
    )
    assert "bls.simulate_gpus(1)" in str(caught.value)


def test_memory_of_cuda_is_not_taken_for_simulated_memory(simulated: Kit) -> None:
    host = np.ones(3)
    capsule = host.__dlpack__()
    dlpack.move_capsule(capsule, (2, 0))  # as a framework on a real GPU would give it
    with pytest.raises(TritonModelException, match="which is not a simulated GPU"):
        Tensor.from_dlpack("T", capsule)
    other = np.ones(3).__dlpack__()
    dlpack.move_capsule(other, (10, 0))
    with pytest.raises(TritonModelException, match="DLDevice type 10 is not support"):
        Tensor.from_dlpack("T", other)


def test_torch_refuses_simulated_memory_as_a_machine_without_cuda_does(simulated: Kit) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises((AssertionError, RuntimeError, BufferError)):
        torch.from_dlpack(simulated.array([1, 2]))


@pytest.mark.gpu
def test_torch_on_cuda() -> None:
    torch = pytest.importorskip("torch")
    cupy = pytest.importorskip("cupy")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    bls.simulate_gpus(0)
    x = torch.arange(6, dtype=torch.float32, device="cuda:0")
    for given in (x, torch.utils.dlpack.to_dlpack(x)):
        tensor = Tensor.from_dlpack("T", given)
        assert not tensor.is_cpu()
        assert (pointer(tensor), torch.from_dlpack(tensor).data_ptr()) == (x.data_ptr(), x.data_ptr())
        assert torch.utils.dlpack.from_dlpack(tensor.to_dlpack()).tolist() == x.tolist()
    tensor = Tensor.from_dlpack("T", cupy.arange(4, dtype=cupy.float32))
    assert torch.from_dlpack(tensor).tolist() == [0, 1, 2, 3]
    bits = torch.tensor([1.5, 2.5], dtype=torch.bfloat16, device="cuda:0")
    tensor = Tensor.from_dlpack("T", bits)
    assert datatype_of(tensor) == "BF16"
    back = torch.from_dlpack(tensor)
    assert back.dtype is torch.bfloat16
    assert back.tolist() == [1.5, 2.5]
