"""Runs of graphs with BF16 tensors, which NumPy lacks: their bits travel as uint16."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .session import runtime

_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
_Array = np.ndarray[Any, Any]


def run(session: Any, names: list[str], feed: dict[str, _Array], options: Any) -> list[_Array]:
    """Return the outputs of a run, BF16 ones as the uint16 of their bits.

    BYTES tensors beside BF16 ones are not possible.
    """
    value = runtime().OrtValue
    types = {i.name: i.type for i in [*session.get_inputs(), *session.get_overridable_initializers()]}
    values = {
        name: value.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), _BFLOAT16)
        if types.get(name) == "tensor(bfloat16)"
        else value.ortvalue_from_numpy(array)
        for name, array in feed.items()
    }
    return [_array(v) for v in session.run_with_ort_values(names, values, options)]


def _array(value: Any) -> _Array:
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()  # type: ignore[no-any-return]
    content = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bytearray(content), np.uint16).reshape(value.shape())
