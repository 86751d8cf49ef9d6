"""`Tensor`: what it takes, what it shares and what it tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bls_notebook.pb_utils import Tensor, TritonModelException
from bls_notebook.pb_utils.tensor import datatype_of

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
NAMES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"]

arrays = st.sampled_from(DTYPES).flatmap(
    lambda d: npst.arrays(d, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


@pytest.mark.parametrize(("dtype", "name"), list(zip(DTYPES, NAMES, strict=True)))
def test_every_dtype(dtype: str, name: str) -> None:
    tensor = Tensor("T", np.ones((2, 3), dtype))
    assert (datatype_of(tensor), tensor.as_numpy().dtype) == (name, np.dtype(dtype))
    assert repr(tensor) == f"Tensor('T', {name}, shape=[2, 3])"


@pytest.mark.parametrize("dtype", ["l", "q", "L", "Q", "p", "i", "I", "=f4", "b"])
def test_aliases_of_numpys_own_types(dtype: str) -> None:
    kind = np.dtype(dtype)
    expected = f"{'U' if kind.kind == 'u' else ''}INT{kind.itemsize * 8}" if kind.kind in "iu" else "FP32"
    assert datatype_of(Tensor("T", np.zeros(1, dtype))) == expected


@given(arrays)
def test_an_array_is_told_and_shared(array: np.ndarray[Any, Any]) -> None:
    tensor = Tensor("T", array)
    assert (tensor.name(), tensor.shape()) == ("T", list(array.shape))
    assert type(tensor.shape()) is list
    assert all(type(d) is int for d in tensor.shape())
    assert tensor.is_cpu() is True
    assert tensor.__dlpack_device__() == (1, 0)
    assert tensor.as_numpy() is array


@given(arrays.filter(lambda a: a.ndim >= 2), st.sampled_from(["transpose", "step", "fortran", "broadcast"]))
def test_noncontiguous_arrays_are_made_contiguous(array: np.ndarray[Any, Any], how: str) -> None:
    other = {
        "transpose": lambda: array.T,
        "step": lambda: array[:, ::2],
        "fortran": lambda: np.asfortranarray(array),
        "broadcast": lambda: np.broadcast_to(array, (2, *array.shape)),
    }[how]()
    tensor = Tensor("T", other)
    assert tensor.shape() == list(other.shape)
    assert tensor.as_numpy().flags.c_contiguous
    np.testing.assert_array_equal(tensor.as_numpy(), other)


@pytest.mark.parametrize(
    "array",
    [
        *(np.zeros(2, dtype) for dtype in (">f4", "c8", "g", "U1", "M8[s]", "m8[s]", "V3", [("a", "f4")])),
        np.rec.array([(1,)], dtype=[("a", "i4")]),
    ],
    ids=lambda a: str(a.dtype),
)
def test_an_unsupported_dtype(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(TritonModelException, match=r"^NumPy dtype is not supported\.$"):
        Tensor("T", array)


@pytest.mark.parametrize("dtype", ["S0", "S1", "S9", "O"])
def test_bytes_have_no_dlpack(dtype: str) -> None:
    tensor = Tensor("T", np.zeros(2, dtype))
    assert datatype_of(tensor) == "BYTES"
    for export in (tensor.to_dlpack, tensor.__dlpack__):
        with pytest.raises(TritonModelException, match="does not have support for string tensors"):
            export()


def test_objects_of_any_kind_are_kept_as_they_are_until_sent() -> None:
    array = np.array([b"a", "b", 3, None, ["x"]], np.object_)
    assert Tensor("T", array).as_numpy() is array


@pytest.mark.parametrize("value", [None, [1, 2], 1.0, "x", (1,), np.float32(1), memoryview(b"ab"), Tensor])
def test_values_that_are_no_array_are_refused_in_tritons_words(value: object) -> None:
    with pytest.raises(TypeError, match=r"^__init__\(\): incompatible constructor arguments\. The following") as info:
        Tensor("T", value)  # type: ignore[arg-type]
    assert str(info.value).endswith(f"Invoked with: 'T', {value!r}")


@pytest.mark.parametrize("name", [None, 5, 1.0, ["T"], np.array("T")])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        Tensor(name, np.zeros(1))  # type: ignore[arg-type]


def test_names() -> None:
    assert Tensor("\u540d \U0001f600", np.zeros(1)).name() == "\u540d \U0001f600"
    assert Tensor(b"T", np.zeros(1)).name() == "T"  # type: ignore[arg-type]
    with pytest.raises(TritonModelException, match=r"^Tensor name cannot be an empty string\.$"):
        Tensor("", np.zeros(1))


def test_read_only_arrays_and_subclasses_are_taken(tmp_path: Path) -> None:
    read_only = np.frombuffer(b"\1\2", np.uint8)
    assert Tensor("T", read_only).as_numpy() is read_only
    assert not read_only.flags.writeable
    file = np.memmap(tmp_path / "m", np.float32, "w+", shape=(2, 2))
    for array in (np.array([[1.0, 2.0]]).view(np.matrix), file, np.zeros(2).view(np.recarray)):
        tensor = Tensor("T", array)
        assert tensor.as_numpy() is array
        assert tensor.shape() == list(array.shape)
    file._mmap.close()  # type: ignore[attr-defined]


def test_masked_arrays_are_refused_as_on_a_server() -> None:
    with pytest.raises(AttributeError, match=r"c_contiguous.*filled"):
        Tensor("T", np.ma.MaskedArray(np.arange(3), mask=[0, 1, 0]))


def test_subclasses_of_tensors_are_tensors_without_new_attributes() -> None:
    class Named(Tensor):
        pass

    assert Named("T", np.zeros(1)).name() == "T"
    with pytest.raises(AttributeError):
        Tensor("T", np.zeros(1)).extra = 1  # type: ignore[attr-defined]
