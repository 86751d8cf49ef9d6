"""Made-up responses of a stub: configured shapes with variable sizes from the request; zeros or random values.

Guarantees: only requested outputs are created. An output that cannot be created fails only its request. Random values
depend on the request and the seed only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from bls_notebook.devices.device import DeviceError
from bls_notebook.devices.transfers import to_gpu
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.models import Stubbed
from bls_notebook.repository.source.model_source import Stub

MOST_BYTES = 2 << 30  # of one output
_HASHED_BYTES = 1 << 12  # of an input, which determine the random values


class OutputTooLargeError(Exception):
    """An output that is too large for a stub."""


def made(model: str, name: str, datatype: str, shape: tuple[int, ...], seeds: Sequence[int] | None) -> Tensor:
    """Return an output with random values; without `seeds`, zeros. Elements of BYTES name the stub."""
    dtype = np.dtype(np.uint16) if datatype == "BF16" else DTYPE_OF_DATATYPE[datatype]
    size = prod(shape) * dtype.itemsize
    if size > MOST_BYTES:
        raise OutputTooLargeError(
            f"stub of '{model}', output '{name}': {datatype}{list(shape)} would need {size / 2**30:,.1f} "
            f"GiB, expected at most {MOST_BYTES >> 30}; change its dims, or send a smaller input"
        )
    if dtype.kind == "O":
        text = f"text of the stub of {model}"
        array = np.empty(shape, np.object_)
        array[...] = text.encode()
        return Tensor._of(name, array, datatype)
    if seeds is None:
        return Tensor._of(name, np.zeros(shape, dtype), datatype)
    random = np.random.default_rng([*seeds, crc32(name.encode("utf-8", "surrogatepass"))])
    if datatype == "BF16":
        array = (random.random(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype.kind == "f":
        array = random.random(shape, np.float32).astype(dtype)
    elif dtype.kind == "b":
        array = random.integers(0, 2, shape).astype(dtype)
    else:
        array = random.integers(0, 100, shape).astype(dtype)
    return Tensor._of(name, array, datatype)


def fingerprint(tensors: Sequence[Tensor]) -> int:
    """Return a hash of the inputs of a request."""
    out = 0
    for tensor in tensors:
        array = tensor._array
        if not isinstance(array, np.ndarray):  # on a GPU
            continue
        flat = array.reshape(-1)[:_HASHED_BYTES]
        out = crc32(repr(flat.tolist()).encode() if array.dtype.kind == "O" else flat.tobytes(), out)
    return out


TensorShape = tuple[int, ...]
_FEW = 8  # for a variable size that no input determines


@dataclass(frozen=True, slots=True)
class Declared:
    """An input or output as the model sees it: after its reshape, without the batch dimension."""

    name: str
    datatype: str
    dims: TensorShape


def declared(tensors: Sequence[Mapping[str, Any]]) -> dict[str, Declared]:
    """Return the inputs or outputs of a configuration's JSON form, by name."""
    out: dict[str, Declared] = {}
    for tensor in tensors:
        datatype = str(tensor["data_type"]).removeprefix("TYPE_")
        dims = tensor["reshape"].get("shape", ()) if tensor.get("reshape") is not None else tensor["dims"]
        spec = Declared(tensor["name"], "BYTES" if datatype == "STRING" else datatype, tuple(map(int, dims)))
        out.setdefault(spec.name, spec)
    return out


def output_dims(output: Declared, inputs: Sequence[tuple[Declared, TensorShape]]) -> TensorShape:
    """Return the shape of an output for a request without the batch; `inputs` are the request's, with their shapes.

    A variable size is taken from the most similar input: of the same name, else of the same rank, else any. The size
    comes from the same axis if that is variable in the input too, else from its variable axes in order, else from the
    same axis even if it is fixed. If no input determines it, the size of the first axis is 1, because it is mostly a
    batch, and that of any other 8, because code that splits or squeezes an output expects more than one element.
    """
    if -1 not in output.dims:
        return output.dims
    for spec, sizes in sorted(inputs, key=lambda each: _unlike(output, each[0])):
        matched = _matched(output.dims, spec.dims, sizes)
        if matched is not None:
            return matched
    varying = [size for spec, sizes in inputs for size in _varying(spec.dims, sizes)]
    if len(varying) < output.dims.count(-1):
        for spec, sizes in inputs:
            placed = _in_place(output.dims, spec.dims, sizes)
            if placed is not None:
                return placed
    return _filled(output.dims, iter(varying))


