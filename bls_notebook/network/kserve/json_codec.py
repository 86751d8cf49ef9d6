"""Encodes and decodes HTTP bodies of inference requests and responses: JSON, then tensors as bytes. Pure functions.

A server's malformed response raises `AnswerError`, a client's malformed request `ProtocolError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from math import isinf, prod
from typing import Any

import numpy as np

from bls_notebook.engine import LoadedModel
from bls_notebook.network.limits import INLINE_BYTES, JSON_DEPTH, check_json
from bls_notebook.pb_utils import InferenceRequest, Tensor
from bls_notebook.pb_utils.response import InferenceResponse

from . import tensors as wire
from .errors import refuse
from .request import BLOCK, DecodedRequest, RequestedOutput, few, flags_of, parameters_of, parameters_of_model
from .shared_memory import Part, RegionUse
from .tensors import AnswerError, Buffer, bytes_of, dtype_of, input_tensor, output_tensor

JSON_LENGTH = "Inference-Header-Content-Length"
"""The header with the length of the JSON, if binary tensors follow it in the body."""


def encode_request(request: InferenceRequest, all_outputs: bool, binary: bool) -> list[Any]:
    """Return the parts of a request's body: the JSON, then, if `binary`, the bytes of each tensor.

    AnswerError: JSON cannot carry a tensor, and `binary` is false.
    """
    options = request._options
    inputs, parts = [], []
    for tensor in request._inputs:
        described: dict[str, Any] = {
            "name": tensor._name, "shape": list(tensor._array.shape), "datatype": tensor._datatype,
        }  # fmt: skip
        if binary:
            raw = bytes_of(tensor)
            parts.append(raw)
            described["parameters"] = {"binary_data_size": len(raw)}
        else:
            described["data"] = _listed(tensor)
        inputs.append(described)
    document: dict[str, Any] = {"inputs": inputs}
    parameters = parameters_of(options)
    if binary and all_outputs:
        parameters["binary_data_output"] = True
    if not all_outputs:
        form = {"parameters": {"binary_data": True}} if binary else {}
        document["outputs"] = [{"name": output, **form} for output in request._requested]
    if parameters:
        document["parameters"] = parameters
    if options.request_id:
        document["id"] = options.request_id
    return [json.dumps(document, separators=(",", ":")).encode(), *parts]


def _listed(tensor: Tensor) -> list[Any]:
    if tensor._datatype == "BF16":
        raise AnswerError(f"input '{tensor._name}': the server accepts only JSON, which cannot carry BF16")
    try:
        return wire.values_of(wire.on_cpu(tensor), tensor._datatype)
    except UnicodeDecodeError as error:
        raise AnswerError(
            f"input '{tensor._name}': {error}; the server accepts only JSON, and so only UTF-8 text"
        ) from error


def decode_response(body: bytes, length: str | None) -> InferenceResponse:
    """Return the response in a body; `length` is the value of the header `JSON_LENGTH`, if there is one.

    AnswerError: the body violates the protocol.
    """
    document, tensors = decode_outputs(body, length)
    response = InferenceResponse(tensors)
    response._parameters = parameters_of_model(document.get("parameters") or {})
    return response


def decode_outputs(body: bytes, length: str | None) -> tuple[dict[str, Any], list[Tensor]]:
    """Return the JSON of a response's body, and its outputs; see `decode_response`."""
    view = memoryview(body)
    try:
        at = len(body) if length is None else int(length)
        check_json(view[:at])
        document = json.loads(str(view[:at], "utf-8", "surrogatepass"))
        tensors = []
        for output in document.get("outputs") or []:
            size = (output.get("parameters") or {}).get("binary_data_size")
            parts = (output["name"], output["datatype"], output["shape"])
            if size is None:
                tensors.append(wire.output_tensor_of_list(*parts, output.get("data") or []))
            else:
                tensors.append(output_tensor(*parts, view[at : at + size]))
                at += size
        dict(document.get("parameters") or {})
    except AnswerError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise AnswerError(f"the answer violates the KServe v2 protocol ({type(error).__name__}: {error})") from error
    return document, tensors


