"""Make tensors and parameters of a request from Python values: arrays as they are, other values by the config.

Parameters are those of Triton's HTTP endpoint, which accepts more than a model may send by BLS: floats, and
a ``priority``, which the server keeps for itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bls_notebook.devices.device import Device, parse_device
from bls_notebook.engine.core.spec import ModelSpec, TensorSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils import MemoryType, PreferredMemory, Tensor, TritonModelException
from bls_notebook.pb_utils.dtypes import element_bytes, to_bits
from bls_notebook.pb_utils.options import InferenceTrace
from bls_notebook.records.visible_text import first_line


def tensors_of(model: str, inputs: Mapping[str, Any], spec: ModelSpec | None) -> list[Tensor]:
    """Return tensors for a request to a model; `spec` is its own, where it is ready.

    NumPy arrays and tensors are sent as they are, also of a wrong dtype; lists, numbers and text take the
    input's data type. Arrays of ml_dtypes.bfloat16 are BF16.
    """
    if inputs.__class__ is not dict and not isinstance(inputs, Mapping):
        raise BLSError(
            f"model {model!r}: inputs: got {type(inputs).__name__}, expected a dict of names to arrays, such "
            'as {"INPUT0": array}'
        )
    return made_tensors(model, inputs, None if spec is None else spec.inputs, "input")


def made_tensors(
    model: str, values: Mapping[str, Any], specs: Mapping[str, TensorSpec] | None, what: str
) -> list[Tensor]:
    """Return tensors of values by their names, `what` being an ``input`` or an ``output`` of a model."""
    out = []
    for name, value in values.items():
        wanted = specs.get(name) if specs is not None else None
        try:
            out.append(_tensor(name, value, wanted))
        except (TypeError, ValueError, OverflowError, TritonModelException) as error:
            expected = f"{wanted.datatype} of shape {list(wanted.shape)}" if wanted else "an array"
            reason = first_line(str(error))
            raise BLSError(
                f"model {model!r}, {what} {name!r}: got {_short(value)}, expected {expected}: {reason}"
            ) from error
    return out


def _tensor(name: str, value: Any, wanted: TensorSpec | None) -> Tensor:
    if value.__class__ is np.ndarray and value.dtype.kind in "biuf":  # most are
        return Tensor(name, value)
    if isinstance(value, Tensor):
        return value if value.name() == name else Tensor._of(name, value._array, value._datatype)
    if not isinstance(value, np.ndarray):
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return Tensor.from_dlpack(name, value)
        if wanted is None:
            value = np.asarray(value)
        else:
            value = _array(value, np.dtype(np.float32) if wanted.datatype == "BF16" else wanted.dtype)
            if value.ndim == 0:  # one number or text stands for one element
                value = value.reshape((1,) * len(wanted.shape))
            if wanted.datatype == "BF16":
                return Tensor._of(name, to_bits(value), "BF16")
    if value.dtype.name == "bfloat16":
        return Tensor._of(name, to_bits(value), "BF16")
    if value.dtype.kind == "U":
        value = value.astype(np.object_)
    if value.dtype.kind == "O":
        for element in value.reshape(-1).tolist():
            element_bytes(element)  # what has no text or no UTF-8 form is found here, not on the way
    return Tensor(name, value)


def _array(value: Any, dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    """A Python value as an array of the input's dtype, where that changes nothing about it."""
    if dtype is None:
        return np.asarray(value)
    if dtype.kind == "O":
        out = np.asarray(value, dtype=object)  # from the start: NumPy's own texts lose trailing zeros
        for element in out.reshape(-1).tolist():
            if element is None or isinstance(element, (list, tuple, dict, set)):
                raise ValueError(f"{element!r} is no text")
        return out
    array = np.asarray(value)
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "biuf" or array.dtype.kind == "O":
        raise ValueError(f"{array.dtype} values are no {dtype} numbers")
    with np.errstate(all="ignore"):
        out = array.astype(dtype)
        if not array.size or (dtype.kind == "f" and array.dtype.kind in "fiu"):
            return out
        if not (out == array).all() or not (out.astype(array.dtype) == array).all():
            raise ValueError(f"{array.dtype} values would be changed by {dtype}; convert them first")
    return out


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {list(value.shape)}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(value).__name__}"


