"""Bodies of HTTP inference requests and answers: JSON, with binary tensors after it."""

from __future__ import annotations

import json
from math import prod
from typing import Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.pb_utils import InferenceResponse, Tensor

from .calls import Asked, Call, flags_of
from .classes import classified
from .failures import INTERNAL, refuse
from .json_values import flattened, member, parsed, tensor_of_values, values_of, written
from .shared_memory import Regions
from .tensors import bytes_of, dtype_of, tensor_of

LENGTH = "inference-header-content-length"
_SOURCES = ("data", "binary_data_size", "shared_memory_region")
_WHERE = ("'data'", "'binary_data_size' in 'parameters'", "'shared_memory_region' in 'parameters'")
_KEPT = (
    "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output",
)  # fmt: skip


def call_of(
    model: LoadedModel, version: int, body: bytes | bytearray, json_length: str | None, regions: Regions
) -> Call:
    """Decode an inference request; ``json_length`` is the header that says how many bytes of the body are
    JSON.
    """
    length = _json_length(json_length, len(body))
    view = memoryview(body)
    if length == 0:
        return _raw(model, version, view)
    found = parsed(view[:length])
    call = Call(model, version, member(found, "id", str, ""))
    parameters_of(call, member(found, "parameters", object, None) if isinstance(found, dict) else None)
    rest = view[length:]
    names = set()
    for given in member(found, "inputs", list):
        tensor, used = _input(call, given, rest, regions)
        rest = rest[used:]
        if tensor._name in names:
            shown = call.request_id or "<id_unknown>"
            refuse(f"[request id: {shown}] input '{tensor._name}' already exists in request")
        names.add(tensor._name)
        call.inputs.append(tensor)
    if len(rest):
        refuse(f"unexpected additional input data for model '{model.name}'")
    for wanted in member(found, "outputs", list, []):
        asked = _asked(wanted, call.binary, regions)
        call.outputs[asked.name] = asked
    return call


def answer_of(call: Call, response: InferenceResponse, regions: Regions) -> tuple[bytes, int | None]:
    """Encode an answer; return its body, and how many bytes of it are JSON, None for all."""
    chunks: list[bytes] = []
    outputs = []
    for tensor in response._outputs:
        asked = call.outputs.get(tensor._name)
        if asked is not None and asked.classes:
            tensor = classified(call.model, tensor, asked.classes)
        told: dict[str, Any] = {
            "name": tensor._name, "datatype": tensor._datatype, "shape": list(tensor._array.shape),
        }  # fmt: skip
        if asked is not None and asked.region:
            write_to_region(asked, bytes_of(tensor), regions)
        elif call.binary if asked is None else asked.binary:
            data = bytes_of(tensor)
            told["parameters"] = {"binary_data_size": len(data)}
            chunks.append(data)
        else:
            told["data"] = values_of(tensor)
        outputs.append(told)
    answer: dict[str, Any] = {"id": call.request_id} if call.request_id else {}
    answer |= {"model_name": call.model.name, "model_version": str(call.model.version)}
    if response._parameters != "{}":
        answer["parameters"] = json.loads(response._parameters)
    text = written({**answer, "outputs": outputs})
    return (b"".join([text, *chunks]), len(text)) if chunks else (text, None)


def write_to_region(asked: Asked, data: bytes, regions: Regions) -> None:
    """Put an output where the client wants it."""
    if len(data) > asked.byte_size:
        refuse(
            f"shared memory size specified with the request for output '{asked.name}' ({asked.byte_size} "
            f"bytes) should be at least {len(data)} bytes to hold the results",
            INTERNAL,
        )
    regions.write(asked.region, asked.offset, data)


def _json_length(text: str | None, size: int) -> int:
    if text is None:
        return size
    try:
        length = int(text)
    except ValueError:
        refuse(f"unable to parse {LENGTH}, got: {text[:40]}")
    if not 0 <= length <= size:
        refuse(f"inference header size should be in range (0, {size}), got: {length}")
    return length