_KINDS: dict[type, str] = {
    bool: "boolean", str: "string", list: "array", dict: "object", int: "unsigned-integer", float: "double",
}  # fmt: skip
_BINARY_ONLY = ("FP16", "BF16")
_PIECE = 1 << 14  # elements that are written without releasing the GIL


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; as on Triton, a repeated member has its first value."""
    out = dict(pairs)
    return out if len(out) == len(pairs) else {**out, **dict(reversed(pairs))}


# Python accepts these, a server does not: numbers that no double holds, and halves of surrogate pairs.
_RARE = re.compile(r"[eE]\+?\d{3}|\d{309}|\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]|(u[dD][89a-fA-F])|.)")


def _strictly(text: str, hook: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    for escape in _ESCAPE.finditer(text):
        if escape[1]:
            raise json.JSONDecodeError("The surrogate pair in string is invalid.", text, escape.start())

    def number(digits: str) -> float | int:
        if isinf(value := float(digits)):
            raise json.JSONDecodeError("Number too big to be stored in double.", text, text.find(digits))
        return value if "." in digits or "e" in digits.lower() else int(digits)

    return json.loads(text, object_pairs_hook=hook, parse_float=number, parse_int=number)


def parsed(body: bytes | bytearray | memoryview, hook: Callable[[list[tuple[str, Any]]], Any] = _members) -> Any:
    """Parse a request's JSON; ProtocolError if it is invalid. `hook`: `json.loads`' ``object_pairs_hook``."""
    try:
        check_json(body)
    except ValueError as error:
        refuse(f"failed to parse the request JSON buffer: {error}")
    try:
        text = str(body, "utf-8", "surrogatepass").removeprefix("\ufeff")
        return _strictly(text, hook) if _RARE.search(text) else json.loads(text, object_pairs_hook=hook)
    except (ValueError, RecursionError) as error:  # ValueError also for invalid UTF-8 and huge numbers
        reason = getattr(error, "msg", "") or str(error).partition("\n")[0]
        position = getattr(error, "pos", getattr(error, "start", 0))
        refuse(f"failed to parse the request JSON buffer: {reason} at {position}")


def member(document: Any, name: str, kind: type, default: Any = ..., context: str | None = None) -> Any:
    """Return a member of a JSON object; `default` if it is missing, ProtocolError unless it is of `kind`.

    `context` begins the error messages.
    """
    context = f"Unable to parse '{name}': " if context is None else context
    value = document.get(name, ...) if isinstance(document, dict) else ...
    if value is ...:
        if default is not ...:
            return default
        refuse(f"{context}attempt to access non-existing object member '{name}'")
    if kind is int and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64):
        refuse(f"{context}attempt to access JSON non-unsigned-integer as unsigned-integer")
    if not isinstance(value, kind):
        refuse(f"{context}attempt to access JSON non-{_KINDS[kind]} as {_KINDS[kind]}")
    return value


def flattened(data: Any, datatype: str) -> list[Any]:
    """Return the elements of a request's nested lists; ProtocolError for anything but a list."""
    if not isinstance(data, list):
        refuse("Unable to parse 'data': attempt to access JSON non-array as array")
    try:
        return wire.flat(data, JSON_DEPTH)
    except ValueError as error:
        refuse(f"{error}" if datatype == "BYTES" else f"Unable to parse 'data': {error}")


INCREASE = "Use --http-max-input-size to increase the limit."


def check_size(size: int, most: int) -> None:
    """Raise ProtocolError if a request's JSON is larger than the endpoint's limit."""
    if size > most:
        refuse(f"request JSON size of {size} bytes exceeds the maximum allowed input size of {most} bytes. {INCREASE}")


def serialized_size(datatype: str, count: int, values: list[Any]) -> int:
    """Return the number of bytes of an input whose values are in JSON."""
    if datatype == "BYTES":
        return 4 * len(values) + sum(
            len(value.encode("utf-8", "surrogatepass")) for value in values if type(value) is str
        )
    return count * dtype_of("", datatype).itemsize if datatype in wire.DTYPES else 0


