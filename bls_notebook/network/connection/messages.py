"""gRPC's messages with tensors in them: protobuf for what is small, and the tensors' bytes beside it.

A message is written and read without the copies of large fields that protobuf makes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tritonclient.grpc import service_pb2

from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, Options
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

from .carried import FINAL, parameters_of, parameters_of_model
from .tensors import AnswerError, raw_of, tensor_of, tensor_of_list

_RAW_INPUT = b"\x3a"  # field 7 of ModelInferRequest, with its length
_RAW_OUTPUT = 6  # of ModelInferResponse
_ERROR, _RESPONSE = 1, 2  # of ModelStreamInferResponse
_SMALL = 1 << 15  # bytes of a message up to which protobuf's copies cost less than doing without
_LENGTHS = {0: None, 1: 8, 5: 4}  # of a field's value, by wire type; 2 says its length itself
_SEVEN, _MORE = 0x7F, 0x80
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents",
    "UINT32": "uint_contents", "UINT64": "uint64_contents", "FP32": "fp32_contents",
    "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def request_bytes(
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
        raw = raw_of(tensor)
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


def read_response(data: bytes) -> tuple[InferenceResponse, bool, str]:
    """Return the response of a ModelInferResponse, whether it says that it is the last, and the version.

    Raises AnswerError: it is not what the protocol says.
    """
    return _response(data if len(data) < _SMALL else memoryview(data))


def read_streamed(data: bytes) -> tuple[InferenceResponse, bool, str, str]:
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
        tensor_of(output.name, output.datatype, output.shape, raws[index]) if raws else _listed(output)
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
    return tensor_of_list(output.name, output.datatype, output.shape, elements)


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
