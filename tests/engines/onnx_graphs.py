"""Small ONNX graphs for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT
ONNX_TYPES = {name: getattr(TensorProto, name) for name in ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64")}
ONNX_TYPES |= {name: getattr(TensorProto, name) for name in ("INT8", "INT16", "INT32", "INT64")}
ONNX_TYPES |= {"FP16": TensorProto.FLOAT16, "BF16": TensorProto.BFLOAT16, "FP32": FLOAT, "FP64": TensorProto.DOUBLE}
ONNX_TYPES["BYTES"] = TensorProto.STRING
Dims = Sequence[int | str | None]


def graph(
    nodes: list[Any],
    inputs: dict[str, tuple[int, Dims]],
    outputs: dict[str, tuple[int, Dims]],
    initializers: Sequence[Any] = (),
    opset: int = 17,
) -> bytes:
    made = helper.make_graph(
        nodes, "graph", [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()],
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in outputs.items()], list(initializers),
    )  # fmt: skip
    return model_bytes(made, opset)


def model_bytes(made: onnx.GraphProto, opset: int = 17) -> bytes:
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 19 else 9)
    return bytes(model.SerializeToString())


def identity(datatype: str = "FP32", dims: Dims = ("n",)) -> bytes:
    kind = ONNX_TYPES[datatype]
    return graph([helper.make_node("Identity", ["IN"], ["OUT"])], {"IN": (kind, dims)}, {"OUT": (kind, dims)})


def add_sub(datatype: str = "FP32", dims: Dims = ("n", 3)) -> bytes:
    kind = ONNX_TYPES[datatype]
    return graph(
        [
            helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
            helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
        ],
        {"INPUT0": (kind, dims), "INPUT1": (kind, dims)},
        {"OUTPUT0": (kind, dims), "OUTPUT1": (kind, dims)},
    )
