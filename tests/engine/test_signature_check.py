"""What is wrong with a request, in Triton's words and in its order (core/src/infer_request.cc)."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.core.signature_check import RequestCheck
from bls_notebook.pb_utils import InferenceRequest, Tensor
from bls_notebook.pb_utils.tensor import datatype_of
from bls_notebook.repository.config import model_config_pb2

SOURCE = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse() for _ in requests]
"""
PLAIN = """
input [
  { name: "A" data_type: TYPE_FP32 dims: [4] },
  { name: "B" data_type: TYPE_INT32 dims: [-1, 2] }
]
output [{ name: "X" data_type: TYPE_FP32 dims: [4] }, { name: "Y" data_type: TYPE_FP32 dims: [4] }]
"""
OPTIONAL = """
input [
  { name: "A" data_type: TYPE_FP32 dims: [4] },
  { name: "B" data_type: TYPE_INT32 dims: [-1, 2] optional: true },
  { name: "C" data_type: TYPE_INT32 dims: [1] optional: true }
]
output [{ name: "X" data_type: TYPE_FP32 dims: [4] }]
"""
ROWS = """
max_batch_size: 4
input [
  { name: "A" data_type: TYPE_FP32 dims: [2] },
  { name: "T" data_type: TYPE_STRING dims: [-1] }
]
output [{ name: "X" data_type: TYPE_FP32 dims: [4] }]
"""
A, B = np.zeros(4, np.float32), np.zeros((3, 2), np.int32)
NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended"
    " to each input shape. If you want to specify the full shape including the batch dim in your input dims"
    " config, try setting max_batch_size to zero. See the model configuration docs for more info on"
    " max_batch_size."
)


@pytest.fixture(scope="module")
def models() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repo:
        repo.define("m", SOURCE, PLAIN)
        repo.define("optional", SOURCE, OPTIONAL)
        repo.define("batched", SOURCE, PLAIN + "max_batch_size: 8")
        repo.define("none", SOURCE)
        for name, more in (("twice", ""), ("twice optional", " optional: true")):
            repo.define(name, SOURCE, f'input [{{ name: "A" data_type: TYPE_FP32 dims: [4]{more} }}]{PLAIN}')
        repo.define("rows", SOURCE, ROWS)
        repo.define("empty", SOURCE, ROWS.replace("[2]", "[2] optional: true").replace("-1]", "-1] optional: true"))
        yield repo


def problem(repo: bls.ModelRepository, model: str, inputs: Any, outputs: Any = (), request_id: str = "") -> str | None:
    """The message that a caller gets, without its beginning; None where the request is served."""
    pairs = inputs.items() if isinstance(inputs, dict) else inputs
    tensors = [Tensor(n, a) for n, a in pairs]

    def body() -> Any:
        return InferenceRequest(
            model_name=model, inputs=tensors, requested_output_names=list(outputs), request_id=request_id
        ).exec()

    response = repo.run(body)
    if not response.has_error():
        return None
    assert response.error().code().name == "INTERNAL"
    assert response.output_tensors() == []
    text = response.error().message()
    beginning = f"Model {model} - Error when running inference: "
    assert text.startswith(beginning)
    return str(text[len(beginning) :])


def unknown(text: str) -> str:
    return f"[request id: <id_unknown>] {text}"


def wrong_count(count: int, got: str, missing: str, model: str = "m", expected: str = "2 inputs") -> str:
    return unknown(
        f"expected {expected} but got {count} inputs for model '{model}'. Got input(s) [{got}], but missing required "
        f"input(s) {missing}. Please provide all required input(s)."
    )


def wrong_shape(name: str, expected: str, got: str, model: str = "m", note: str = "") -> str:
    return unknown(f"unexpected shape for input '{name}' for model '{model}'. Expected {expected}, got {got}. {note}")


def wrong_type(name: str, got: str, expected: str, model: str = "m") -> str:
    return unknown(f"inference input '{name}' data-type is '{got}', but model '{model}' expects '{expected}'")


def rows(count: int, others: int | None = None) -> dict[str, Any]:
    a, b = np.zeros((count, 4), np.float32), np.zeros((count if others is None else others, 3, 2), np.int32)
    return {"A": a, "B": b}


C = np.zeros(1, np.int32)
RANGE = ("optional", "number of inputs between 1 and 3")


