"""What an ONNX graph takes and gives, in Triton's words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bls_notebook.backends.errors import BackendError

_TENSOR = re.compile(r"tensor\((.+)\)")
_SAME = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_OTHERS = {"float16": "FP16", "bfloat16": "BF16", "float": "FP32", "double": "FP64", "string": "BYTES"}
_DATATYPES = {name: name.upper() for name in _SAME} | _OTHERS
_OTHER_TYPES = {
    "seq": "ONNX_TYPE_SEQUENCE",
    "map": "ONNX_TYPE_MAP",
    "sparse_tensor": "ONNX_TYPE_SPARSETENSOR",
}


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of the graph."""

    name: str
    datatype: str  # Triton's, such as ``FP32``; ``INVALID`` where Triton has none
    dims: tuple[int, ...]  # the whole shape, -1 where it varies; empty for a scalar

    @property
    def config_datatype(self) -> str:
        """As config.pbtxt spells it."""
        return "TYPE_STRING" if self.datatype == "BYTES" else f"TYPE_{self.datatype}"


@dataclass(frozen=True)
class Signature:
    """Inputs, outputs and the initializers that a request may override, in the graph's order."""

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    overridable: dict[str, TensorInfo]

    @property
    def can_batch(self) -> bool:
        """Whether the first dimension of every tensor varies."""
        tensors = [*self.inputs.values(), *self.outputs.values()]
        return all(t.dims and t.dims[0] == -1 for t in tensors)


def signature_of(session: Any) -> Signature:
    """Return the signature of a session's graph."""
    inputs, outputs = _infos(session.get_inputs()), _infos(session.get_outputs())
    return Signature(inputs, outputs, _infos(session.get_overridable_initializers()))


def _infos(nodes: Iterable[Any]) -> dict[str, TensorInfo]:
    infos = {}
    for node in nodes:
        tensor = _TENSOR.fullmatch(node.type)
        if tensor is None:
            kind = _OTHER_TYPES.get(node.type.partition("(")[0], "ONNX_TYPE_UNKNOWN")
            raise BackendError(
                f"Unsupported ONNX Type '{kind}' for I/O '{node.name}', expected 'ONNX_TYPE_TENSOR'.",
                "Unsupported",
            )
        # A size that varies has a name, or none.
        dims = tuple(d if isinstance(d, int) and d >= 0 else -1 for d in node.shape)
        infos[node.name] = TensorInfo(node.name, _DATATYPES.get(tensor[1], "INVALID"), dims)
    return infos