def parameters_of(call: Call, found: Any) -> None:
    """Take the parameters of a request: what Triton keeps for itself, and the model's."""
    if found is None:
        return
    if not isinstance(found, dict):
        refuse("failed to get request params.: attempt to get members for non-object")
    if "sequence_id" in found:
        given = found["sequence_id"]
        whole = isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 64
        call.correlation_id = given if whole else member(found, "sequence_id", str)
    for name in ("sequence_start", "sequence_end"):
        member(found, name, bool, False)
    call.flags = flags_of(found)
    call.priority = member(found, "priority", int, 0)
    call.timeout = member(found, "timeout", int, 0)
    call.binary = member(found, "binary_data_output", bool, call.binary)
    for name, value in found.items():
        if name in _KEPT:
            continue
        if name.startswith("triton_"):
            refuse(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
                "specified."
            )
        if not isinstance(value, (bool, int, float, str)):
            refuse(f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'.")
        call.parameters[name] = value


def _input(call: Call, given: Any, rest: memoryview, regions: Regions) -> tuple[Tensor, int]:
    """An input, and how many bytes of the rest of the body it took."""
    more = given.get("parameters") if isinstance(given, dict) else None
    more = more if isinstance(more, dict) else {}
    has = (isinstance(given, dict) and "data" in given, *(name in more for name in _SOURCES[1:]))
    if sum(has) != 1:
        found = " ".join(f"'{name}'" for name, there in zip(_SOURCES, has, strict=True) if there)
        but = f"But set {found}" if found else "But no field is set"
        refuse(f"Input must set only one of the following fields: {', '.join(_WHERE)}. {but}")
    name = member(given, "name", str)
    datatype = member(given, "datatype", str)
    sizes = member(given, "shape", list)
    shape = [member({"shape": size}, "shape", int) for size in sizes]
    if has[0]:
        return tensor_of_values(name, datatype, shape, flattened(given["data"])), 0
    if has[1]:
        size = member(more, "binary_data_size", int)
        if size > len(rest):
            refuse(
                f"unexpected size for input '{name}', expecting {size - len(rest)} additional bytes for "
                f"model '{call.model.name}'"
            )
        data: bytes | memoryview = rest[:size]
        used = size
    else:
        data, used = _shared(more, regions), 0
    return tensor_of(call.model.name, call.request_id, name, datatype, shape, data), used


def _shared(more: dict[str, Any], regions: Regions) -> bytes:
    size = member(more, "shared_memory_byte_size", int, 1 << 64)
    return regions.read(
        member(more, "shared_memory_region", str), member(more, "shared_memory_offset", int, 0), size
    )


def _asked(wanted: Any, binary: bool, regions: Regions) -> Asked:
    name = member(wanted, "name", str)
    more = wanted.get("parameters")
    more = more if isinstance(more, dict) else {}
    region = member(more, "shared_memory_region", str, "")
    size = member(more, "shared_memory_byte_size", int, 0)
    offset = member(more, "shared_memory_offset", int, 0)
    if region:
        regions.check(region, offset, size)
    classes = member(more, "classification", int, 0)
    return Asked(name, member(more, "binary_data", bool, binary), region, offset, size, classes)


def _raw(model: LoadedModel, version: int, data: memoryview) -> Call:
    """A body that is the one input of the model itself."""
    spec = model.spec
    if len(spec.inputs) != 1:
        refuse(
            "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got "
            f"{len(spec.inputs)} inputs in '{model.name}' model configuration"
        )
    (wanted,) = spec.inputs.values()
    shape = [1 if spec.max_batch_size and not at else size for at, size in enumerate(wanted.shape)]
    call = Call(model, version, binary=True)
    if wanted.datatype == "BYTES":
        if prod(abs(size) for size in shape) != 1:
            refuse(f"For BYTE datatype raw input '{wanted.name}', the model must have input shape [1]")
        framed = len(data).to_bytes(4, "little") + bytes(data)
        call.inputs = [tensor_of(model.name, "", wanted.name, "BYTES", [1] * len(shape), framed)]
        return call
    if shape.count(-1) > 1:
        refuse(
            f"The shape of the raw input '{wanted.name}' can not be deduced because there are more than one "
            "variable-sized dimension"
        )
    if -1 in shape:
        row = prod(size for size in shape if size != -1) * dtype_of(wanted.name, wanted.datatype).itemsize
        if not row or len(data) % row:
            refuse(
                f"The shape of the raw input '{wanted.name}' can not be deduced: {len(data)} bytes are no "
                f"whole number of {row} bytes"
            )
        shape[shape.index(-1)] = len(data) // row
    call.inputs = [tensor_of(model.name, "", wanted.name, wanted.datatype, shape, data)]
    return call
