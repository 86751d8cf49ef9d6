"""Read requests that other tools keep: bodies of KServe v2 requests, and perf_analyzer's input data."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.devices.allocation_log import text_bytes
from bls_notebook.engine.core.spec import TensorSpec
from bls_notebook.extending import host_of
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, deserialize_bytes_tensor, to_bits
from bls_notebook.records.record_file import json_of, read_bytes
from bls_notebook.records.recorded import RequestKept, ResponseKept, TensorKept
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.testing.records import Recorded

from . import file
from .file import DATATYPES, Array, shown

_START, _END = 1, 2  # flags of a sequence


def read_requests(path: Path, model: str | None, repo: ModelRepository | None) -> tuple[Recorded, dict[str, Array]]:
    """Read requests to a model from JSON; see `load_recording`.

    Raises
    ------
    ValueError
        The file has no requests, or one that no server would take.
    OSError
        The file cannot be read.
    """
    reader = _Reader(model, repo)
    for number, document in enumerate(_documents(read_bytes(path)), 1):
        try:
            reader.read(document)
        except KeyError as error:
            raise ValueError(f"request {number}: it has no {error}") from None
        except (TypeError, AttributeError) as error:
            raise ValueError(f"request {number}: it has a part of another type than expected ({error})") from None
        except (ValueError, OverflowError) as error:
            raise ValueError(f"request {number}: {error}") from None
    if not reader.requests:
        raise ValueError("it has no request")
    return Recorded(source=reader.source, requests=tuple(reader.requests)), reader.arrays


def _documents(data: bytes) -> list[Any]:
    """Return the JSON values of a file: one, a list, or one a line."""
    try:
        found = json_of(data)
    except ValueError:
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        return [json_of(line) for line in lines]
    return found if isinstance(found, list) else [found]


class _Reader:
    def __init__(self, model: str | None, repo: ModelRepository | None) -> None:
        self.model, self.repo = model, repo
        self.requests: list[RequestKept] = []
        self.arrays: dict[str, Array] = {}
        self.source = ""

    def read(self, document: Any) -> None:
        if isinstance(document, dict) and isinstance(document.get("data"), list):
            self._read_input_data(document)
        elif isinstance(document, dict) and isinstance(document.get("inputs"), list):
            self._read_body(document)
        else:
            raise ValueError(
                "it is no KServe v2 request (an object with 'inputs') and no input data of perf_analyzer ('data')"
            )

    def _read_body(self, body: Mapping[str, Any]) -> None:
        self.source = "bodies of KServe v2 requests"
        model = self.model or body.get("model_name")
        if model is None:
            raise ValueError("it does not say of which model it is; say it by model='NAME' (--model NAME)")
        if any("binary_data_size" in tensor.get("parameters", {}) for tensor in body["inputs"]):
            raise ValueError("its values are binary, behind the JSON; keep bodies whose values are JSON")
        inputs = [self._tensor(t["name"], t["datatype"], t["shape"], t["data"]) for t in body["inputs"]]
        parameters = dict(body.get("parameters", {}))
        correlation = parameters.pop("sequence_id", 0)
        flags = _START * bool(parameters.pop("sequence_start", False))
        flags |= _END * bool(parameters.pop("sequence_end", False))
        numbers = {key: parameters.pop(key, 0) for key in ("priority", "timeout")}
        own = {k: v for k, v in parameters.items() if not k.startswith("triton_") and k != "binary_data_output"}
        self._add(
            model, inputs, request_id=body.get("id", ""), correlation_id=correlation, flags=flags,
            outputs=tuple(output["name"] for output in body.get("outputs", ())), parameters=json.dumps(own), **numbers,
        )  # fmt: skip

    def _read_input_data(self, document: Mapping[str, Any]) -> None:
        self.source = "perf_analyzer's input data"
        if self.model is None:
            raise ValueError("perf_analyzer's data do not say of which model they are; say it by model='NAME'")
        loaded = host_of(self.repo).find(self.model)
        if loaded is None:
            raise ValueError(f"data types are those of model {self.model!r}, which is not loaded; load it first")
        sequence = loaded.spec.scheduler == "sequence"
        expected = _streams(document.get("validation_data", []))
        for stream, steps in enumerate(_streams(document["data"])):
            answers = expected[stream] if stream < len(expected) else []
            for number, step in enumerate(steps):
                responses: tuple[ResponseKept, ...] = ()
                if number < len(answers):
                    responses = (ResponseKept(tuple(self._tensors(answers[number], loaded.spec.outputs))),)
                flags = _START * (number == 0) | _END * (number == len(steps) - 1)
                self._add(
                    self.model, self._tensors(step, loaded.spec.inputs), responses,
                    outputs=tuple(tensor.name for response in responses for tensor in response.tensors),
                    correlation_id=stream + 1 if sequence else 0, flags=flags if sequence else 0,
                    decoupled=loaded.decoupled,
                )  # fmt: skip

    def _tensors(self, step: Mapping[str, Any], specs: Mapping[str, TensorSpec]) -> list[TensorKept]:
        out = []
        for name, value in step.items():
            if name not in specs:
                raise ValueError(f"model {self.model!r} has no tensor {name!r}; it has {', '.join(specs)}")
            declared, content, shape = specs[name], value, list(specs[name].shape)
            batch_dims = len(shape) - len(declared.dims)
            if isinstance(value, dict):
                content = value["content"] if "content" in value else _decoded(value["b64"], declared.datatype)
                shape = [*shape[:batch_dims], *value["shape"]] if "shape" in value else shape
            content = content if isinstance(content, (list, np.ndarray)) else [content]
            if batch_dims and shape[0] == -1 and -1 in shape[1:]:
                shape[0] = 1
            if shape.count(-1) == 1:
                shape[shape.index(-1)] = len(_flat(content)) // (prod(n for n in shape if n != -1) or 1)
            out.append(self._tensor(name, declared.datatype, shape, content))
        return out

    def _tensor(self, name: str, datatype: str, shape: list[int], data: Any) -> TensorKept:
        if not (name and isinstance(name, str) and isinstance(datatype, str) and datatype in DATATYPES):
            raise ValueError(f"it has a tensor with the name {name!r} and the data type {datatype!r}")
        if not all(type(n) is int and 0 <= n < 1 << 40 for n in shape):
            raise ValueError(f"the shape of {name!r} is {shape}, expected whole numbers")
        flat = _flat(data)
        if len(flat) != prod(shape):
            raise ValueError(f"{name!r} has {len(flat):,} elements, its shape {shape} has {prod(shape):,}")
        array = (flat if isinstance(flat, np.ndarray) else _array(flat, name, datatype)).reshape(shape)
        array.flags.writeable = False
        values = file.member(len(self.arrays) + 1)
        self.arrays[values] = array
        size = text_bytes(array) if datatype == "BYTES" else array.nbytes
        return TensorKept(name, datatype, tuple(shape), size, values, False, shown(array, datatype))

    def _add(
        self, model: str, inputs: list[TensorKept], responses: tuple[ResponseKept, ...] = (), **options: Any
    ) -> None:
        number = len(self.requests) + 1
        request = RequestKept(number, model, inputs=tuple(inputs), responses=responses, **options)
        request = RequestKept.from_dict(request.to_dict())  # raises if a field has another type
        file.check_request(request)
        self.requests.append(request)


def _streams(entries: list[Any]) -> list[list[Any]]:
    """Return perf_analyzer's streams of requests; entries that are no lists are streams of one."""
    return [entry if isinstance(entry, list) else [entry] for entry in entries]


