"""Inference requests and responses over gRPC, in both directions: protobuf's messages of the service. Pure.

The client writes and reads its messages without protobuf's copies of large fields: protobuf for
what is small, and the tensors' bytes beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, Options
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

from .classification import classified
from .errors import refuse
from .json_codec import write_to_region
from .request import FINAL, DecodedRequest, RequestedOutput, flags_of, parameters_of, parameters_of_model
from .shared_memory import Regions
from .tensors import AnswerError, bytes_of, dtype_of, elements_of, input_tensor, output_tensor, output_tensor_of_list

_RAW_INPUT = b"\x3a"  # field 7 of ModelInferRequest, with its length
_RAW_OUTPUT = 6  # of ModelInferResponse
_ERROR, _RESPONSE = 1, 2  # of ModelStreamInferResponse
_SMALL = 1 << 15  # bytes of a message up to which protobuf's copies cost less than doing without
_LENGTHS = {0: None, 1: 8, 5: 4}  # of a field's value, by wire type; 2 says its length itself
_SEVEN, _MORE = 0x7F, 0x80
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
# The field of each data type's elements, where they are not raw; FP16 and BF16 have none.
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


def encode_request(
    name: str, version: str, request: InferenceRequest, all_outputs: bool, more: Mapping[str, Any]
) -> bytes:
    """Return a ModelInferRequest, serialized; `more` are parameters beside the request's own."""
    options = request._options
    tensors = request._inputs
    described = tuple([(tensor._name, tensor._datatype, tensor._array.shape) for tensor in tensors])
    parts: list[Any] = [_head(name, version, described, () if all_outputs else tuple(request._requested))]
    if more or options is not DEFAULT_OPTIONS:
        parts.append(_options(options, more))  # fields of their own: protobuf reads both parts as one
    for tensor in tensors:
        raw = bytes_of(tensor)
        parts += (_RAW_INPUT, _varint(len(raw)), raw)
    return b"".join(parts)


@lru_cache(maxsize=256)
def _head(
    name: str, version: str, tensors: tuple[tuple[str, str, tuple[int, ...]], ...], outputs: tuple[str, ...]
) -> bytes:
    message = service_pb2.ModelInferRequest(model_name=name, model_version=version)
    for tensor, datatype, shape in tensors:
        message.inputs.add(name=tensor, datatype=datatype, shape=shape)
    for output in outputs:
        message.outputs.add(name=output)
    return bytes(message.SerializeToString())


def _options(options: Options, more: Mapping[str, Any]) -> bytes:
    message = service_pb2.ModelInferRequest(id=options.request_id)
    for key, value in {**parameters_of(options), **more}.items():
        parameter = message.parameters[key]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, str):
            parameter.string_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        elif key == "priority" or value > _MOST:
            parameter.uint64_param = value
        else:
            parameter.int64_param = value
    return bytes(message.SerializeToString())


def decode_response(data: bytes) -> tuple[InferenceResponse, bool, str]:
    """Return the response of a ModelInferResponse, whether it says that it is the last, and the version.

    Raises AnswerError: it is not what the protocol says.
    """
    return _response(data if len(data) < _SMALL else memoryview(data))


def decode_streamed(data: bytes) -> tuple[InferenceResponse, bool, str, str]:
    """Return the same of a ModelStreamInferResponse, and its error, which is empty where there is none."""
    error, found = "", memoryview(b"")
    for number, _, value in _fields(memoryview(data)):
        if number == _ERROR:
            error = bytes(value).decode("utf-8", "replace")
        elif number == _RESPONSE:
            found = value
    return (*_response(bytes(found) if len(found) < _SMALL else found), error)


