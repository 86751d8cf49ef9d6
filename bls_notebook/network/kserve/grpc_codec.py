"""Encodes and decodes inference requests and responses as protobuf messages, for clients and servers. Pure functions.

Messages come from tritonclient's service_pb2. Only the raw bytes of tensors are written and read here, because
protobuf copies them twice in each direction: with 1 MB it takes 1.8 ms instead of 0.5 to encode a request, 0.24 ms
instead of 0.13 to decode a response, 0.12 ms instead of 0.02 to parse a request (protobuf 7.36, upb, two cores). The
same reader of fields refuses messages with too many parts, of which protobuf would make objects without a limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from bls_notebook.engine import LoadedModel
from bls_notebook.network.limits import CONTENTS_BYTES, INLINE_BYTES, STRINGS, TENSORS, VALUES
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, Options
from bls_notebook.pb_utils.response import InferenceResponse

from .errors import refuse
from .request import BLOCK, FINAL, DecodedRequest, RequestedOutput, few, flags_of, parameters_of, parameters_of_model
from .shared_memory import Part, RegionUse
from .tensors import AnswerError, Buffer, bytes_of, dtype_of, elements_of, output_tensor, output_tensor_of_list

_RAW_INPUT = b"\x3a"  # field 7 of ModelInferRequest, with its length
_RAW_OUTPUTS = b"\x32"  # field 6 of ModelInferResponse, with its length
_STREAMED_RESPONSE = b"\x12"  # field 2 of ModelStreamInferResponse, with its length
_RAW_OUTPUT = 6  # of ModelInferResponse
RAW_INPUTS = 7  # of ModelInferRequest
_TENSOR = _TENSOR_CONTENTS = 5  # of ModelInferRequest and ModelInferResponse, of their tensors
_TEXT = b"\x42"  # begins each element of BYTES in a tensor's contents
_ERROR, _RESPONSE = 1, 2  # of ModelStreamInferResponse
_SMALL = 1 << 15  # bytes of a message for which protobuf is faster, copies included
_LENGTHS = {1: 8, 5: 4}  # of a field's value, by wire type
_SEVEN, _MORE = 0x7F, 0x80
_MOST = (1 << 63) - 1
# The message field with the elements of each data type, for tensors that are not raw; FP16 and BF16 have none.
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
    name: str, version: str, request: InferenceRequest, all_outputs: bool, extra: Mapping[str, Any]
) -> bytes:
    """Return a serialized ModelInferRequest; `extra` are parameters in addition to those of the request."""
    options = request._options
    described = tuple([(tensor._name, tensor._datatype, tensor._array.shape) for tensor in request._inputs])
    message = _head(name, version, described, () if all_outputs else tuple(request._requested))
    if extra or options is not DEFAULT_OPTIONS:
        message += _options(options, extra)  # protobuf merges the two serialized messages
    return _with_raw(message, _RAW_INPUT, map(bytes_of, request._inputs))


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


def _options(options: Options, extra: Mapping[str, Any]) -> bytes:
    message = service_pb2.ModelInferRequest(id=options.request_id)
    for key, value in {**parameters_of(options), **extra}.items():
        if key == "priority" or (isinstance(value, int) and value > _MOST):
            message.parameters[key].uint64_param = value
        else:
            _set(message.parameters[key], value)
    return bytes(message.SerializeToString())


def _with_raw(message: bytes, field: bytes, contents: Iterable[Buffer]) -> bytes:
    """Return a serialized message with the raw contents of its tensors; `field` is their tag."""
    parts: list[Buffer] = [message]
    for raw in contents:
        parts += (field, _varint(len(raw)), raw)
    return b"".join(parts)


def decode_streamed(data: bytes) -> tuple[InferenceResponse, bool, str]:
    """Return the response in a ModelStreamInferResponse, whether it is the last, and its error or ""."""
    error, response = "", memoryview(b"")
    for number, _, value in _fields(memoryview(data)):
        if number == _ERROR:
            error = bytes(value).decode("utf-8", "replace")
        elif number == _RESPONSE:
            response = value
    return (*decode_response(response), error)


def decode_response(data: bytes | memoryview) -> tuple[InferenceResponse, bool]:
    """Return the response in a ModelInferResponse, and whether it is the last; AnswerError if it is malformed."""
    message, raws = split_message(service_pb2.ModelInferResponse, data, _RAW_OUTPUT)
    outputs = message.outputs
    if raws and len(raws) != len(outputs):
        raise AnswerError(f"the answer has {len(outputs)} outputs, but contents for {len(raws)}")
    tensors = []
    for index, output in enumerate(outputs):
        described = (output.name, output.datatype, output.shape)
        if raws:
            tensors.append(output_tensor(*described, raws[index]))
        else:
            field = _CONTENTS.get(output.datatype)
            elements = () if field is None else getattr(output.contents, field)
            if len(elements) > VALUES:
                raise AnswerError(f"output '{output.name}' has more than {VALUES:,} values outside the raw contents")
            tensors.append(output_tensor_of_list(*described, list(elements)))
    response = InferenceResponse(tensors)
    final = False
    if message.parameters:
        parameters = {}
        for key, parameter in message.parameters.items():
            kind = parameter.WhichOneof("parameter_choice")
            parameters[key] = "" if kind is None else getattr(parameter, kind)
        final = parameters.get(FINAL) is True
        response._parameters = parameters_of_model(parameters)
    return response, final


def split_message(kind: Any, data: bytes | memoryview, raw: int) -> tuple[Any, Sequence[bytes | memoryview]]:
    """Return a message, and the values of its field `raw`, of large messages in place.

    AnswerError: it is malformed, or has so many small parts that its objects would need far more memory.
    """
    raws: Sequence[bytes | memoryview] = ()
    try:
        if len(data) >= _SMALL:
            fields = list(_fields(memoryview(data)))
            raws = [value for number, _, value in fields if number == raw]
            for number, _, value in fields:
                if number == _TENSOR:
                    _check_tensor(value)
            data = b"".join(whole for number, whole, _ in fields if number != raw)
        message = kind.FromString(bytes(data))
    except AnswerError:
        raise
    except Exception as error:  # its class depends on protobuf's implementation
        raise AnswerError(f"it is not a {kind.DESCRIPTOR.name}: {error}") from error
    return message, raws or getattr(message, kind.DESCRIPTOR.fields_by_number[raw].name)


def check_parts(data: bytes) -> None:
    """Raise AnswerError if a message other than an inference has too many parts."""
    if len(data) >= _SMALL:
        sum(1 for _ in _fields(memoryview(data)))


def _check_tensor(data: memoryview) -> None:
    """Raise AnswerError if a tensor's contents or other fields have too many values."""
    for number, _, value in _fields(data):
        most = CONTENTS_BYTES if number == _TENSOR_CONTENTS else _SMALL
        # Two upper bounds of the number of texts: each has a tag and a length, and a text may contain the tag's byte.
        if len(value) > most or (len(value) > 2 * STRINGS and bytes(value).count(_TEXT) > STRINGS):
            raise AnswerError("a tensor has too many values outside the raw contents")


