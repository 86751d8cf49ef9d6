"""gRPC's messages of inference requests and answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.pb_utils import InferenceResponse, Tensor

from .calls import Asked, Call, flags_of
from .classes import classified
from .failures import refuse
from .http_bodies import write_to_region
from .shared_memory import Regions
from .tensors import bytes_of, dtype_of, elements_of, tensor_of

FINAL = "triton_final_response"
_WANTS_FINAL = "triton_enable_empty_final_response"

# Where the elements of each data type are, where they are not raw; FP16 and BF16 have no such place.
_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_TYPE_OF = {place: datatype for datatype, place in _CONTENTS.items()}  # the widest that is there
_KINDS: Mapping[str, tuple[str, ...]] = {
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "priority": ("int64_param", "uint64_param"),
    "timeout": ("int64_param",),
    _WANTS_FINAL: ("bool_param",),
}
_OWN = ("int64_param", "bool_param", "string_param", "double_param")


def call_of(model: LoadedModel, version: int, message: Any, regions: Regions) -> Call:
    """Decode a ``ModelInferRequest``."""
    call = Call(model, version, message.id, binary=True)
    _take_parameters(call, message.parameters)
    raw: Sequence[bytes] = message.raw_input_contents
    used = 0
    plain = [each.name for each in message.inputs if "shared_memory_region" not in each.parameters]
    if raw and len(raw) < len(plain):
        refuse(
            f"unable to find data for input tensor '{plain[len(raw)]}' for model '{model.name}' in request."
        )
    names = set()
    for given in message.inputs:
        region = _region(given.parameters)
        if region is not None:
            data: bytes | None = regions.read(*region)
        elif raw:
            if given.HasField("contents") and given.contents.ListFields():
                refuse(
                    "contents field must not be specified when using raw_input_contents for "
                    f"'{given.name}' for model '{model.name}'"
                )
            data = raw[used]
            used += 1
        else:
            data = None
        if data is not None:
            tensor = tensor_of(model.name, message.id, given.name, given.datatype, given.shape, data)
        else:
            tensor = _of_contents(model.name, message.id, given)
        if given.name in names:
            shown = message.id or "<id_unknown>"
            refuse(f"[request id: {shown}] input '{given.name}' already exists in request")
        names.add(given.name)
        call.inputs.append(tensor)
    if used < len(raw):
        refuse(f"unexpected additional input data for model '{model.name}'")
    for wanted in message.outputs:
        call.outputs[wanted.name] = _asked(wanted, regions)
    return call


def answer_of(pb: Any, call: Call, response: InferenceResponse, regions: Regions) -> Any:
    """Encode an answer as a ``ModelInferResponse``."""
    answer = pb.ModelInferResponse(
        model_name=call.model.name, model_version=str(call.model.version), id=call.request_id
    )
    if response._parameters != "{}":
        for name, value in json.loads(response._parameters).items():
            _set(answer.parameters[name], value)
    for tensor in response._outputs:
        asked = call.outputs.get(tensor._name)
        if asked is not None and asked.classes:
            tensor = classified(call.model, tensor, asked.classes)
        told = answer.outputs.add(name=tensor._name, datatype=tensor._datatype, shape=tensor._array.shape)
        data = bytes_of(tensor)
        if asked is not None and asked.region:
            write_to_region(asked, data, regions)
            _set(told.parameters["shared_memory_region"], asked.region)
            _set(told.parameters["shared_memory_byte_size"], len(data))
            if asked.offset:
                _set(told.parameters["shared_memory_offset"], asked.offset)
            data = b""
        answer.raw_output_contents.append(data)
    if (
        not any(answer.raw_output_contents)
        and answer.outputs
        and all(asked.region for asked in call.outputs.values())
        and call.outputs
    ):  # nothing is in the message
        del answer.raw_output_contents[:]
    return answer


def last_one(pb: Any, call: Call, final: bool = True) -> Any:
    """Return an answer without outputs, which says whether it was the last."""
    answer = pb.ModelInferResponse(model_name=call.model.name, id=call.request_id)
    answer.parameters[FINAL].bool_param = final
    return answer


def _set(parameter: Any, value: Any) -> None:
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = value


def _take_parameters(call: Call, found: Mapping[str, Any]) -> None:
    own: dict[str, Any] = {}
    for name in found:
        parameter = found[name]
        kind = parameter.WhichOneof("parameter_choice")
        value = getattr(parameter, kind) if kind else None
        wanted = _KINDS.get(name)
        if wanted is None and name.startswith("triton_"):
            refuse(
                "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
                f"keys starting with 'triton_' are allowed: {_WANTS_FINAL}"
            )
        if kind not in (wanted or _OWN):
            expected = " or ".join(wanted) if wanted else "int64_param, bool_param, or string_param"
            refuse(f"invalid value type for '{name}' parameter, expected {expected}.")
        if wanted is None:
            if name != "binary_data_output":  # means nothing here
                call.parameters[name] = value
        else:
            own[name] = value
    call.correlation_id = _not_negative("sequence_id", own.get("sequence_id", 0))
    call.flags = flags_of(own)
    call.priority = _not_negative("priority", own.get("priority", 0))
    call.timeout = _not_negative("timeout", own.get("timeout", 0))
    call.final = bool(own.get(_WANTS_FINAL))


def _not_negative(name: str, value: Any) -> Any:
    if isinstance(value, int) and value < 0:
        refuse(f"invalid value {value} for '{name}' parameter, expected a number from 0 on.")
    return value


def _region(found: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """The region, offset and size that parameters name; None where they name none."""
    if "shared_memory_region" not in found:
        return None
    for name in ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"):
        kind = "string_param" if name == "shared_memory_region" else "int64_param"
        if name in found and found[name].WhichOneof("parameter_choice") != kind:
            refuse(f"invalid value type for '{name}' parameter, expected {kind}.")
    if "shared_memory_byte_size" not in found:
        refuse("'shared_memory_byte_size' is missing beside 'shared_memory_region'")
    offset = found["shared_memory_offset"].int64_param if "shared_memory_offset" in found else 0
    return found["shared_memory_region"].string_param, offset, found["shared_memory_byte_size"].int64_param


def _asked(wanted: Any, regions: Regions) -> Asked:
    region = _region(wanted.parameters)
    if region is not None:
        regions.check(*region)
    classes = 0
    if "classification" in wanted.parameters:
        given = wanted.parameters["classification"]
        if given.WhichOneof("parameter_choice") != "int64_param" or given.int64_param < 0:
            refuse("invalid value type for 'classification' parameter, expected int64_param")
        classes = given.int64_param
    name, offset, size = region or ("", 0, 0)
    return Asked(wanted.name, True, name, offset, size, classes)


def _of_contents(model: str, request_id: str, given: Any) -> Tensor:
    """An input whose elements are fields of the message."""
    set_fields = [field.name for field, _ in given.contents.ListFields()]
    if not set_fields and elements_of(given.name, given.shape):
        refuse(f"unable to find data for input tensor '{given.name}' for model '{model}' in request.")
    wanted = _CONTENTS.get(given.datatype, "")
    for name in set_fields:
        if name != wanted:
            refuse(
                f"unexpected explicit tensor data for input tensor '{given.name}' for model '{model}' of "
                f"type '{_TYPE_OF[name]}', expected datatype '{given.datatype}'"
            )
    values = getattr(given.contents, wanted) if set_fields else ()
    if given.datatype == "BYTES":
        data = b"".join(part for each in values for part in (len(each).to_bytes(4, "little"), each))
    else:
        dtype = dtype_of(given.name, given.datatype)
        data = np.array(values, np.int64 if dtype.kind == "i" else dtype).astype(dtype).tobytes()
    return tensor_of(model, request_id, given.name, given.datatype, given.shape, data)
