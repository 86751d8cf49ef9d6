"""Read requests from other formats as recordings: bodies of KServe v2 requests, and perf_analyzer's input
data.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.devices.transfers import text_bytes
from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.extending import host_of
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, deserialize_bytes_tensor, to_bits
from bls_notebook.records.record_file import json_of, read_bytes, told
from bls_notebook.records.recorded import RequestKept, ResponseKept, TensorKept
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.testing.records.recorded import Recorded

from . import file
from .file import DATATYPES, Array, shown

_OWN = {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout"}
_START, _END = 1, 2


class _NoRequestError(ValueError):
    """What a file says that makes no request; one line."""


def captured(path: Path, model: str | None, repo: ModelRepository | None) -> tuple[Recorded, dict[str, Array]]:
    """Read requests to a model from JSON; see `bls.load`.

    Raises
    ------
    ValueError
        It has none, or some that no server would take.
    OSError
        It cannot be read.
    """
    reader = _Reader(model, repo)
    reader.read(_documents(read_bytes(path)))
    source = "perf_analyzer's input data" if reader.measured else "bodies of KServe v2 requests"
    return Recorded(source=source, requests=tuple(reader.requests)), reader.arrays


def _documents(data: bytes) -> list[Any]:
    """The JSON values of a file: one, or one a line."""
    try:
        found = json_of(data)
    except ValueError:
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        return [json_of(line) for line in lines]
    return found if isinstance(found, list) else [found]


class _Reader:
    """Makes records and arrays of requests."""

    def __init__(self, model: str | None, repo: ModelRepository | None) -> None:
        self.model, self.repo = model, repo
        self.requests: list[RequestKept] = []
        self.arrays: dict[str, Array] = {}
        self.measured = False

    def read(self, documents: list[Any]) -> None:
        for number, found in enumerate(documents, 1):
            if not isinstance(found, dict):
                raise _NoRequestError(f"value {number}: expected a JSON object, got {type(found).__name__}")
            if isinstance(found.get("data"), list):
                self._measured(found)
            elif isinstance(found.get("inputs"), list):
                self._body(found, f"request {number}")
            else:
                keys = ", ".join(sorted(map(str, found))[:8])
                raise _NoRequestError(
                    "it is JSON, but no KServe v2 request (which has 'inputs') and no input data of "
                    f"perf_analyzer ('data'); it has {keys or 'nothing'}"
                )
        if not self.requests:
            raise _NoRequestError("it has no request")

    # -- KServe v2 -------------------------------------------------------------------------------------

    def _body(self, body: Mapping[str, Any], at: str) -> None:
        model = self.model or body.get("model_name")
        if not isinstance(model, str):
            raise _NoRequestError(f"{at}: it does not say of which model it is; say it by model='NAME' (--model NAME)")
        inputs = [self._tensor(each, f"{at}, input {n}") for n, each in enumerate(body["inputs"])]
        parameters = body.get("parameters", {})
        if not isinstance(parameters, dict):
            raise _NoRequestError(f"{at}: its parameters are {type(parameters).__name__}, expected an object")
        own = {
            key: value
            for key, value in parameters.items()
            if key not in _OWN and not key.startswith("triton_") and key != "binary_data_output"
        }
        if not all(isinstance(value, (bool, int, float, str)) for value in own.values()):
            raise _NoRequestError(f"{at}: a parameter is neither text nor a number")
        outputs = body.get("outputs", [])
        names = [each.get("name") if isinstance(each, dict) else None for each in _list(outputs, f"{at}: outputs")]
        correlation, request_id = parameters.get("sequence_id", 0), body.get("id", "")
        flags = _START * (parameters.get("sequence_start") is True)
        flags |= _END * (parameters.get("sequence_end") is True)
        whole = {key: parameters.get(key, 0) for key in ("priority", "timeout")}
        if (
            not all(isinstance(each, str) and each for each in names)
            or type(correlation) not in (int, str)
            or not isinstance(request_id, str)
            or any(type(value) is not int or not 0 <= value < 1 << 64 for value in whole.values())
        ):
            raise _NoRequestError(f"{at}: its id, outputs or parameters are of no type that a server takes")
        self._add(
            model, inputs, (), request_id=request_id, correlation_id=correlation, flags=flags,
            outputs=tuple(names), parameters=json.dumps(own), **whole,
        )  # fmt: skip

    def _tensor(self, found: Any, at: str) -> TensorKept:
        if not isinstance(found, dict):
            raise _NoRequestError(f"{at}: expected an object, got {type(found).__name__}")
        name, datatype = found.get("name"), found.get("datatype")
        if not (isinstance(name, str) and name and isinstance(datatype, str) and datatype in DATATYPES):
            raise _NoRequestError(f"{at}: it has the name {name!r} and the data type {datatype!r}")
        if "binary_data_size" in (found.get("parameters") or {}):
            raise _NoRequestError(f"{at}: its values are binary, behind the JSON; keep bodies whose values are JSON")
        return self._kept(name, datatype, _shape(found.get("shape"), at), found.get("data"), at)

    # -- perf_analyzer -----------------------------------------------------------------------------------

    def _measured(self, found: Mapping[str, Any]) -> None:
        self.measured = True
        if self.model is None:
            raise _NoRequestError("perf_analyzer's data do not say of which model they are; say it by model='NAME'")
        loaded = host_of(self.repo).find(self.model)
        if loaded is None:
            raise _NoRequestError(f"data types are those of model {self.model!r}, which is not loaded; load it first")
        expected = _streams(found.get("validation_data", []))
        for stream, steps in enumerate(_streams(found["data"])):
            sequence = loaded.spec.scheduler == "sequence"
            answers = expected[stream] if stream < len(expected) else []
            for number, step in enumerate(steps):
                at = f"data {stream}" + (f", step {number}" if len(steps) > 1 else "")
                inputs = self._step(step, loaded.spec, False, at)
                known = number < len(answers)
                outputs = self._step(answers[number], loaded.spec, True, f"validation {at}") if known else []
                flags = _START * (number == 0) | _END * (number == len(steps) - 1)
                self._add(
                    self.model, inputs, (ResponseKept(tuple(outputs)),) if known else (),
                    outputs=tuple(each.name for each in outputs),  # others are not validated
                    correlation_id=stream + 1 if sequence else 0, flags=flags if sequence else 0,
                    decoupled=loaded.decoupled,
                )  # fmt: skip

    def _step(self, step: Any, spec: ModelSpec, outputs: bool, at: str) -> list[TensorKept]:
        if not isinstance(step, dict):
            raise _NoRequestError(f"{at}: expected an object, got {type(step).__name__}")
        specs = spec.outputs if outputs else spec.inputs
        out = []
        for name, value in step.items():
            if name not in specs:
                known = ", ".join(specs)
                raise _NoRequestError(f"{at}: model {spec.name!r} has no tensor {name!r}; it has {known}")
            where = f"{at}, {name!r}"
            declared, content = specs[name], value
            shape = list(declared.shape)
            if isinstance(value, dict):
                content = value.get("content", value.get("b64"))
                shape = [*shape[: len(shape) - len(declared.dims)], *_shape(value.get("shape", shape), where)]
                if "b64" in value:
                    content = _decoded(value["b64"], declared.datatype, where)
            content = content if isinstance(content, (list, np.ndarray)) else [content]
            if -1 in shape:  # the batch is one, unless there is more; what varies is the rest
                shape = [
                    1 if n == -1 and i == 0 and len(shape) > len(declared.dims) else n for i, n in enumerate(shape)
                ]
            if shape.count(-1) == 1:
                rest = prod(n for n in shape if n != -1) or 1
                shape[shape.index(-1)] = len(_flat(content)) // rest
            out.append(self._kept(name, declared.datatype, _shape(shape, where), content, where))
        return out

    # -- both ----------------------------------------------------------------------------------------------

    def _kept(self, name: str, datatype: str, shape: tuple[int, ...], data: Any, at: str) -> TensorKept:
        flat = data if isinstance(data, np.ndarray) else _flat(_list(data, f"{at}: its data"))
        if len(flat) != prod(shape):
            raise _NoRequestError(f"{at}: it has {len(flat):,} elements, its shape {list(shape)} has {prod(shape):,}")
        array = (flat if isinstance(flat, np.ndarray) else _array(flat, datatype, at)).reshape(shape)
        array.flags.writeable = False
        values = file.member(len(self.arrays) + 1)
        self.arrays[values] = array
        size = text_bytes(array) if datatype == "BYTES" else array.nbytes
        return TensorKept(name, datatype, shape, size, values, False, shown(array, datatype))

    def _add(self, model: str, inputs: list[TensorKept], responses: tuple[ResponseKept, ...], **more: Any) -> None:
        number = len(self.requests) + 1
        self.requests.append(RequestKept(number, model, inputs=tuple(inputs), responses=responses, **more))


def _streams(found: Any) -> list[list[Any]]:
    """The streams of requests of perf_analyzer's data: of one request each where they are no lists."""
    entries = _list(found, "data")
    if entries and not isinstance(entries[0], list):
        return [[each] for each in entries]
    return [_list(each, "data") for each in entries]