@pytest.mark.parametrize(("model", "inputs", "expected"), [
    ("m", {"A": A, "B": B}, None),
    ("m", {"B": B, "A": A}, None),
    ("m", {"A": A, "B": B[:0]}, None),
    ("m", {"A": A}, wrong_count(1, "'A'", "['B']")),
    ("m", {}, wrong_count(0, "", "['A','B']")),
    ("m", {"A": A, "B": B, "C": A}, wrong_count(3, "'B','C','A'", "]")),
    ("m", {"A": A, "C": B}, "unexpected inference input 'C' for model 'm'"),
    ("m", {"a": A, "B": B}, "unexpected inference input 'a' for model 'm'"),
    ("m", [("A", A), ("A", A)], unknown("input 'A' already exists in request")),
    ("m", [("A", A), ("B", B), ("B", B)], unknown("input 'B' already exists in request")),
    ("m", {"A": A, "B": B.astype(np.object_)}, wrong_type("B", "BYTES", "INT32")),
    ("m", {"A": A[:3], "B": B}, wrong_shape("A", "[4]", "[3]")),
    ("m", {"A": A.reshape(2, 2), "B": B}, wrong_shape("A", "[4]", "[2,2]")),
    ("m", {"A": np.array(1, np.float32), "B": B}, wrong_shape("A", "[4]", "[]")),
    ("m", {"A": A, "B": B.T.copy()}, wrong_shape("B", "[-1,2]", "[2,3]")),
    ("m", {"A": A, "B": B[0]}, wrong_shape("B", "[-1,2]", "[2]")),
    ("none", {}, None),
    ("none", {"A": A}, wrong_count(1, "'A'", "]", "none", "0 inputs")),
    *(("optional", {n: {"A": A, "B": B, "C": C}[n] for n in names}, None) for names in ("A", "AB", "AC", "ABC", "CBA")),
    ("optional", {}, wrong_count(0, "", "['A']", *RANGE)),
    ("twice", {"A": A, "B": B}, wrong_count(2, "'B','A'", "]", "twice", "3 inputs")),
    ("twice", {"B": B}, wrong_count(1, "'B'", "['A','A']", "twice", "3 inputs")),
    ("twice", [("A", A), ("B", B), ("A", A)], unknown("input 'A' already exists in request")),
    ("twice optional", {"A": A, "B": B}, None),
    ("optional", {"A": A, "B": B, "C": C, "D": C}, wrong_count(4, "'B','D','C','A'", "]", *RANGE)),
    ("optional", {"A": A, "C": np.zeros(2, np.int32)}, wrong_shape("C", "[1]", "[2]", "optional")),
    ("optional", {"A": A, "C": np.zeros(1, np.int64)}, wrong_type("C", "INT64", "INT32", "optional")),
    *(("batched", rows(count), None) for count in (1, 2, 8)),
    ("batched", rows(9), unknown("inference request batch-size must be <= 8 for 'batched'")),
    ("batched", {**rows(4), "A": A}, wrong_shape("A", "[-1,4]", "[4]", "batched", NOTE)),
    ("batched", {**rows(1), "A": np.array(1, np.float32)},
     unknown("input 'A' has no shape but model requires batch dimension for 'batched'")),
    ("batched", rows(2, 3), unknown("input 'A' batch size does not match other inputs for 'batched'")),
    ("empty", {"T": np.full((0, 0), b"", np.object_)},
     unknown("input 'T' for model 'empty' has shape [0,0]: a batch needs one row at least. (The real server would "
             "keep the caller waiting forever, or drop the batch dimension.)")),
])  # fmt: skip
def test_wrong_inputs_in_tritons_words(
    models: bls.ModelRepository, model: str, inputs: Any, expected: str | None
) -> None:
    assert problem(models, model, inputs) == expected