def input_tensor_of_values(name: str, datatype: str, shape: Sequence[int], values: list[Any]) -> Tensor:
    """Return an input from its JSON elements, converted as Triton converts them."""
    if datatype in _BINARY_ONLY:
        refuse(
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input {name}"
        )
    count = wire.elements_of(name, shape)
    dtype = np.dtype(object) if datatype == "BYTES" else dtype_of(name, datatype)
    if len(values) != count:
        refuse("Unable to parse 'data': Shape does not match true shape of 'data' field")
    kinds = set(map(type, values))
    if datatype == "BYTES":
        array = np.empty(count, object)
        array[:] = _encoded(values)
    elif datatype == "BOOL":
        _only(kinds, {bool}, "boolean", "boolean")
        array = np.array(values, dtype)
    elif dtype.kind == "f":
        _only(kinds, {int, float}, "number", "double")
        with np.errstate(over="ignore"):
            try:
                array = np.array(values, np.float64).astype(dtype)
            except OverflowError:
                refuse("Unable to parse 'data': attempt to access JSON non-number as double")
    else:
        kind = "unsigned-integer" if dtype.kind == "u" else "signed-integer"
        _only(kinds, {int}, kind, kind)
        wide = np.uint64 if dtype.kind == "u" else np.int64
        try:
            array = np.array(values, wide).astype(dtype)  # numbers too large for the type wrap, as on Triton
        except OverflowError:
            refuse(f"Unable to parse 'data': attempt to access JSON non-{kind} as {kind}")
    return Tensor._of(name, array.reshape(tuple(shape)), datatype)


def _encoded(values: list[Any]) -> list[bytes]:
    if set(map(type, values)) - {str}:
        refuse("Unable to parse JSON bytes array: attempt to access JSON non-string as string")
    return [value.encode("utf-8", "surrogatepass") for value in values]


def _only(kinds: set[type], allowed: set[type], got: str, expected: str) -> None:
    if kinds - allowed:
        refuse(f"Unable to parse 'data': attempt to access JSON non-{got} as {expected}")


def output_values(tensor: Tensor) -> bytes:
    """Return the elements of an output as a JSON list, written in pieces; ProtocolError if JSON cannot carry them."""
    if tensor._datatype in _BINARY_ONLY:
        refuse(
            f"sending {tensor._datatype} data via JSON is not supported. Please use the binary data format "
            f"for output '{tensor._name}'"
        )
    array = wire.on_cpu(tensor).reshape(-1)
    pieces = (array[at : at + _PIECE] for at in range(0, array.size, _PIECE))
    try:
        return b"[%b]" % b",".join(written(wire.values_of(piece, tensor._datatype))[1:-1] for piece in pieces)
    except UnicodeDecodeError:
        refuse(
            f"output '{tensor._name}' is not UTF-8 text, so JSON cannot carry it; request it in the binary data format"
        )


