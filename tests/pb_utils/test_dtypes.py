"""Triton's data types, NumPy's, and the wire form of BYTES tensors."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bls_notebook import pb_utils

KINDS = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "object",
]  # fmt: skip
NAMES = [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "STRING",
]  # fmt: skip
NUMBERS = {name: (number, np.dtype(kind).type) for number, (name, kind) in enumerate(zip(NAMES, KINDS, strict=True), 1)}


@pytest.mark.parametrize("name", NUMBERS)
def test_serialized_bytes_are_deserialized(name: str) -> None:
    number, kind = NUMBERS[name]
    assert pb_utils.triton_to_numpy_type(number) is kind
    assert pb_utils.numpy_to_triton_type(kind) == number
    assert pb_utils.numpy_to_triton_type(np.dtype(kind)) == number
    assert np.dtype(pb_utils.triton_string_to_numpy(f"TYPE_{name}")) == np.dtype(kind)
    assert type(pb_utils.numpy_to_triton_type(kind)) is int


def test_the_table_is_tritons() -> None:
    assert set(pb_utils.TRITON_STRING_TO_NUMPY) == {f"TYPE_{name}" for name in NUMBERS}
    assert pb_utils.TRITON_STRING_TO_NUMPY["TYPE_BOOL"] is bool


@pytest.mark.parametrize("number", [-1, 0, 14, 15, 99])
def test_a_number_without_a_numpy_type_is_none(number: int) -> None:
    assert pb_utils.triton_to_numpy_type(number) is None


LACKED = (
    *(np.complex64, np.longdouble, float, bool, object, "float32", "U3", object()),
    *map(np.dtype, ("M8[s]", "S3", ">i4", "V4")),
)


@pytest.mark.parametrize("kind", LACKED)
def test_a_numpy_type_that_triton_lacks_is_none(kind: Any) -> None:
    assert pb_utils.numpy_to_triton_type(kind) is None


@pytest.mark.parametrize("kind", [np.dtype("S"), np.dtype(object), np.bytes_])
def test_types_of_bytes_tensors(kind: Any) -> None:
    assert pb_utils.numpy_to_triton_type(kind) == 13


@pytest.mark.parametrize("text", ["TYPE_BF16", "FP32", "", "TYPE_NONE"])
def test_an_unknown_text_is_a_key_error(text: str) -> None:
    with pytest.raises(KeyError):
        pb_utils.triton_string_to_numpy(text)


def test_the_wire_form_is_tritons() -> None:
    array = np.array([b"ab", "c\u00e9", 7], np.object_)
    expected = b"".join(struct.pack("<I", len(e)) + e for e in (b"ab", "c\u00e9".encode(), b"7"))
    assert pb_utils.serialize_byte_tensor(array) == expected


shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@given(shapes, st.data())
def test_objects_round_trip(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.empty(shape, np.object_)
    elements = data.draw(st.lists(st.binary(max_size=9), min_size=array.size, max_size=array.size))
    array.reshape(-1)[:] = elements
    encoded = pb_utils.serialize_byte_tensor(array)
    if array.size == 0:
        assert encoded == ()
        return
    assert isinstance(encoded, bytes)
    back = pb_utils.deserialize_bytes_tensor(encoded)
    assert (back.dtype, back.shape, back.tolist()) == (np.object_, (array.size,), elements)
    assert all(type(e) is bytes for e in back)


@given(st.lists(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()), min_size=1))
def test_objects_are_serialized_as_their_text(values: list[Any]) -> None:
    array = np.empty(len(values), np.object_)
    array[:] = values
    encoded: Any = pb_utils.serialize_byte_tensor(array)
    assert pb_utils.deserialize_bytes_tensor(encoded).tolist() == [str(v).encode() for v in values]


OBJECTS = np.array([[b"a", b"b"], [b"c", b"d"]], np.object_)


@pytest.mark.parametrize(
    ("array", "elements"),
    [
        (np.asfortranarray(OBJECTS), [b"a", b"b", b"c", b"d"]), (OBJECTS.T.copy().T, [b"a", b"b", b"c", b"d"]),
        (OBJECTS[:1].view(np.matrix), [b"a", b"b"]), (np.array([b"a\0b\0", b"\0", b""], "S6"), [b"a\0b", b"", b""]),
        (np.ma.MaskedArray(np.array([b"a", b"b"]), mask=[True, False]), [b"a", b"b"]),
        (np.ma.MaskedArray(np.array([b"a", b"b"], np.object_), mask=[True, False]), [b"a", b"b"]),
    ],
    ids=["fortran", "transposed", "matrix", "fixed length", "masked bytes", "masked objects"],
)  # fmt: skip
def test_elements_of_any_array_are_sent_in_the_order_of_c(array: np.ndarray[Any, Any], elements: list[bytes]) -> None:
    encoded: Any = pb_utils.serialize_byte_tensor(array)
    assert pb_utils.deserialize_bytes_tensor(encoded).tolist() == elements


@pytest.mark.parametrize("dtype", ["f4", "i8", "U3", "?"])
def test_other_dtypes_have_no_wire_form(dtype: str) -> None:
    assert pb_utils.serialize_byte_tensor(np.ones(2, dtype)) is None


def test_any_buffer_can_be_read() -> None:
    assert pb_utils.deserialize_bytes_tensor(b"").shape == (0,)
    encoded: Any = pb_utils.serialize_byte_tensor(np.array([b"abc", b""], np.object_))
    for buffer in (bytearray(encoded), memoryview(encoded), np.frombuffer(encoded, np.uint8)):
        assert pb_utils.deserialize_bytes_tensor(buffer).tolist() == [b"abc", b""]  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=5), min_size=1), st.data())
def test_a_cut_is_noticed(elements: list[bytes], data: st.DataObject) -> None:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    encoded: Any = pb_utils.serialize_byte_tensor(array)
    whole = {0}
    for element in elements:
        whole.add(max(whole) + 4 + len(element))
    cut = data.draw(st.sampled_from([i for i in range(len(encoded)) if i not in whole]))
    with pytest.raises(struct.error):
        pb_utils.deserialize_bytes_tensor(encoded[:cut])


def test_a_list_cannot_be_serialized() -> None:
    with pytest.raises(AttributeError, match="'list' object has no attribute 'size'"):
        pb_utils.serialize_byte_tensor([b"a"])  # type: ignore[arg-type]