def _flat(data: Any) -> Any:
    """Return the elements of nested lists; an array as it is."""
    if isinstance(data, np.ndarray):
        return data
    while any(isinstance(each, list) for each in data):
        data = [each for part in data for each in (part if isinstance(part, list) else [part])]
    return data


def _array(flat: list[Any], name: str, datatype: str) -> Array:
    if datatype == "BYTES":
        out = np.empty(len(flat), np.object_)
        out[:] = [each.encode("utf-8", "replace") for each in flat]
        return out
    dtype = np.dtype(np.float32) if datatype == "BF16" else DTYPE_OF_DATATYPE[datatype]
    kinds: tuple[type, ...] = (bool, int) if dtype.kind == "b" else (int, float) if dtype.kind == "f" else (int,)
    if not all(type(each) in kinds for each in flat):
        raise ValueError(f"an element of {name!r} is no {datatype}")
    array = np.array(flat, dtype)
    return to_bits(array) if datatype == "BF16" else array


def _decoded(text: str, datatype: str) -> Array:
    data = base64.b64decode(text, validate=True)
    if datatype == "BYTES":
        return deserialize_bytes_tensor(data)
    return np.frombuffer(data, np.uint16 if datatype == "BF16" else DTYPE_OF_DATATYPE[datatype]).copy()