def preferred_memory_of(value: object) -> PreferredMemory | None:
    """Return a preferred memory of ``"cpu"``, ``"gpu"``, ``"gpu:1"``, a Device, a PreferredMemory or None."""
    if value is None or isinstance(value, PreferredMemory):
        return value
    if isinstance(value, Device):
        value = value.name
    if not isinstance(value, str):
        raise BLSError(f"device: got {value!r}, expected 'cpu', 'gpu' or 'gpu:<number>'")
    try:
        kind, index = parse_device(value)
    except ValueError as error:
        raise BLSError(str(error)) from None
    memory = MemoryType.TRITONSERVER_MEMORY_CPU if kind == "cpu" else MemoryType.TRITONSERVER_MEMORY_GPU
    return PreferredMemory(memory, index)


_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_ARGUMENTS = {"timeout": "timeout", "sequence_id": "correlation_id", "sequence_start": "flags", "sequence_end": "flags"}
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_EXPECTED = (
    "expected True for a new trace, W3C's traceparent such as "
    "'00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169203331-01', or a mapping with it (and tracestate, if any)"
)


def client_parameters(parameters: Mapping[str, Any]) -> tuple[str, int]:
    """Return the parameters that reach the model, as JSON text, and the priority; 0 for the default level.

    A whole number beyond 64 bits arrives as a float, as it does by HTTP.
    """
    if not isinstance(parameters, Mapping):
        raise BLSError(f"parameters: got {parameters!r}, expected a dict such as {{'lang': 'en'}}")
    own: dict[str, Any] = {}
    priority = 0
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise BLSError(f"parameters: got the key {name!r}, expected text")
        if name == "priority":
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise BLSError(
                    "parameters: 'priority' is the request's level of priority, a whole number from 0 on; "
                    f"got {value!r}"
                )
            priority = value
        elif name in _ARGUMENTS or name.startswith("triton_") or name == "binary_data_output":
            remedy = f"; give {_ARGUMENTS[name]}= instead" if name in _ARGUMENTS else ""
            raise BLSError(f"parameters: Triton keeps the name {name!r} for itself{remedy}")
        else:
            own[name] = _checked(name, value)
    return json.dumps(own), priority


def _checked(name: str, value: Any) -> str | int | float:
    if not isinstance(value, (bool, int, float, str)):
        raise BLSError(
            f"parameters: {name!r} is {value!r} of type {type(value).__name__}; expected text, a whole "
            "number, a float or a boolean"
        )
    for text in (name, value):
        if isinstance(text, str) and text.encode("utf-8", "ignore") != text.encode("utf-8", "replace"):
            raise BLSError(f"parameters: {name!r} is {value!r}; expected text that has a UTF-8 form")
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        try:
            return float(value)
        except OverflowError:
            raise BLSError(f"parameters: {name!r} is a whole number of more than 1024 bits") from None
    return value


def trace_of(value: object) -> InferenceTrace | None:
    """Return what a request carries for `trace`; None for no trace.

    A mapping is what OpenTelemetry's ``propagate.inject`` fills in, or the headers of a web request; its
    other entries are not looked at. What is no traceparent is an error. (A server would send the request
    without a trace, and not say so.)
    """
    if value is None or value is False:
        return None
    if value is True:
        return InferenceTrace._begin()
    given = value if isinstance(value, Mapping) else {"traceparent": value}
    found = {str(key).lower(): text for key, text in given.items()}
    parent, state = found.get("traceparent"), found.get("tracestate")
    if not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent):
        raise BLSError(f"trace: got {value!r}; {_EXPECTED}")
    if not isinstance(state, (str, type(None))):
        raise BLSError(f"trace: tracestate: got {state!r}, expected text")
    carrier = {"traceparent": parent}
    return InferenceTrace._begin({**carrier, "tracestate": state} if state else carrier)
