"""ONNX models: what is read of the file, and what does not fit it."""

from __future__ import annotations

from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook import ModelRepository

pytest.importorskip("onnx")

from bls_notebook.engines.onnx_graph import signature_in
from tests.checking.conftest import codes, write
from tests.engines.onnx_graphs import add_sub, identity

TENSORS = """input [ { name: "IN" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""


@pytest.mark.parametrize(
    ("graph", "config", "code", "words"),
    [
        (identity("FP32", ("n", 3)), "max_batch_size: 4\n" + TENSORS, "", ""),
        (identity("FP32", ("n", 3)), "", "", ""),
        (identity("FP32", (1, 3)), "max_batch_size: 4\n" + TENSORS, "graph-no-batch", "[1,3]"),
        (identity("FP32", (1, 3)), "max_batch_size: 4\n", "graph-no-batch", "does not support batching"),
        (identity("FP32", ("n", 5)), "max_batch_size: 4\n" + TENSORS, "graph-misfit", "[-1,5]"),
        (identity("FP32", ("n", 3)), "max_batch_size: 4\n" + TENSORS.replace("IN", "IM"), "graph-misfit", "'IM'"),
        (add_sub(), "max_batch_size: 4\n" + TENSORS, "graph-misfit", "expects 1 inputs, model provides 2"),
        (b"no graph", "max_batch_size: 4\n" + TENSORS, "file-damaged", "no ONNX graph"),
        (b"", "max_batch_size: 4\n" + TENSORS, "file-damaged", "no ONNX graph"),
    ],
)
def test_a_configuration_and_its_graph(tmp_path: Path, graph: bytes, config: str, code: str, words: str) -> None:
    write(tmp_path, {"m/config.pbtxt": 'backend: "onnxruntime"\n' + config, "m/1/model.onnx": ""})
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(graph)
    with ModelRepository(tmp_path) as repository:
        found = bls.check(repo=repository).findings
    assert codes(list(found)) == ([code] if code else [])
    assert all(words in finding.what for finding in found)


def test_a_file_that_ends_early_has_no_signature(tmp_path: Path) -> None:
    whole = add_sub()
    file = tmp_path / "model.onnx"
    file.write_bytes(whole)
    full = signature_in(file)
    assert list(full.inputs) == ["INPUT0", "INPUT1"]
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert signature_in(file) in (None, full)


def test_a_graph_of_millions_of_fields_has_no_signature(tmp_path: Path) -> None:
    graph = identity("FP32", ("n", 3))
    (file := tmp_path / "model.onnx").write_bytes(graph)
    assert signature_in(file) is not None
    file.write_bytes(graph + b"\x08\x08" * 1_000_000)
    assert signature_in(file) is None