def _fields(data: memoryview, most: int = 4 * TENSORS) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yield the number, the whole bytes, and the value of each field of a message; AnswerError above `most`."""
    at, end = 0, len(data)
    while at < end:
        most -= 1
        if most < 0:
            raise AnswerError("it has too many parts")
        start = at
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == 2:
            length, at = _read_varint(data, at)
        elif wire == 0:
            _, after = _read_varint(data, at)
            length = after - at
        elif wire in _LENGTHS:
            length = _LENGTHS[wire]
        else:
            raise AnswerError("it is not a protobuf message")
        if at + length > end:
            raise AnswerError(f"it is truncated: {end - at} of {length} bytes are left")
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
        raise AnswerError("it is truncated within a number") from None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > _SEVEN:
        out.append((value & _SEVEN) | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


_WANTS_FINAL = "triton_enable_empty_final_response"
_TYPE_OF = {field: datatype for datatype, field in _CONTENTS.items()}  # the widest data type of each field
_KINDS: Mapping[str, tuple[str, ...]] = {
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "priority": ("int64_param", "uint64_param"),
    "timeout": ("int64_param",),
    _WANTS_FINAL: ("bool_param",),
}
_FREE_KINDS = ("int64_param", "bool_param", "string_param", "double_param")


def decode_request(
    model: LoadedModel,
    version: int,
    message: Any,
    raw: Sequence[bytes | memoryview],
    regions: RegionUse,
    add: Callable[[int], None],
) -> DecodedRequest:
    """Return the request in a ``ModelInferRequest`` with its `raw` contents; ProtocolError if it is malformed.

    `add` counts the bytes of inputs in shared memory.
    """
    call = DecodedRequest(model, version, message.id, binary=True)
    _take_parameters(call, message.parameters)
    inputs = few("inputs", message.inputs)
    outputs = few("outputs", message.outputs) if message.outputs else ()
    if raw and len(raw) < len(inputs):
        plain = [item.name for item in inputs if "shared_memory_region" not in item.parameters]
        if len(raw) < len(plain):
            refuse(f"unable to find data for input tensor '{plain[len(raw)]}' for model '{model.name}' in request.")
    contents = iter(raw)
    for tensor in inputs:
        region = _region(tensor.parameters)
        data: bytes | memoryview | list[bytes] | Part
        if region is not None:
            data = regions.part(*region, add)
        elif raw:
            if tensor.HasField("contents") and tensor.contents.ListFields():
                refuse(
                    "contents field must not be specified when using raw_input_contents for "
                    f"'{tensor.name}' for model '{model.name}'"
                )
            data = next(contents)
        else:
            data = _contents(model.name, tensor)
        call.add_data(tensor.name, tensor.datatype, tensor.shape, data)
    if raw and next(contents, None) is not None:
        refuse(f"unexpected additional input data for model '{model.name}'")
    for output in outputs:
        call.add_output(_requested_output(output, regions))
    return call


def effort_of_parsing(data: bytes) -> int:
    """Return the number of bytes of an inference request that are not copied in blocks; for `Admission.work`."""
    if len(data) <= INLINE_BYTES:
        return 0
    try:
        return sum(len(value) for number, _, value in _fields(memoryview(data), 64) if number != RAW_INPUTS)
    except AnswerError:
        return len(data)


def effort_of(message: Any, raw: Sequence[bytes | memoryview]) -> int:
    """Return the number of bytes that decoding a request reads one by one, not in blocks; for `Admission.work`."""
    by_element = not raw
    for tensor in message.inputs[:TENSORS]:
        if "shared_memory_region" in tensor.parameters:
            return INLINE_BYTES + 1
        by_element = by_element or tensor.datatype == "BYTES"
    size = sum(map(len, raw))
    return int(message.ByteSize()) + size if by_element else size // BLOCK


def encode_response(call: DecodedRequest, response: InferenceResponse, regions: RegionUse, final: bool | None) -> bytes:
    """Return a response as a serialized ``ModelInferResponse``; `final`, of a stream, marks the last one."""
    model, contents = call.model, []
    message = service_pb2.ModelInferResponse(
        model_name=model.name, model_version=str(model.version), id=call.request_id
    )
    for name, value in json.loads(response._parameters).items():
        _set(message.parameters[name], value)
    if final is not None:
        message.parameters[FINAL].bool_param = final
    for tensor in response._outputs:
        tensor, requested = call.output(tensor)
        output = message.outputs.add(name=tensor._name, datatype=tensor._datatype, shape=tensor._array.shape)
        data = bytes_of(tensor)
        if requested is not None and requested.region:
            regions.write(requested.name, requested.region, requested.offset, requested.byte_size, data)
            output.parameters["shared_memory_region"].string_param = requested.region
            output.parameters["shared_memory_byte_size"].int64_param = len(data)
            if requested.offset:
                output.parameters["shared_memory_offset"].int64_param = requested.offset
            data = b""
        contents.append(data)
    return _with_raw(message.SerializeToString(), _RAW_OUTPUTS, contents)


def streamed(response: bytes, error: str = "") -> bytes:
    """Return a serialized ``ModelStreamInferResponse``."""
    head = service_pb2.ModelStreamInferResponse(error_message=error).SerializeToString()
    return b"".join([head, _STREAMED_RESPONSE, _varint(len(response)), response])


def final_response(call: DecodedRequest, final: bool = True) -> bytes:
    """Return a serialized response without outputs; `final` marks it as the last."""
    answer = service_pb2.ModelInferResponse(model_name=call.model.name, id=call.request_id)
    answer.parameters[FINAL].bool_param = final
    return bytes(answer.SerializeToString())


def _set(parameter: Any, value: Any) -> None:
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = value


def _take_parameters(call: DecodedRequest, parameters: Mapping[str, Any]) -> None:
    if not parameters:
        return
    options: dict[str, Any] = {}
    for name, parameter in few("parameters", parameters).items():
        kind = parameter.WhichOneof("parameter_choice")
        kinds = _KINDS.get(name)
        if kinds is None and name.startswith("triton_"):
            refuse(
                "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
                f"keys starting with 'triton_' are allowed: {_WANTS_FINAL}"
            )
        if kind not in (kinds or _FREE_KINDS):
            expected = " or ".join(kinds) if kinds else "int64_param, bool_param, or string_param"
            refuse(f"invalid value type for '{name}' parameter, expected {expected}.")
        value = getattr(parameter, kind)
        if name in ("sequence_id", "priority", "timeout") and isinstance(value, int) and value < 0:
            refuse(f"invalid value {value} for '{name}' parameter, expected 0 or more.")
        if kinds is not None:
            options[name] = value
        else:
            call.parameters[name] = value
    call.correlation_id = options.get("sequence_id", 0)
    call.flags = flags_of(options)
    call.priority = options.get("priority", 0)
    call.timeout = options.get("timeout", 0)
    call.final = bool(options.get(_WANTS_FINAL))


def _region(parameters: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """Return the region, offset and size that parameters name; None if they name no region."""
    if "shared_memory_region" not in parameters:
        return None
    values: dict[str, Any] = {"offset": 0}
    for name, kind in (("region", "string_param"), ("offset", "int64_param"), ("byte_size", "int64_param")):
        parameter = parameters.get(f"shared_memory_{name}")
        if parameter is not None:
            if parameter.WhichOneof("parameter_choice") != kind:
                refuse(f"invalid value type for 'shared_memory_{name}' parameter, expected {kind}.")
            values[name] = getattr(parameter, kind)
    if "byte_size" not in values:
        refuse("'shared_memory_byte_size' is missing beside 'shared_memory_region'")
    return values["region"], values["offset"], values["byte_size"]


def _requested_output(output: Any, regions: RegionUse) -> RequestedOutput:
    region = _region(output.parameters)
    classes = output.parameters.get("classification")
    if classes is not None and classes.WhichOneof("parameter_choice") != "int64_param":
        refuse("invalid value type for 'classification' parameter, expected int64_param")
    if classes is not None and classes.int64_param <= 0:
        refuse("invalid value for 'classification' parameter, expected >= 0")
    if region is not None and classes is not None:
        refuse("output can't set both 'shared_memory_region' and 'classification'")
    if region is not None:
        regions.check(*region)
    name, offset, size = region or ("", 0, 0)
    return RequestedOutput(output.name, True, name, offset, size, 0 if classes is None else classes.int64_param)


def _contents(model: str, tensor: Any) -> bytes | list[bytes]:
    """Return the bytes of an input whose elements are in fields of the message; of BYTES, the elements."""
    set_fields = [field.name for field, _ in tensor.contents.ListFields()]
    if not set_fields and elements_of(tensor.name, tensor.shape):
        refuse(f"unable to find data for input tensor '{tensor.name}' for model '{model}' in request.")
    expected = _CONTENTS.get(tensor.datatype, "")
    for name in set_fields:
        if name != expected:
            refuse(
                f"unexpected explicit tensor data for input tensor '{tensor.name}' for model '{model}' of "
                f"type '{_TYPE_OF[name]}', expected datatype '{tensor.datatype}'"
            )
    values = getattr(tensor.contents, expected) if set_fields else ()
    if tensor.datatype == "BYTES":
        return list(values)
    if len(values) > VALUES:
        refuse(f"input '{tensor.name}' has more than {VALUES:,} elements; send them in raw_input_contents")
    dtype = dtype_of(tensor.name, tensor.datatype)
    return np.array(values, np.int64 if dtype.kind == "i" else dtype).astype(dtype).tobytes()