def _response(data: bytes | memoryview) -> tuple[InferenceResponse, bool, str]:
    raws: Sequence[bytes | memoryview] = []
    try:
        if len(data) < _SMALL:
            message = service_pb2.ModelInferResponse.FromString(data)
            raws = message.raw_output_contents
        else:
            fields = list(_fields(memoryview(data)))
            raws = [value for number, _, value in fields if number == _RAW_OUTPUT]
            rest = b"".join(whole for number, whole, _ in fields if number != _RAW_OUTPUT)
            message = service_pb2.ModelInferResponse.FromString(rest)
    except AnswerError:
        raise
    except Exception as error:  # protobuf's own differs by implementation
        raise AnswerError(f"the answer is no ModelInferResponse: {error}") from error
    outputs = message.outputs
    if raws and len(raws) != len(outputs):
        raise AnswerError(f"the answer has {len(outputs)} outputs, and the contents of {len(raws)}")
    tensors = [
        output_tensor(output.name, output.datatype, output.shape, raws[index]) if raws else _listed(output)
        for index, output in enumerate(outputs)
    ]
    response = InferenceResponse(tensors)
    final = False
    if message.parameters:
        said = {key: _value(parameter) for key, parameter in message.parameters.items()}
        final = said.get(FINAL) is True
        response._parameters = parameters_of_model(said)
    return response, final, message.model_version


def _listed(output: Any) -> Tensor:
    field = _CONTENTS.get(output.datatype)
    elements = [] if field is None else list(getattr(output.contents, field))
    return output_tensor_of_list(output.name, output.datatype, output.shape, elements)


def _value(parameter: Any) -> Any:
    kind = parameter.WhichOneof("parameter_choice")
    return "" if kind is None else getattr(parameter, kind)


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yield the fields of a message: the number of each, all of it, and its value."""
    at, end = 0, len(data)
    while at < end:
        start = at
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == 2:
            length, at = _read_varint(data, at)
        elif wire == 0:
            _, after = _read_varint(data, at)
            length = after - at
        elif wire in _LENGTHS:
            length = _LENGTHS[wire] or 0
        else:
            raise AnswerError("the answer is no message of protobuf's")
        if at + length > end:
            raise AnswerError(f"the answer is cut short: {end - at} bytes are left of {length}")
        yield tag >> 3, data[start : at + length], data[at : at + length]
        at += length


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & _SEVEN) << shift
            if byte < _MORE or shift > 63:
                return value, at
            shift += 7
    except IndexError:
        raise AnswerError("the answer is cut short within a number") from None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > _SEVEN:
        out.append((value & _SEVEN) | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


_WANTS_FINAL = "triton_enable_empty_final_response"
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


def decode_request(model: LoadedModel, version: int, message: Any, regions: Regions) -> DecodedRequest:
    """Decode a ``ModelInferRequest``."""
    call = DecodedRequest(model, version, message.id, binary=True)
    _take_parameters(call, message.parameters)
    raw: Sequence[bytes] = message.raw_input_contents
    used = 0
    plain = [each.name for each in message.inputs if "shared_memory_region" not in each.parameters]
    if raw and len(raw) < len(plain):
        refuse(f"unable to find data for input tensor '{plain[len(raw)]}' for model '{model.name}' in request.")
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
            tensor = input_tensor(model.name, message.id, given.name, given.datatype, given.shape, data)
        else:
            tensor = _of_contents(model.name, message.id, given)
        call.add_input(tensor)
    if used < len(raw):
        refuse(f"unexpected additional input data for model '{model.name}'")
    for wanted in message.outputs:
        call.outputs[wanted.name] = _asked(wanted, regions)
    return call


def encode_response(pb: Any, call: DecodedRequest, response: InferenceResponse, regions: Regions) -> Any:
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
        data = bytes(bytes_of(tensor))
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


def last_one(pb: Any, call: DecodedRequest, final: bool = True) -> Any:
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


def _take_parameters(call: DecodedRequest, found: Mapping[str, Any]) -> None:
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


def _asked(wanted: Any, regions: Regions) -> RequestedOutput:
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
    return RequestedOutput(wanted.name, True, name, offset, size, classes)


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
    return input_tensor(model, request_id, given.name, given.datatype, given.shape, data)
