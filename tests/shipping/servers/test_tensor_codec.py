"""Arrays to the protocol's bytes and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bls_notebook.engine.errors import BLSError
from bls_notebook.network.kserve import json_codec
from bls_notebook.network.kserve.tensors import DTYPES
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.repository.requests.inputs import tensors_of
from bls_notebook.shipping.servers.tritonserver import _native, decode_result

NUMPY_OF = {name: dtype for name, dtype in DTYPES.items() if name != "BF16"}


def encode_request(inputs: dict[str, Any], request_id: str = "") -> tuple[bytes, int]:
    request = InferenceRequest(
        request_id, 0, tensors_of("m", {name: _native(value) for name, value in inputs.items()}, None), [], "m"
    )
    parts = json_codec.encode_request(request, True, binary=True)
    return b"".join(parts), len(parts[0])


def answer_of(body: bytes, json_length: int) -> tuple[bytes, str]:
    request = json.loads(body[:json_length])
    text = json.dumps(
        {"model_name": "m", "model_version": "3", "id": request.get("id", ""), "outputs": request["inputs"]}
    ).encode()
    return text + body[json_length:], str(len(text))


dtypes = st.sampled_from(list(NUMPY_OF.values()))
arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), arrays, max_size=3))
def test_arrays_survive_a_round_trip(inputs: dict[str, np.ndarray]) -> None:
    result = decode_result(*answer_of(*encode_request(inputs, request_id="r1")))
    assert (result.model, result.version, result.request_id) == ("m", "3", "r1")
    assert list(result.outputs) == list(inputs)
    for name, array in inputs.items():
        got = result[name]
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert got.flags.writeable


def test_text_and_numbers_become_utf8() -> None:
    array = np.array([["é", 7], [b"\xff", None]], np.object_)
    got = decode_result(*answer_of(*encode_request({"S": array})))["S"]
    assert got.tolist() == [["é".encode(), b"7"], [b"\xff", b"None"]]


@pytest.mark.parametrize(
    "array", [np.arange(12, dtype=">i4").reshape(3, 4), np.arange(24, dtype=np.int32).reshape(3, 8)[:, ::2].T]
)
def test_any_layout_is_sent_as_little_endian_rows(array: np.ndarray) -> None:
    got = decode_result(*answer_of(*encode_request({"A": array})))["A"]
    np.testing.assert_array_equal(got, array)
    assert got.dtype == np.int32


def test_bf16_is_widened() -> None:
    text = json.dumps(
        {"outputs": [{"name": "B", "datatype": "BF16", "shape": [3], "parameters": {"binary_data_size": 6}}]}
    ).encode()
    data = np.array([0x3F80, 0xC040, 0x7F80], "<u2").tobytes()
    got = decode_result(text + data, str(len(text)))["B"]
    assert got.dtype == np.float32
    assert got.tolist() == [1.0, -3.0, float("inf")]


def test_an_answer_without_binary_parts_needs_no_length() -> None:
    result = decode_result(b'{"model_name": "m", "outputs": [], "parameters": {"k": 1}}', None)
    assert (result.as_numpy(), result.parameters) == ({}, {"k": 1})


def test_a_dtype_that_triton_lacks_is_named() -> None:
    with pytest.raises(BLSError, match=r"input 'A': got an array of dtype complex128"):
        encode_request({"A": np.zeros(2, np.complex128)})
