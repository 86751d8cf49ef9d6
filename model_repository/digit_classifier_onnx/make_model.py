"""Make 1/model.onnx: the regression of `digit_classifier` as an ONNX graph.

    python make_model.py

Needs scikit-learn and onnx. Triton reads neither this file nor anything else beside the version folders.
It trains like ../digit_classifier/1/model.py, so both models give the same answers.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression


def train():
    digits = load_digits()
    features = digits.data / digits.data.max(axis=1, keepdims=True)
    taught = np.arange(len(features)) % 3 != 0
    model = LogisticRegression(C=1.0, solver="newton-cg", tol=1e-8)
    return model.fit(features[taught], digits.target[taught])


def graph_of(model):
    """Return a graph with one weighted sum per digit, turned into probabilities; the label is the largest."""
    nodes = [
        helper.make_node("MatMul", ["FEATURES", "weights"], ["sums"]),
        helper.make_node("Add", ["sums", "intercepts"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["PROBABILITIES"], axis=1),
        helper.make_node("ArgMax", ["PROBABILITIES"], ["position"], axis=1, keepdims=1),
        helper.make_node("Cast", ["position"], ["LABEL"], to=TensorProto.INT32),
    ]
    return helper.make_graph(
        nodes,
        "digit_classifier",
        [helper.make_tensor_value_info("FEATURES", TensorProto.FLOAT, ["batch", 64])],
        [
            helper.make_tensor_value_info("PROBABILITIES", TensorProto.FLOAT, ["batch", 10]),
            helper.make_tensor_value_info("LABEL", TensorProto.INT32, ["batch", 1]),
        ],
        [
            numpy_helper.from_array(model.coef_.T.astype(np.float32), "weights"),
            numpy_helper.from_array(model.intercept_.astype(np.float32), "intercepts"),
        ],
    )


def main():
    graph = graph_of(train())
    # Versions that every ONNX Runtime of the last years reads.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, Path(__file__).parent / "1" / "model.onnx")


if __name__ == "__main__":
    main()
