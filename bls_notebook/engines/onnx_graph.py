"""The signature of an ONNX graph, read from a session or a file, and the completion and check of configurations.

Mirrors Triton's backend. Reading a file needs no onnxruntime: the protobuf parser here skips the weights without
reading them from the disk.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bls_notebook.backends import BackendError
from bls_notebook.records import open_regular_file

from .file_models import INVALID, controls_of, dims_of, refuse_parts

_TENSOR = re.compile(r"tensor\((.+)\)")
_SAME = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_OTHERS = {"float16": "FP16", "bfloat16": "BF16", "float": "FP32", "double": "FP64", "string": "BYTES"}
_DATATYPES = {name: name.upper() for name in _SAME} | _OTHERS
DEFAULT_MAX_BATCH_SIZE = 4  # the server's default of --backend-config=onnxruntime,default-max-batch-size
_OTHER_TYPES = {"seq": "ONNX_TYPE_SEQUENCE", "map": "ONNX_TYPE_MAP", "sparse_tensor": "ONNX_TYPE_SPARSETENSOR"}


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of the graph."""

    name: str
    datatype: str  # Triton's, such as ``FP32``; ``INVALID`` if Triton has none
    dims: tuple[int, ...]  # including the batch; -1 for a variable dimension; empty for a scalar

    @property
    def config_datatype(self) -> str:
        """The data type in the spelling of config.pbtxt."""
        return "TYPE_STRING" if self.datatype == "BYTES" else f"TYPE_{self.datatype}"


@dataclass(frozen=True)
class Signature:
    """Inputs, outputs, and the initializers that a request may override, in the order of the graph."""

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    overridable: dict[str, TensorInfo]

    @property
    def can_batch(self) -> bool:
        """Return whether the first dimension of every tensor varies."""
        return all(t.dims and t.dims[0] == -1 for t in [*self.inputs.values(), *self.outputs.values()])


def signature_of(session: Any) -> Signature:
    nodes = session.get_inputs(), session.get_outputs(), session.get_overridable_initializers()
    return Signature(*map(_infos, nodes))


def _infos(nodes: Iterable[Any]) -> dict[str, TensorInfo]:
    infos = {}
    for node in nodes:
        tensor = _TENSOR.fullmatch(node.type)
        if tensor is None:
            kind = _OTHER_TYPES.get(node.type.partition("(")[0], "ONNX_TYPE_UNKNOWN")
            raise BackendError(
                f"Unsupported ONNX Type '{kind}' for I/O '{node.name}', expected 'ONNX_TYPE_TENSOR'.", "Unsupported"
            )
        # A variable dimension is a name or None.
        dims = tuple(d if isinstance(d, int) and d >= 0 else -1 for d in node.shape)
        infos[node.name] = TensorInfo(node.name, _DATATYPES.get(tensor[1], "INVALID"), dims)
    return infos


def needs_completing(config: dict[str, Any]) -> bool:
    """Return whether a configuration lacks inputs or outputs; otherwise Triton completes nothing."""
    inputs = len(config.get("input", ())) + len(config.get("batch_input", ()))
    return not inputs or not config.get("output")


def complete_config(config: dict[str, Any], signature: Signature) -> None:
    """Add max_batch_size, a dynamic batcher, and missing inputs and outputs, in place."""
    if signature.can_batch:
        if config.get("max_batch_size", 0) == 0:
            config["max_batch_size"] = DEFAULT_MAX_BATCH_SIZE
        if config["max_batch_size"] > 1 and "sequence_batching" not in config:
            config.setdefault("dynamic_batching", {})
    elif config.get("max_batch_size", 0) != 0:
        raise BackendError(
            f"autofill failed for model '{config['name']}': model does not support batching while non-zero "
            "max_batch_size is specified",
            INVALID,
        )
    batching = config.get("max_batch_size", 0) > 0
    if not config.get("input") and not config.get("batch_input"):
        config["input"] = [_tensor(info, batching) for info in signature.inputs.values()]
    if not config.get("output"):
        config["output"] = [_tensor(info, batching) for info in signature.outputs.values()]


def _tensor(info: TensorInfo, batching: bool) -> dict[str, Any]:
    tensor: dict[str, Any] = {"name": info.name, "data_type": info.config_datatype}
    dims = list(info.dims[1:] if batching else info.dims)
    if not dims:  # Triton has no tensors without dimensions
        dims = [1]
        if batching:
            tensor["reshape"] = {"shape": []}
    tensor["dims"] = dims
    return tensor


def check_config(config: dict[str, Any], signature: Signature) -> None:
    """Raise BackendError if a configuration contradicts the graph: inputs, names, data types or shapes."""
    refuse_parts(config)
    model, inputs, controls = config["name"], config.get("input", ()), controls_of(config)
    for control in controls:
        if control not in signature.inputs:
            raise BackendError(
                f"configuration specified sequence control '{control}', but model does not provide that input"
            )
    expected = sum(not i.get("optional", False) for i in inputs) + len(controls)
    if len(signature.inputs) != expected:
        raise BackendError(
            f"unable to load model '{model}', configuration expects {expected} inputs, model provides "
            f"{len(signature.inputs)}",
            INVALID,
        )
    for tensor in inputs:
        if tensor.get("optional") and config["max_batch_size"]:
            raise BackendError(
                f"unable to load model '{model}', optional input '{tensor['name']}' is not supported for "
                "models that support batching",
                INVALID,
            )
        info = _matching_info(model, "input", tensor, {**signature.inputs, **signature.overridable})
        _check_shape(config, tensor, info, exact=False)
    for output in config.get("output", ()):
        _check_shape(config, output, _matching_info(model, "output", output, signature.outputs), exact=True)