def _unlike(output: Declared, given: Declared) -> tuple[bool, bool, bool]:
    return output.name != given.name, len(output.dims) != len(given.dims), output.datatype != given.datatype


def _matched(dims: TensorShape, of: TensorShape, sizes: TensorShape) -> TensorShape | None:
    """Return `dims` with the variable sizes of one input; None if the input has too few."""
    if len(dims) == len(of) == len(sizes) and all(o == -1 for d, o in zip(dims, of, strict=True) if d == -1):
        return tuple(s if d == -1 else d for d, s in zip(dims, sizes, strict=True))
    varying = _varying(of, sizes)
    return _filled(dims, iter(varying)) if len(varying) >= dims.count(-1) else None


def _in_place(dims: TensorShape, of: TensorShape, sizes: TensorShape) -> TensorShape | None:
    """Return `dims` with an input's sizes of the same axes, also fixed ones: [-1, -1, 768] for an input [-1, 77]."""
    wanted = [place for place, dim in enumerate(dims) if dim == -1]
    if wanted[-1] >= min(len(of), len(sizes)) or not any(of[place] == -1 for place in wanted):
        return None
    return tuple(sizes[i] if dim == -1 else dim for i, dim in enumerate(dims))


def _varying(dims: TensorShape, sizes: TensorShape) -> list[int]:
    return [size for dim, size in zip(dims, sizes, strict=False) if dim == -1]


def _filled(dims: TensorShape, varying: Iterator[int]) -> TensorShape:
    return tuple(next(varying, _FEW if place else 1) if dim == -1 else dim for place, dim in enumerate(dims))


class MadeUpResponses:
    """Creates the responses of a stub; `config` is the completed configuration's JSON form.

    ``mark`` is added to the warnings of each response to which a stub contributed.
    """

    def __init__(self, config: Mapping[str, Any], stub: Stub) -> None:
        self._name: str = config["name"]
        self._stub = stub
        self._batching: bool = config["max_batch_size"] > 0
        self._inputs = declared(config["input"])
        self._outputs = declared(config["output"])
        self.mark = (Stubbed(self._name),)

    def response(self, request: InferenceRequest, number: int = 0) -> InferenceResponse:
        """Return a made-up response to a request; `number` is its index in a stream."""
        try:
            tensors = list(self._tensors(request, number))
            if self._stub.gpu is not None:
                tensors = [
                    t if t._datatype == "BYTES" else Tensor._of(t._name, to_gpu(t._array, self._stub.gpu), t._datatype)
                    for t in tensors
                ]
            response = InferenceResponse(tensors)
        except OutputTooLargeError as error:
            response = InferenceResponse([], TritonError(str(error)))
        except (MemoryError, DeviceError) as error:
            response = InferenceResponse([], TritonError(f"stub of '{self._name}': {error}"))
        response._warnings = self.mark
        return response

    def _tensors(self, request: InferenceRequest, number: int) -> Iterator[Tensor]:
        shapes = {t._name: tuple(t._array.shape) for t in request._inputs}
        lead = 1 if self._batching else 0
        rows = next((shape[0] for shape in shapes.values() if shape), 1) if self._batching else None
        inputs = [(spec, shapes[name][lead:]) for name, spec in self._inputs.items() if name in shapes]
        seeds: list[int] | None = None
        if self._stub.values == "random":
            model_seed = crc32(self._name.encode("utf-8", "surrogatepass"))
            seeds = [self._stub.seed, model_seed, fingerprint(request._inputs), number]
        for name, spec in self._outputs.items():
            if name not in request._requested:
                continue
            recorded = self._stub.recorded.get(name)
            if recorded is not None:
                if rows is not None and recorded.ndim and len(recorded) not in (0, rows):
                    recorded = recorded[np.arange(rows) % len(recorded)]  # repeated or truncated
                yield Tensor._of(name, recorded.copy(), spec.datatype)
                continue
            shape = output_dims(spec, inputs)
            yield made(self._name, name, spec.datatype, shape if rows is None else (rows, *shape), seeds)