@pytest.mark.parametrize("dtype", ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f8", "O", "S1"])
def test_every_other_data_type(models: bls.ModelRepository, dtype: str) -> None:
    given = A.astype(dtype)
    got = problem(models, "m", {"A": given, "B": B})
    assert got == wrong_type("A", datatype_of(Tensor("A", given)), "FP32")


@pytest.mark.parametrize(("outputs", "expected"), [
    ([], None), (["X"], None), (["Y", "X"], None), (["X", "X"], None),
    (["Z"], "unexpected inference output 'Z' for model 'm'"),
    (["X", "Z"], "unexpected inference output 'Z' for model 'm'"),
    (["Z", "W"], "unexpected inference output 'W' for model 'm'"),
    (["x"], "unexpected inference output 'x' for model 'm'"),
])  # fmt: skip
def test_requested_outputs(models: bls.ModelRepository, outputs: list[str], expected: str | None) -> None:
    assert problem(models, "m", {"A": A, "B": B}, outputs) == expected


CASES: list[tuple[str, str, Any, list[str], str]] = [
    ("duplicates before outputs", "m", [("A", A), ("A", A)], ["Z"], "already exists"),
    ("outputs before the count", "m", {}, ["Z"], "unexpected inference output 'Z'"),
    ("outputs before shapes", "m", {"A": A[:1], "B": B}, ["Z"], "unexpected inference output 'Z'"),
    ("the count before names", "m", {"Q": A}, [], "expected 2 inputs but got 1"),
    ("the count before data types", "m", {"A": A.astype("f8")}, [], "expected 2 inputs but got 1"),
    ("names before data types", "m", {"A": A.astype("f8"), "Q": B}, [], "unexpected inference input 'Q'"),
    ("the last input first", "m", {"A": A[:1], "B": B.astype("f4")}, [], "input 'B' data-type is"),
    ("one input after the other", "m", {"A": A.astype("f8"), "B": B[0]}, [], "unexpected shape for input 'B'"),
    ("data type before shape", "m", {"A": A[:1].astype("f8"), "B": B}, [], "input 'A' data-type is"),
    ("batch sizes before data types", "batched", {**rows(2, 3), "A": rows(2)["A"].astype("f8")}, [],
     "batch size does not match"),
    ("the batch limit before data types", "batched", {**rows(9), "A": rows(9)["A"].astype("f8")}, [],
     "batch-size must be <= 8"),
    ("the batch limit before shapes", "batched", {**rows(9), "A": rows(9)["A"][:, :2]}, [], "batch-size must be <= 8"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "inputs", "outputs", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_order(models: bls.ModelRepository, model: str, inputs: Any, outputs: list[str], expected: str) -> None:
    got = problem(models, model, inputs, outputs)
    assert got is not None
    assert expected in got


@pytest.mark.parametrize("version", [-1, 1])
def test_models_and_versions_that_are_not_there(models: bls.ModelRepository, version: int) -> None:
    absent = "is not found"
    for model, number, problem in (
        ("nobody", version, absent), ("m", 7, f"version 7 {absent}"), ("../m", version, absent), ("", version, absent)
    ):  # fmt: skip

        def body(model: str = model, number: int = number) -> Any:
            return InferenceRequest(model_name=model, model_version=number, inputs=[], requested_output_names=[]).exec()

        message = models.run(body).error().message()
        assert (
            message == f"Model {model} - Error when running inference: Request for unknown model: '{model}' {problem}"
        )


ARRAYS = {"FP32": np.float32, "INT32": np.int32, "BYTES": np.object_}
names = st.sampled_from("ABC")
dims = st.lists(st.sampled_from([-1, 0, 1, 2, 3]), max_size=3).map(tuple)


@st.composite
def specs(draw: st.DrawFn) -> Any:
    limit = draw(st.sampled_from([0, 0, 1, 2]))
    inputs = {}
    for name in draw(st.lists(names, unique=True)):
        shape = draw(dims)
        inputs[name] = types.SimpleNamespace(
            name=name,
            datatype=draw(st.sampled_from(sorted(ARRAYS))),
            optional=draw(st.integers(0, 3)) == 0,
            shape=(-1, *shape) if limit else shape,
            is_shape_tensor=False,
        )
    return types.SimpleNamespace(
        name="m",
        inputs=inputs,
        outputs=dict.fromkeys(draw(st.lists(st.sampled_from("XYZ"), unique=True))),
        declared=len(inputs),
        required=tuple(n for n, i in inputs.items() if not i.optional),
        max_batch_size=limit,
        in_python=draw(st.booleans()),
        scheduler=draw(st.sampled_from(["default", "sequence"])),
        instances=(),
        config=model_config_pb2().ModelConfig(),
    )


@st.composite
def requests(draw: st.DrawFn, spec: Any) -> InferenceRequest:
    """Mostly what the spec asks for, with something wrong here and there."""
    tensors = []
    wanted = list(spec.inputs.values())
    batch = draw(st.integers(0, 3))
    for one in draw(st.permutations(wanted)):
        if one.optional and draw(st.booleans()):
            continue
        wild = draw(st.integers(0, 9))
        name = draw(names) if wild == 0 else one.name
        datatype = draw(st.sampled_from(sorted(ARRAYS))) if wild == 1 else one.datatype
        shape = [draw(st.integers(0, 3)) if d == -1 else d for d in one.shape]
        if spec.max_batch_size and shape:
            shape[0] = batch
        if wild == 2:
            shape = draw(st.lists(st.integers(0, 3), max_size=4))
        if wild == 3:
            continue
        tensors.append(Tensor(name, np.zeros(shape, ARRAYS[datatype])))
    outputs = draw(st.lists(st.sampled_from(sorted(spec.outputs) or ["X"]), max_size=3))
    if draw(st.integers(0, 9)) == 0:
        outputs.append(draw(st.sampled_from("WXYZ")))
    return InferenceRequest(model_name="m", inputs=tensors, requested_output_names=outputs)


def is_fine(spec: Any, request: InferenceRequest) -> bool:
    """By the letter: every rule on its own, none of them quick."""
    tensors = request.inputs()
    given = [t.name() for t in tensors]
    if len(set(given)) != len(given) or not set(given) <= set(spec.inputs):
        return False
    if not request.requested_output_names() <= set(spec.outputs):
        return False
    if not len(spec.required) <= len(given) <= len(spec.inputs):
        return False
    batches = set()
    for tensor in tensors:
        one = spec.inputs[tensor.name()]
        shape = tensor.shape()
        if datatype_of(tensor) != one.datatype or len(shape) != len(one.shape):
            return False
        if any(want != -1 and want != have for want, have in zip(one.shape, shape, strict=True)):
            return False
        if spec.max_batch_size:
            batches.add(shape[0])
    if spec.max_batch_size and not tensors and spec.in_python and spec.scheduler != "sequence":
        return False
    return len(batches) <= 1 and all(0 < b <= spec.max_batch_size for b in batches)


@given(st.data())
def test_a_request_has_no_problem_exactly_when_every_rule_is_kept(data: st.DataObject) -> None:
    spec = data.draw(specs())
    request = data.draw(requests(spec))
    given = {t.name() for t in request.inputs()}
    if not set(spec.required) <= given and len(given) >= len(spec.required):
        return  # Triton counts only: an optional input may stand in for a required one
    found = RequestCheck(spec).problem(request)
    assert (found is None) is is_fine(spec, request), found


@given(st.data())
def test_checks_of_requests_are_independent(data: st.DataObject) -> None:
    spec = data.draw(specs())
    check = RequestCheck(spec)
    several = [data.draw(requests(spec)) for _ in range(3)]
    first = [check.problem(r) for r in several]
    assert [check.problem(r) for r in reversed(several)] == first[::-1]
    assert [RequestCheck(spec).problem(r) for r in several] == first


@pytest.mark.parametrize(("a", "t", "expected"), [
    ((1, 2), (1, 0), None),
    ((0, 2), (0, 0), "input byte size mismatch for input 'A' for model 'rows'. Expected 8, got 0"),
    ((0, 2), (0, 3), "expected 3 string elements for inference input 'T' for model 'rows', got 0"),
    ((0, 2), (3, 1), "input 'A' batch size does not match other inputs for 'rows'"),
    ((3, 2), (0, 1), "expected 3 string elements for inference input 'T' for model 'rows', got 0"),
    ((3, 2), (0, 0), "input 'T' batch size does not match other inputs for 'rows'"),
    ((5, 2), (0, 0), "inference request batch-size must be <= 4 for 'rows'"),
])  # fmt: skip
def test_a_batch_of_no_rows(models: bls.ModelRepository, a: Any, t: Any, expected: str | None) -> None:
    got = problem(models, "rows", {"A": np.zeros(a, np.float32), "T": np.full(t, b"", np.object_)})
    assert got == (None if expected is None else unknown(expected))


def test_a_model_that_batches_needs_an_input(models: bls.ModelRepository) -> None:
    response = models.infer("empty", {})
    assert response.error is not None
    assert response.error.message() == "out of bounds index 0: request has 0 inputs"
    assert models.infer("empty", {"A": np.zeros((1, 2), np.float32)}).error is None