def _matching_info(model: str, which: str, tensor: dict[str, Any], allowed: dict[str, TensorInfo]) -> TensorInfo:
    name, datatype = tensor["name"], tensor["data_type"]
    info = allowed.get(name)
    if info is None:
        names = ", ".join(sorted(allowed))
        raise BackendError(f"unexpected inference {which} '{name}', allowed {which}s are: {names}", INVALID)
    if datatype in ("TYPE_INVALID", ""):
        raise BackendError(f"unsupported datatype {datatype} for {which} '{name}' for model '{model}'")
    if datatype != info.config_datatype:
        raise BackendError(
            f"unable to load model '{model}', configuration expects datatype {datatype} for {which} "
            f"'{name}', model provides TYPE_{info.datatype}",
            INVALID,
        )
    return info


def _check_shape(config: dict[str, Any], tensor: dict[str, Any], info: TensorInfo, exact: bool) -> None:
    model, name = config["name"], tensor["name"]
    dims = dims_of(tensor)
    if not info.dims:
        if any(d != 1 for d in dims):
            raise BackendError(
                f"unable to load model '{model}', scalar tensor '{name}', should only provide 1 in the model "
                f"configuration when the model doesn't support batching. Model configuration provided: "
                f"{_shown(dims)}.",
                INVALID,
            )
        return
    where = f"model '{model}', tensor '{name}':"
    note = ""
    if config["max_batch_size"] > 0:
        if info.dims[0] != -1:
            raise BackendError(
                f"{where} for the model to support batching the shape should have at least 1 dimension and "
                f"the first dimension must be -1; but shape expected by the model is {_shown(info.dims)}",
                INVALID,
            )
        dims = [-1, *dims]
        note = (
            "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
            "making complete "
        )
    fits = len(dims) == len(info.dims) and all(
        has == says or (has == -1 and not exact) for has, says in zip(info.dims, dims, strict=True)
    )
    if not fits:
        raise BackendError(
            f"{where} the model expects {len(info.dims)} dimensions (shape {_shown(info.dims)}) but the "
            f"model configuration specifies {len(dims)} dimensions ({note}shape {_shown(dims)})",
            INVALID,
        )


def _shown(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"


class _Graph(mmap.mmap):
    """A file whose fields are counted, because a small file can have as many as a large graph has bytes."""

    left = 1 << 19  # fields of the graph and its tensors; the largest public graphs have some 100,000


# Numbers from onnx.proto: of fields, and of element types.
_VERSION, _GRAPH = 1, 7
_INITIALIZER, _INPUT, _OUTPUT = 5, 11, 12
_NAME_OF_TENSOR = 8
_TYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "BYTES", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip


def signature_in(file: Path) -> Signature | None:
    """Return the signature of the graph in a file.

    None if the file is not ONNX, has too many fields, or if an input or output is not a tensor or has no shape.
    """
    try:
        with open_regular_file(file) as opened, _Graph(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _signature(data)
    except (OSError, ValueError, LookupError, OverflowError, AttributeError, TypeError):
        return None


def is_damaged(file: Path) -> bool:
    """Return whether a file is certainly no ONNX graph: empty, or no message of protobuf."""
    try:
        with open_regular_file(file) as opened, _Graph(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return not [*islice(_fields(data, slice(0, len(data))), 1000)]
    except (ValueError, LookupError):
        return True


def _signature(data: _Graph) -> Signature:
    top = _message(data, slice(0, len(data)))
    tensors: dict[int, dict[str, TensorInfo]] = {_INPUT: {}, _OUTPUT: {}}
    initialized: set[str] = set()
    for number, value in _fields(data, top[_GRAPH]):
        if number == _INITIALIZER:
            initialized.add(data[_message(data, value)[_NAME_OF_TENSOR]].decode())
        elif number in tensors:
            info = _info(data, value)
            tensors[number][info.name] = info
    if not tensors[_OUTPUT]:
        raise ValueError("no outputs")
    inputs = {name: info for name, info in tensors[_INPUT].items() if name not in initialized}
    overridable: dict[str, TensorInfo] = {}
    if top.get(_VERSION, 0) >= 4:  # older graphs list weights among the inputs
        overridable = {name: info for name, info in tensors[_INPUT].items() if name in initialized}
    return Signature(inputs, tensors[_OUTPUT], overridable)


def _info(data: _Graph, at: slice) -> TensorInfo:
    """Parse an input or output: ``ValueInfoProto``, which contains ``TypeProto`` and ``TypeProto.Tensor``."""
    value = _message(data, at)
    tensor = _message(data, _message(data, value[2])[1])
    sizes = (_message(data, dim).get(1) for number, dim in _fields(data, tensor[2]) if number == 1)
    dims = tuple(size if isinstance(size, int) else -1 for size in sizes)  # others have a name, or are unknown
    return TensorInfo(data[value[1]].decode(), _TYPES.get(tensor.get(1, 0), "INVALID"), dims)


def _message(data: _Graph, at: slice) -> dict[int, Any]:
    """Return the fields of a message by number; the last one if a number repeats."""
    return dict(_fields(data, at))


def _fields(data: _Graph, message: slice) -> Iterator[tuple[int, Any]]:
    """Yield the number of each field, with its value: varints as numbers, texts and messages as slices."""
    at = message.start
    while at < message.stop:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value: Any = None
        if wire in (0, 2):
            value, at = _varint(data, at)
        if wire == 2:
            value = slice(at, at + value)
            at = value.stop
        elif wire:
            at += {1: 8, 5: 4}[wire]
        data.left -= 1
        if at > message.stop or number == 0 or data.left < 0:
            raise ValueError("no protobuf")
        yield number, value


def _varint(data: _Graph, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("no protobuf")
