"""Convert Python values to a request's tensors, parameters and options.

Parameters follow Triton's HTTP endpoint, which accepts more than a BLS request: floats, and a ``priority`` that the
server uses and does not pass to the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bls_notebook.devices.device import Device, parse_device
from bls_notebook.engine.core.model_spec import ModelSpec, TensorSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils import MemoryType, PreferredMemory, Tensor, TritonModelException
from bls_notebook.pb_utils.dtypes import element_bytes, to_bits
from bls_notebook.pb_utils.options import InferenceTrace
from bls_notebook.records.visible_text import first_line


def tensors_of(model: str, inputs: Mapping[str, Any], spec: ModelSpec | None) -> list[Tensor]:
    """Return the input tensors of a request; `spec` is the model's, or None if the model is not ready.

    NumPy arrays and tensors are sent unchanged, even with a wrong dtype. Lists, numbers and text are converted to the
    input's data type. Arrays of ml_dtypes.bfloat16 become BF16.
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
    """Convert the named values to tensors; `what` is ``input`` or ``output``, for errors."""
    out = []
    for name, value in values.items():
        spec = specs.get(name) if specs is not None else None
        try:
            out.append(_tensor(name, value, spec))
        except (TypeError, ValueError, OverflowError, TritonModelException) as error:
            expected = f"{spec.datatype} of shape {list(spec.shape)}" if spec else "an array"
            raise BLSError(
                f"model {model!r}, {what} {name!r}: got {_short(value)}, expected {expected}: {first_line(str(error))}"
            ) from error
    return out


def _tensor(name: str, value: Any, spec: TensorSpec | None) -> Tensor:
    if value.__class__ is np.ndarray and value.dtype.kind in "biuf":  # the most frequent case
        return Tensor(name, value)
    if isinstance(value, Tensor):
        return value if value.name() == name else Tensor._of(name, value._array, value._datatype)
    if not isinstance(value, np.ndarray):
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return Tensor.from_dlpack(name, value)
        if spec is None:
            value = np.asarray(value)
        else:
            value = _array(value, np.dtype(np.float32) if spec.datatype == "BF16" else spec.dtype)
            if value.ndim == 0:  # a scalar becomes one element
                value = value.reshape((1,) * len(spec.shape))
            if spec.datatype == "BF16":
                return Tensor._of(name, to_bits(value), "BF16")
    if value.dtype.name == "bfloat16":
        return Tensor._of(name, to_bits(value), "BF16")
    if value.__class__ is not np.ndarray and not isinstance(value.data, memoryview):  # a masked array
        if np.any(getattr(value, "mask", False)):
            raise ValueError("some of its elements are masked; pass array.filled(value)")
        value = np.asarray(value)
    if value.dtype.kind == "U":
        value = value.astype(np.object_)
    if value.dtype.kind == "O":
        for element in value.reshape(-1).tolist():
            element_bytes(element)  # raises for elements without a UTF-8 form
    return Tensor(name, value)


def _array(value: Any, dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    """Convert a Python value to an array of the input's dtype; a ValueError if that would change its values."""
    if dtype is None:
        return np.asarray(value)
    if dtype.kind == "O":
        out = np.asarray(value, dtype=object)  # not via NumPy's str dtype, which drops trailing null characters
        for element in out.reshape(-1).tolist():
            if element is None or isinstance(element, (list, tuple, dict, set)):
                raise ValueError(f"{element!r} is not text")
        return out
    array = np.asarray(value)
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "biuf" or array.dtype.kind == "O":
        raise ValueError(f"{array.dtype} values are not numbers of type {dtype}")
    with np.errstate(all="ignore"):
        out = array.astype(dtype)
        if not array.size or (dtype.kind == "f" and array.dtype.kind in "fiu"):
            return out
        if not (out == array).all() or not (out.astype(array.dtype) == array).all():
            raise ValueError(f"conversion to {dtype} would change the {array.dtype} values; convert them first")
    return out


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {list(value.shape)}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(value).__name__}"


def preferred_memory_of(value: object) -> PreferredMemory | None:
    """Convert ``"cpu"``, ``"gpu"``, ``"gpu:1"`` or a Device to a PreferredMemory; return others unchanged."""
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
    """Return the parameters for the model as JSON text, and the priority (0: the default level).

    Integers beyond 64 bits become floats, as with HTTP requests.
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
                    f"parameters: 'priority': got {value!r}, expected a whole number from 0 (the priority level)"
                )
            priority = value
        elif name in _ARGUMENTS or name.startswith("triton_") or name in ("headers", "binary_data_output"):
            remedy = f"; give {_ARGUMENTS[name]}= instead" if name in _ARGUMENTS else ""
            raise BLSError(f"parameters: Triton reserves the name {name!r}{remedy}")
        else:
            own[name] = value
    return encoded_parameters(own), priority


def encoded_parameters(parameters: Mapping[str, Any]) -> str:
    """Return parameters for a model as JSON text; BLSError for a value of a wrong type."""
    return json.dumps({name: _checked(name, value) for name, value in parameters.items()})


def _checked(name: str, value: Any) -> str | int | float:
    if not isinstance(value, (bool, int, float, str)):
        raise BLSError(
            f"parameters: {name!r}: got {value!r} of type {type(value).__name__}, expected text, an integer, "
            "a float or a boolean"
        )
    for text in (name, value):
        if isinstance(text, str) and text.encode("utf-8", "ignore") != text.encode("utf-8", "replace"):
            raise BLSError(f"parameters: {name!r}: got {value!r}, expected text that UTF-8 can encode")
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        try:
            return float(value)
        except OverflowError:
            raise BLSError(
                f"parameters: {name!r}: got an integer of more than 1024 bits, expected a smaller one"
            ) from None
    return value


def trace_of(value: object) -> InferenceTrace | None:
    """Convert the `trace` argument of a request to its trace; None for no trace.

    A mapping may be the one that OpenTelemetry's ``propagate.inject`` fills in, or the headers of a web request; other
    entries are ignored. An invalid traceparent is an error. (A server would silently send the request without a trace.)
    """
    if value is None or value is False:
        return None
    if value is True:
        return InferenceTrace._begin()
    entries = value if isinstance(value, Mapping) else {"traceparent": value}
    headers = {str(key).lower(): text for key, text in entries.items()}
    parent, state = headers.get("traceparent"), headers.get("tracestate")
    if not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent):
        raise BLSError(f"trace: got {value!r}; {_EXPECTED}")
    if not isinstance(state, (str, type(None))):
        raise BLSError(f"trace: tracestate: got {state!r}, expected text")
    carrier = {"traceparent": parent}
    return InferenceTrace._begin({**carrier, "tracestate": state} if state else carrier)