def _list(found: Any, at: str) -> list[Any]:
    if not isinstance(found, list):
        raise _NoRequestError(f"{at}: expected a list, got {type(found).__name__}")
    return found


def _shape(found: Any, at: str) -> tuple[int, ...]:
    if not isinstance(found, (list, tuple)) or not all(type(n) is int and 0 <= n < 1 << 40 for n in found):
        raise _NoRequestError(f"{at}: its shape is {told(found)}, expected whole numbers")
    return tuple(found)


def _flat(data: Any) -> list[Any]:
    out: list[Any] = []
    rest: list[Iterator[Any]] = [iter(data)]
    while rest:
        for each in rest[-1]:
            if isinstance(each, list):
                rest.append(iter(each))
                break
            out.append(each)
        else:
            rest.pop()
    return out


def _array(flat: list[Any], datatype: str, at: str) -> Array:
    if datatype == "BYTES":
        if not all(isinstance(each, str) for each in flat):
            raise _NoRequestError(f"{at}: elements of BYTES have to be text")
        out = np.empty(len(flat), np.object_)
        out[:] = [each.encode("utf-8", "replace") for each in flat]
        return out
    dtype = np.dtype(np.float32) if datatype == "BF16" else DTYPE_OF_DATATYPE[datatype]
    kinds: tuple[type, ...] = (bool, int) if dtype.kind == "b" else (int, float) if dtype.kind == "f" else (int,)
    if not all(type(each) in kinds for each in flat):
        raise _NoRequestError(f"{at}: an element is no {datatype}")
    try:
        array = np.array(flat, dtype)
    except (OverflowError, ValueError) as error:
        raise _NoRequestError(f"{at}: {error}") from None
    return to_bits(array) if datatype == "BF16" else array


def _decoded(text: Any, datatype: str, at: str) -> Array:
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else None
        if data is None:
            raise ValueError("it is no text")
        if datatype == "BYTES":
            return deserialize_bytes_tensor(data)
        return np.frombuffer(data, np.uint16 if datatype == "BF16" else DTYPE_OF_DATATYPE[datatype]).copy()
    except Exception as error:
        raise _NoRequestError(f"{at}: its b64 cannot be read: {told(error)}") from None
