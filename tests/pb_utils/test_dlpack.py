"""DLPack, both ways, and how long the memory lives."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bls_notebook.devices import dlpack
from bls_notebook.pb_utils import Tensor, TritonModelException
from bls_notebook.pb_utils.tensor import datatype_of
from tests.pb_utils.conftest import address

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda d: npst.arrays(d, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


class Owned(np.ndarray):  # type: ignore[type-arg]
    """An array whose end can be seen."""


def owned(count: int = 4) -> tuple[np.ndarray[Any, Any], weakref.ref[Any]]:
    array = np.arange(count, dtype=np.float32).view(Owned)
    return array, weakref.ref(array)


def capsule_of_bfloat16(bits: np.ndarray[Any, Any]) -> object:
    made = bits.__dlpack__()
    dlpack.as_bfloat16(made)
    return made


def capsule(code: int, bits: int, lanes: int = 1, device: int = 1) -> Any:
    """A capsule that says of 64 bytes whatever is wanted."""
    made = np.zeros(64, np.uint8).__dlpack__()
    tensor = dlpack._managed(made).contents.dl_tensor
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = code, bits, lanes
    tensor.device.device_type = device
    return made


def count_deletions(made: object, deleted: list[int]) -> object:
    """Note in `deleted` each time that the memory of a capsule is given back; keep what is returned."""
    managed = dlpack._managed(made)
    original = dlpack._DELETER(ctypes.cast(managed.contents.deleter, ctypes.c_void_p).value or 0)

    @dlpack._DELETER
    def deleter(pointer: Any) -> None:
        deleted.append(1)
        original(pointer)

    managed.contents.deleter = deleter
    return deleter


@given(arrays)
def test_memory_is_shared_there_and_back(array: np.ndarray[Any, Any]) -> None:
    tensor = Tensor("A", array)
    read = [Tensor.from_dlpack("B", source) for source in (tensor.to_dlpack(), array, tensor)]
    assert [(back.name(), back.shape()) for back in read] == [("B", list(array.shape))] * 3
    for back in (*(back.as_numpy() for back in read), np.from_dlpack(tensor)):
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
        assert not array.size or address(back) == address(array)


def test_a_read_only_array_is_exported_as_a_copy() -> None:
    array = np.frombuffer(b"\1\2\3", np.uint8)
    read = np.from_dlpack(Tensor("T", array))
    assert read.tolist() == [1, 2, 3]
    assert address(read) != address(array)


def test_a_slice_keeps_its_offset() -> None:
    assert Tensor.from_dlpack("T", np.arange(10)[3:6]).as_numpy().tolist() == [3, 4, 5]
    made = np.arange(10, dtype=np.int64).__dlpack__()
    tensor = dlpack._managed(made).contents.dl_tensor
    tensor.byte_offset = 16
    tensor.shape[0] = 8
    assert Tensor.from_dlpack("T", made).as_numpy().tolist() == list(range(2, 10))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3)).T,
        np.zeros((4, 4))[:, ::2],
        np.asfortranarray(np.zeros((2, 3))),
        *(np.arange(6)[::n] for n in (-1, 2)),
    ],
    ids=["transposed", "step", "fortran", "reversed", "vector with a step"],
)
def test_noncontiguous_dlpack_is_refused(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(TritonModelException, match=r"not contiguous\. Only contiguous DLPack tensors that are"):
        Tensor.from_dlpack("T", array)


@pytest.mark.parametrize("array", [np.zeros((1, 3)).T, np.zeros((3, 1))[:, ::-1], np.zeros((0, 3)).T])
def test_strides_of_single_rows_and_of_nothing_do_not_matter(array: np.ndarray[Any, Any]) -> None:
    assert Tensor.from_dlpack("T", array).shape() == list(array.shape)


@pytest.mark.parametrize("value", [None, 5, "x", [1.0], object(), b"abc"])
def test_values_without_dlpack_are_refused(value: object) -> None:
    with pytest.raises(TritonModelException, match=r"^Provided tensor is not supported\. Tensor must be a DLPack"):
        Tensor.from_dlpack("T", value)


def test_a_capsule_is_used_up() -> None:
    made = np.arange(3).__dlpack__()
    Tensor.from_dlpack("T", made)
    with pytest.raises(TritonModelException, match="used before; make a new one"):
        Tensor.from_dlpack("T", made)


def test_a_capsule_of_something_else_is_refused() -> None:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    with pytest.raises(TritonModelException, match="holds no DLPack tensor"):
        Tensor.from_dlpack("T", new(8, b"other", None))


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_bad_name_leaves_the_capsule_unused(name: object) -> None:
    made = np.arange(3).__dlpack__()
    with pytest.raises((TritonModelException, TypeError)):
        Tensor.from_dlpack(name, made)  # type: ignore[arg-type]
    assert Tensor.from_dlpack("T", made).as_numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize(("code", "bits", "lanes"), [
    *((5, 64, 1), (5, 128, 1), (4, 32, 1), (0, 4, 1), (1, 8, 4)),
    *((7, 8, 1), (0, 128, 1), (2, 128, 1), (2, 8, 1), (6, 16, 1)),
])  # fmt: skip
def test_a_type_that_triton_lacks_leaves_the_capsule_unused(code: int, bits: int, lanes: int) -> None:
    made = capsule(code, bits, lanes)
    with pytest.raises(TritonModelException, match=f"code {code}, {bits} bits, {lanes} lanes.* not supported"):
        Tensor.from_dlpack("T", made)
    dtype = dlpack._managed(made).contents.dl_tensor.dtype
    dtype.code, dtype.bits, dtype.lanes = 1, 8, 1
    assert Tensor.from_dlpack("T", made).shape() == [64]


@pytest.mark.parametrize("device", [2, 4, 7, 13])
def test_memory_that_the_cpu_cannot_read_is_refused(device: int) -> None:
    with pytest.raises(TritonModelException):
        Tensor.from_dlpack("T", capsule(1, 8, 1, device))

    class Elsewhere:
        def __dlpack__(self, stream: Any = None) -> object:
            raise AssertionError("must not be asked")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (device, 0)

    with pytest.raises(TritonModelException):
        Tensor.from_dlpack("T", Elsewhere())


def test_pinned_memory_of_the_cpu_is_read() -> None:
    assert Tensor.from_dlpack("T", capsule(1, 8, 1, 3)).shape() == [64]


def test_the_producer_is_asked_for_no_stream_and_may_raise() -> None:
    asked = []

    class Producer:
        def __dlpack__(self, *, stream: Any) -> object:
            asked.append(stream)
            if len(asked) > 1:
                raise BufferError("busy")
            return np.arange(2).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert (Tensor.from_dlpack("T", Producer()).as_numpy().tolist(), asked) == ([0, 1], [None])
    with pytest.raises(BufferError, match="busy"):
        Tensor.from_dlpack("T", Producer())


def bfloat16(values: list[float]) -> np.ndarray[Any, Any]:
    """The bits of values that BF16 can hold: the upper half of an FP32."""
    return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_bfloat16_has_dlpack_only() -> None:
    bits = bfloat16([1.0, -2.5, 0.0, np.inf])
    tensor = Tensor.from_dlpack("T", capsule_of_bfloat16(bits))
    assert (datatype_of(tensor), tensor.shape()) == ("BF16", [4])
    with pytest.raises(TritonModelException, match=r"^Tensor dtype is BF16 and cannot be converted to NumPy\."):
        tensor.as_numpy()
    again = Tensor.from_dlpack("U", tensor)
    assert datatype_of(again) == "BF16"
    made = again.to_dlpack()
    assert dlpack.take_bfloat16(made)
    read = dlpack.view_of_capsule(made)
    assert (read.tolist(), address(read)) == (bits.tolist(), address(bits))


def test_bfloat16_of_no_elements() -> None:
    tensor = Tensor.from_dlpack("T", capsule_of_bfloat16(np.zeros((0, 2), np.uint16)))
    assert (datatype_of(tensor), tensor.shape()) == ("BF16", [0, 2])


def tensors_in_a_chain(array: Any) -> Tensor:
    tensor = Tensor("T", array)
    for name in "ABCDE":
        tensor = Tensor.from_dlpack(name, tensor)
    assert address(tensor.as_numpy()) == address(array)
    return tensor


@pytest.mark.parametrize(
    "keep",
    [
        lambda array: Tensor("T", array).to_dlpack(), lambda array: array.__dlpack__(), tensors_in_a_chain,
        lambda array: Tensor.from_dlpack("T", array.__dlpack__()),
        lambda array: Tensor.from_dlpack("T", array.__dlpack__()).as_numpy()[1:],
    ],
    ids=["a tensor's capsule", "an unused capsule", "a chain of capsules", "a tensor of a capsule", "a view of it"],
)  # fmt: skip
def test_memory_is_kept_and_freed(keep: Any) -> None:
    array, alive = owned()
    kept = keep(array)
    del array
    gc.collect()
    assert alive() is not None
    assert not isinstance(kept, np.ndarray) or kept.tolist() == [1, 2, 3]
    del kept
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("datatype", ["FP32", "BF16"])
def test_a_capsule_keeps_its_tensor(datatype: str) -> None:
    """As on Triton, where models count its references."""
    kept = Tensor._of("T", np.zeros(4, np.uint16 if datatype == "BF16" else np.float32), datatype)
    alone = sys.getrefcount(kept)
    capsule = kept.to_dlpack()
    assert sys.getrefcount(kept) == alone + 1
    again = Tensor.from_dlpack("A", capsule)
    del capsule
    assert sys.getrefcount(kept) == alone + 1
    del again
    assert sys.getrefcount(kept) == alone


@pytest.mark.parametrize(("shape", "before"), [((4,), []), ((0, 2), [1])], ids=["full", "empty"])
def test_the_producers_deleter_runs_once(shape: tuple[int, ...], before: list[int]) -> None:
    deleted: list[int] = []
    made = np.zeros(shape).__dlpack__()
    keep = count_deletions(made, deleted)
    tensor = Tensor.from_dlpack("T", made)
    del made
    gc.collect()
    assert deleted == before  # nothing of an empty tensor needs to live
    del tensor
    gc.collect()
    assert deleted == [1]
    assert keep is not None


@pytest.mark.slow
def test_torch_both_ways() -> None:
    torch = pytest.importorskip("torch")
    given = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    tensor = Tensor.from_dlpack("T", given)
    assert address(tensor.as_numpy()) == given.data_ptr()
    back = torch.from_dlpack(tensor)
    assert back.data_ptr() == given.data_ptr()
    brain = Tensor.from_dlpack("T", torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert (datatype_of(brain), torch.from_dlpack(brain).tolist()) == ("BF16", [1.5, -2.0])
    with pytest.raises(TritonModelException, match="not contiguous"):
        Tensor.from_dlpack("T", given.T)