def written(document: Any) -> bytes:
    """Return a document as UTF-8 JSON, with NaN and infinities as in Triton's answers."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


_SOURCES = {
    "data": "'data'",
    "binary_data_size": "'binary_data_size' in 'parameters'",
    "shared_memory_region": "'shared_memory_region' in 'parameters'",
}
_OPTIONS = ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output")


def decode_request(
    model: LoadedModel,
    version: int,
    body: bytes | bytearray,
    json_length: str | None,
    regions: RegionUse,
    add: Callable[[int], None],
    most: int,
) -> DecodedRequest:
    """Return the inference request in a body; ``json_length`` is the value of the header `JSON_LENGTH`.

    `add` counts the bytes of inputs in shared memory; `most` limits the bytes of JSON and of raw inputs.
    """
    length = _json_length(json_length, len(body))
    view = memoryview(body)
    if length == 0:
        if len(view) > most:
            refuse(
                f"Raw input has a byte_size ({len(view)} bytes) that exceeds the maximum allowed value of {most} "
                f"bytes. {INCREASE}"
            )
        return _raw(model, version, view)
    check_size(length, most)
    document = parsed(view[:length])
    call = DecodedRequest(model, version, member(document, "id", str, ""))
    take_parameters(call, member(document, "parameters", object, {}))
    rest = view[length:]
    for tensor_json in few("inputs", member(document, "inputs", list)):
        used = _add_input(call, tensor_json, rest, regions, add, most)
        rest = rest[used:]
    if len(rest):
        refuse(f"unexpected additional input data for model '{model.name}'")
    for output in few("outputs", member(document, "outputs", list, [])):
        call.add_output(_requested_output(output, call.binary, regions))
    return call


def encode_response(call: DecodedRequest, response: InferenceResponse, regions: RegionUse) -> tuple[bytes, int | None]:
    """Return the body of a response, and the length of its JSON in bytes; None if it is all JSON."""
    chunks: list[Buffer] = []
    outputs = []
    for tensor in response._outputs:
        values = b""
        tensor, requested = call.output(tensor)
        output: dict[str, Any] = {
            "name": tensor._name, "datatype": tensor._datatype, "shape": list(tensor._array.shape),
        }  # fmt: skip
        if requested is not None and requested.region:
            data = bytes_of(tensor)
            regions.write(requested.name, requested.region, requested.offset, requested.byte_size, data)
        elif call.binary if requested is None else requested.binary:
            data = bytes_of(tensor)
            output["parameters"] = {"binary_data_size": len(data)}
            chunks.append(data)
        else:
            values = output_values(tensor)
        outputs.append(b'%b,"data":%b}' % (written(output)[:-1], values) if values else written(output))
    document: dict[str, Any] = {"id": call.request_id} if call.request_id else {}
    document |= {"model_name": call.model.name, "model_version": str(call.model.version)}
    if response._parameters != "{}":
        document["parameters"] = json.loads(response._parameters)
    text = b'%b,"outputs":[%b]}' % (written(document)[:-1], b",".join(outputs))
    return (b"".join([text, *chunks]), len(text)) if chunks else (text, None)


def effort_of(body: bytes | bytearray, json_length: str | None) -> int:
    """Return the number of bytes that decoding a body reads one by one, not in blocks, for `Admission.work`."""
    length = _json_length(json_length, len(body))
    head = body[: min(length, INLINE_BYTES)]
    if b"shared_memory_region" in head or b"\\" in head:  # a backslash may hide words
        return len(body) + INLINE_BYTES
    return len(body) if b"BYTES" in head else length + (len(body) - length) // BLOCK


def _json_length(text: str | None, size: int) -> int:
    if text is None:
        return size
    try:
        length = int(text)
    except ValueError:
        refuse(f"unable to parse {JSON_LENGTH.lower()}, got: {text[:40]}")
    if not 0 <= length <= size:
        refuse(f"inference header size should be in range (0, {size}), got: {length}")
    return length


def take_parameters(call: DecodedRequest, parameters: Any) -> None:
    """Set the options and parameters of a request from its JSON; ProtocolError if they are invalid."""
    if not isinstance(parameters, dict):
        refuse("failed to get request params.: attempt to get members for non-object")
    if "sequence_id" in parameters:
        value = parameters["sequence_id"]
        is_number = type(value) is int and 0 <= value < 1 << 64
        call.correlation_id = value if is_number else member(parameters, "sequence_id", str)
    for name in ("sequence_start", "sequence_end"):
        member(parameters, name, bool, False)
    call.flags = flags_of(parameters)
    call.priority = member(parameters, "priority", int, 0)
    call.timeout = member(parameters, "timeout", int, 0)
    call.binary = member(parameters, "binary_data_output", bool, call.binary)
    for name, value in few("parameters", parameters).items():
        if name in _OPTIONS:
            continue
        if name.startswith("triton_"):
            refuse("parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.")
        add_parameter(call, name, value)


def add_parameter(call: DecodedRequest, name: str, value: Any) -> None:
    """Add a parameter for the model; ProtocolError if it is of a wrong type."""
    if not isinstance(value, (bool, int, float, str)):
        refuse(f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'.")
    call.parameters[name] = value


def _add_input(
    call: DecodedRequest, document: Any, rest: memoryview, regions: RegionUse, add: Callable[[int], None], most: int
) -> int:
    """Add an input; return the number of its bytes in `rest`, the unread part of the body."""
    parameters, members = _parameters(document), document if isinstance(document, dict) else {}
    sources = [name for name in _SOURCES if name in (members if name == "data" else parameters)]
    if len(sources) != 1:
        state = f"But set {' '.join(map(repr, sources))}" if sources else "But no field is set"
        refuse(f"Input must set only one of the following fields: {', '.join(_SOURCES.values())}. {state}")
    name = member(document, "name", str)
    datatype = member(document, "datatype", str)
    shape = [member({"shape": size}, "shape", int) for size in member(document, "shape", list)]
    if sources == ["data"]:
        values = flattened(document["data"], datatype)
        size = serialized_size(datatype, wire.elements_of(name, shape), values)
        if size > most:
            refuse(
                f"JSON input '{name}' has a byte_size ({size} bytes) that exceeds the maximum allowed value of {most} "
                f"bytes. {INCREASE}"
            )
        if datatype == "BYTES":  # Triton counts their elements with those of raw inputs
            call.add_data(name, datatype, shape, _encoded(values))
        else:
            call.add_input(input_tensor_of_values(name, datatype, shape, values))
        return 0
    used = 0
    if sources == ["binary_data_size"]:
        used = member(parameters, "binary_data_size", int)
        if used > len(rest):
            refuse(
                f"unexpected size for input '{name}', expecting {used - len(rest)} additional bytes for "
                f"model '{call.model.name}'"
            )
        data: bytes | memoryview | Part = rest[:used]
    else:
        size = member(parameters, "shared_memory_byte_size", int, 0)
        offset = member(parameters, "shared_memory_offset", int, 0)
        data = regions.part(member(parameters, "shared_memory_region", str), offset, size, add)
    call.add_data(name, datatype, shape, data)
    return used


def _parameters(described: Any) -> dict[str, Any]:
    parameters = described.get("parameters") if isinstance(described, dict) else None
    return parameters if isinstance(parameters, dict) else {}


def _requested_output(output: Any, binary: bool, regions: RegionUse) -> RequestedOutput:
    parameters = _parameters(output)
    for other in ("classification", "binary_data") if "shared_memory_region" in parameters else ():
        if parameters.get(other):
            refuse(f"Output can't set both 'shared_memory_region' and '{other}'")
    name = member(output, "name", str)
    region = member(parameters, "shared_memory_region", str, "")
    size = member(parameters, "shared_memory_byte_size", int, 0)
    offset = member(parameters, "shared_memory_offset", int, 0)
    if region:
        regions.check(region, offset, size)
    classes = member(parameters, "classification", int, 0)
    return RequestedOutput(name, member(parameters, "binary_data", bool, binary), region, offset, size, classes)


def _raw(model: LoadedModel, version: int, data: memoryview) -> DecodedRequest:
    """Return a request whose body is the bytes of the model's only input."""
    spec = model.spec
    if len(spec.inputs) != 1:
        refuse(
            "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got "
            f"{len(spec.inputs)} inputs in '{model.name}' model configuration"
        )
    (tensor,) = spec.inputs.values()
    shape = [1 if spec.max_batch_size and not at else size for at, size in enumerate(tensor.shape)]
    call = DecodedRequest(model, version, binary=True)
    if tensor.datatype == "BYTES":
        if any(size != 1 for size in shape):
            refuse(f"For BYTE datatype raw input '{tensor.name}', the model must have input shape [1]")
        framed = len(data).to_bytes(4, "little") + bytes(data)
        call.inputs = [input_tensor(model.name, "", tensor.name, "BYTES", [1] * len(shape), framed)]
        return call
    if shape.count(-1) > 1:
        refuse(
            f"The shape of the raw input '{tensor.name}' can not be deduced because there are more than one "
            "variable-sized dimension"
        )
    if -1 in shape:
        row = prod(size for size in shape if size != -1) * dtype_of(tensor.name, tensor.datatype).itemsize
        if not row or len(data) % row:
            refuse(
                f"The shape of the raw input '{tensor.name}' can not be deduced: {len(data)} bytes are not a "
                f"multiple of {row} bytes"
            )
        shape[shape.index(-1)] = len(data) // row
    call.inputs = [input_tensor(model.name, "", tensor.name, tensor.datatype, shape, data)]
    return call
