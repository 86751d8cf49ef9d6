"""Running ONNX models: every data type, batches, outputs that are asked for, and BLS both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import bls_notebook as bls
from bls_notebook.pb_utils import InferenceRequest, Tensor
from bls_notebook.pb_utils.tensor import datatype_of
from tests.engines.caller import CALL, GATHERED, define_caller
from tests.engines.onnx_graphs import FLOAT, ONNX_TYPES, add_sub, graph, identity

ROOT = Path(__file__).resolve().parents[2]


def load(repo: bls.ModelRepository, data: bytes, name: str = "m", **config: Any) -> Any:
    repo.load(name, {"backend": "onnxruntime", **config}, {"file:1/model.onnx": data})
    return repo._server.find(name).instances[0]


def request(requested: tuple[str, ...] = (), **inputs: Any) -> InferenceRequest:
    tensors = [Tensor(n, np.asarray(a)) for n, a in inputs.items()]
    return InferenceRequest(model_name="m", inputs=tensors, requested_output_names=list(requested))


class Counting:
    def __init__(self, session: Any) -> None:
        self.session = session
        self.runs: list[tuple[list[str], dict[str, tuple[int, ...]]]] = []

    def run(self, names: list[str], feed: dict[str, Any], options: Any) -> Any:
        self.runs.append((names, {n: a.shape for n, a in feed.items()}))
        return self.session.run(names, feed, options)


def counted(instance: Any) -> Counting:
    backend = instance.backend.instance
    backend._session = Counting(backend._session)
    return backend._session


@pytest.mark.parametrize("datatype", [d for d in ONNX_TYPES if d not in ("BYTES", "BF16")])
def test_every_data_type_comes_back(repo: bls.ModelRepository, datatype: str) -> None:
    load(repo, identity(datatype, ("n", 3)))
    dtype = repo._server.find("m").spec.inputs["IN"].dtype
    array = np.array([[0, 1, 2], [3, 4, 100]]).astype(dtype)
    answer = repo.infer("m", {"IN": array})
    assert answer.warnings == ()
    out = answer["OUT"].as_numpy()
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, array)
    assert out.flags.writeable


def test_text(repo: bls.ModelRepository) -> None:
    load(repo, identity("BYTES", ("n", 2)))
    given = np.array([["a", b"b\xc3\xa9"], [b"ab\0cd", "日本"]], np.object_)
    out = repo.infer("m", {"IN": given})["OUT"].as_numpy()
    assert out.tolist() == [[b"a", b"b\xc3\xa9"], [b"ab", "日本".encode()]]  # text ends at its first zero byte
    refused = repo.infer("m", {"IN": np.empty((0, 2), np.object_)}).error
    assert "expected 2 string elements for inference input 'IN' for model 'm', got 0" in refused.message()


def test_a_reshape_of_the_configuration(repo: bls.ModelRepository) -> None:
    both = {"data_type": "TYPE_INT32", "dims": [2, 3], "reshape": {"shape": [6]}}
    tensors: dict[str, Any] = {"input": [{"name": "IN", **both}], "output": [{"name": "OUT", **both}]}
    load(repo, identity("INT32", ("n", 6)), max_batch_size=4, **tensors)
    array = np.arange(12, dtype=np.int32).reshape(2, 2, 3)
    np.testing.assert_array_equal(repo.infer("m", {"IN": array})["OUT"].as_numpy(), array)


def test_bfloat16_keeps_its_bits(repo: bls.ModelRepository) -> None:
    kind = TensorProto.BFLOAT16
    data = graph(
        [helper.make_node("Identity", ["IN"], ["OUT"]), helper.make_node("Cast", ["IN"], ["WIDE"], to=FLOAT)],
        {"IN": (kind, ["n", 2])},
        {"OUT": (kind, ["n", 2]), "WIDE": (FLOAT, ["n", 2])},
    )
    load(repo, data)
    bits = (np.array([[1.5, -2.0]], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    answer = repo.infer("m", {"IN": Tensor._of("IN", bits, "BF16")})
    assert answer.error is None
    assert datatype_of(answer["OUT"]) == "BF16"
    np.testing.assert_array_equal(answer["OUT"]._array, bits)
    assert answer["WIDE"].as_numpy().tolist() == [[1.5, -2.0]]


def test_a_scalar_has_dims_of_one_outside(repo: bls.ModelRepository) -> None:
    data = graph(
        [helper.make_node("Add", ["IN", "BY"], ["OUT"])], {"IN": (FLOAT, []), "BY": (FLOAT, [2])}, {"OUT": (FLOAT, [2])}
    )
    load(repo, data)
    assert repo.infer("m", {"IN": [5.0], "BY": [1.0, 2.0]})["OUT"].as_numpy().tolist() == [6.0, 7.0]
    load(repo, identity(dims=()))
    assert repo.infer("m", {"IN": [5.0]})["OUT"].as_numpy().tolist() == [5.0]
    load(repo, identity(dims=("n",)))  # rows of one element: dims [1] with an empty reshape
    answer = repo.infer("m", {"IN": np.array([[1], [2]], np.float32)})
    assert (answer["OUT"].as_numpy().tolist(), answer.warnings) == ([[1], [2]], ())


def test_initializers_can_be_given_as_optional_inputs(repo: bls.ModelRepository) -> None:
    data = graph(
        [helper.make_node("Mul", ["IN", "BY"], ["OUT"])],
        {"IN": (FLOAT, [2]), "BY": (FLOAT, [1])},
        {"OUT": (FLOAT, [2])},
        [numpy_helper.from_array(np.array([3], np.float32), "BY")],
    )
    tensors = {"input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [2]}]}
    tensors["input"].append({"name": "BY", "data_type": "TYPE_FP32", "dims": [1], "optional": True})
    load(repo, data, **tensors)
    assert repo.infer("m", {"IN": [1.0, 2.0]})["OUT"].as_numpy().tolist() == [3.0, 6.0]
    assert repo.infer("m", {"IN": [1.0, 2.0], "BY": [10.0]})["OUT"].as_numpy().tolist() == [10.0, 20.0]


def test_only_requested_outputs_are_fetched(repo: bls.ModelRepository) -> None:
    instance = load(repo, add_sub())
    session = counted(instance)
    (answer,) = instance.backend.instance.execute(
        [request(("OUTPUT1",), INPUT0=np.ones((1, 3), np.float32), INPUT1=np.ones((1, 3), np.float32))]
    )
    assert [t.name() for t in answer.output_tensors()] == ["OUTPUT1"]
    assert session.runs == [(["OUTPUT1"], {"INPUT0": (1, 3), "INPUT1": (1, 3)})]


def test_a_node_that_fails_is_an_error_of_the_request(
    repo: bls.ModelRepository, capfd: pytest.CaptureFixture[str]
) -> None:
    data = graph(
        [helper.make_node("Gather", ["IN", "far"], ["FAR"]), helper.make_node("Identity", ["IN"], ["OUT"])],
        {"IN": (FLOAT, [2])},
        {"FAR": (FLOAT, []), "OUT": (FLOAT, [2])},
        [numpy_helper.from_array(np.array(9), "far")],
    )
    load(repo, data)
    # The graph is run whole, as on Triton, also where nobody asks for the output that fails.
    for outputs in (["OUT"], None):
        error = repo.infer("m", {"IN": [1.0, 2.0]}, outputs=outputs).error
        assert error.message().startswith("onnx runtime error 2: Non-zero status code returned while running Gather")
    assert capfd.readouterr().err == ""  # told once, by the response


def test_requests_of_one_shape_are_run_together_in_whatever_order_they_name_tensors(repo: bls.ModelRepository) -> None:
    instance = load(repo, add_sub(), max_batch_size=8)
    session = counted(instance)
    arrays = [np.full((rows, 3), rows, np.float32) for rows in (1, 3, 2)]
    asked = [request(("OUTPUT0", "OUTPUT1"), INPUT0=a, INPUT1=a * 2) for a in arrays]
    asked.append(request(("OUTPUT1",), INPUT1=arrays[0] * 2, INPUT0=arrays[0]))
    answers = instance.backend.instance.execute(asked)
    assert [shapes["INPUT0"] for _, shapes in session.runs] == [(7, 3)]
    for answer, array in zip(answers, [*arrays, arrays[0]], strict=True):
        by_name = {t.name(): t.as_numpy() for t in answer.output_tensors()}
        np.testing.assert_array_equal(by_name["OUTPUT1"], -array)
        assert answer is answers[3] or (by_name["OUTPUT0"] == array * 3).all()


@pytest.mark.parametrize(("dims", "batch", "shapes", "runs"), [
    (("n", "m"), 8, [(1, 2), (1, 3), (2, 2)], [(1, 3), (3, 2)]),
    ((2,), 0, [(2,), (2,), (2,)], [(2,), (2,), (2,)]),
], ids=["shapes", "no batches"])  # fmt: skip
def test_requests_of_other_shapes_or_without_batches_are_run_apart(
    repo: bls.ModelRepository, dims: Any, batch: int, shapes: Any, runs: Any
) -> None:
    instance = load(repo, identity(dims=dims), max_batch_size=batch)
    session = counted(instance)
    arrays = [np.full(shape, i, np.float32) for i, shape in enumerate(shapes)]
    answers = instance.backend.instance.execute([request(("OUT",), IN=a) for a in arrays])
    assert sorted(s["IN"] for _, s in session.runs) == runs
    for answer, array in zip(answers, arrays, strict=True):
        np.testing.assert_array_equal(answer.output_tensors()[0].as_numpy(), array)


def test_one_bad_request_does_not_fail_the_others_of_its_batch(repo: bls.ModelRepository) -> None:
    backend = load(repo, identity("BYTES", ("n", 1)), max_batch_size=8).backend.instance
    texts = [b"a", b"\xff", b"c"]
    answers = backend.execute([request(("OUT",), IN=np.array([[t]], np.object_)) for t in texts])
    assert [a.has_error() for a in answers] == [False, True, False]
    assert "input 'IN': element 0 is not UTF-8 text" in answers[1].error().message()
    assert [a.output_tensors()[0].as_numpy().tolist() for a in answers[::2]] == [[["a"]], [["c"]]]


def test_a_failing_run_answers_every_request_of_its_batch(repo: bls.ModelRepository) -> None:
    data = graph(
        [helper.make_node("Gather", ["TABLE", "IN"], ["OUT"])],
        {"IN": (TensorProto.INT64, ["n", 1])},
        {"OUT": (FLOAT, ["n", 1])},
        [numpy_helper.from_array(np.arange(3, dtype=np.float32), "TABLE")],
    )
    backend = load(repo, data, max_batch_size=8).backend.instance
    answers = backend.execute([request(("OUT",), IN=np.array([[i]])) for i in (0, 7)])
    assert all(a.error().message().startswith("onnx runtime error ") for a in answers)
    assert repo.infer("m", {"IN": [[2]]})["OUT"].as_numpy().tolist() == [[2.0]]  # it goes on serving


def test_a_graph_that_loses_the_batch_is_an_error(repo: bls.ModelRepository) -> None:
    data = graph(
        [helper.make_node("Slice", ["IN", "zero", "one"], ["OUT"])],
        {"IN": (FLOAT, ["n", 2])},
        {"OUT": (FLOAT, ["k", 2])},
        [numpy_helper.from_array(np.array([i]), name) for i, name in enumerate(("zero", "one"))],
    )
    load(repo, data)
    assert repo.infer("m", {"IN": [[1.0, 2.0]]})["OUT"].as_numpy().tolist() == [[1.0, 2.0]]
    error = repo.infer("m", {"IN": [[1.0, 2.0], [3.0, 4.0]]}).error
    assert "the graph gave shape [1, 2] for a batch of 2" in error.message()


def test_instances_share_the_weights(repo: bls.ModelRepository) -> None:
    load(repo, add_sub(), instance_group=[{"count": 3}])
    backends = [i.backend.instance for i in repo._server.find("m").instances]
    assert len({id(b._session) for b in backends}) == 1
    repo.unload("m")
    assert not any(b.ready() for b in backends)


@pytest.mark.slow
def test_the_samples_file_is_what_its_script_makes() -> None:
    import runpy

    import onnx

    folder = ROOT / "model_repository" / "digit_classifier_onnx"
    script = runpy.run_path(str(folder / "make_model.py"))
    made = script["graph_of"](script["train"]())
    kept = onnx.load(folder / "1" / "model.onnx").graph
    assert [n.op_type for n in made.node] == [n.op_type for n in kept.node]
    for ours, theirs in zip(made.initializer, kept.initializer, strict=True):
        np.testing.assert_allclose(numpy_helper.to_array(ours), numpy_helper.to_array(theirs), atol=1e-4)


@pytest.mark.parametrize(("expression", "expected"), [(CALL, 12.0), (GATHERED, 1140.0)])
def test_a_python_model_calls_an_onnx_model(repo: bls.ModelRepository, expression: str, expected: float) -> None:
    load(repo, add_sub())
    define_caller(repo, expression, ("INPUT0", "INPUT1"), (1, 3), "OUTPUT0")
    answer = repo.infer("caller", {"X": [0.0]})
    assert answer.error is None
    assert answer["SUM"].as_numpy().tolist() == [expected]


LOADER = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = "sums"
        self.seen = []
        pb_utils.load_model(model_name=self.name)
        self.seen.append(pb_utils.is_model_ready(model_name=self.name))

        config = json.dumps({"backend": "onnxruntime", "version_policy": {"specific": {"versions": [1]}}})
        pb_utils.load_model(model_name=self.name, config=config)
        try:
            self.seen.append(pb_utils.is_model_ready(model_name=self.name, model_version="2"))
        except pb_utils.TritonModelException as error:
            self.seen.append("is not" not in str(error))

        with open(json.loads(args["model_config"])["parameters"]["file"]["string_value"], "rb") as file:
            content = file.read()
        pb_utils.load_model(model_name=self.name, config=config, files={"file:1/model.onnx": content})
        self.seen.append(pb_utils.is_model_ready(model_name=self.name, model_version="1"))

    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy().reshape(1, 1)
        answer = pb_utils.InferenceRequest(
            model_name=self.name, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)]).exec()
        out = answer.output_tensors()[0].as_numpy().reshape(1)
        pb_utils.unload_model(model_name=self.name, unload_dependents=True)
        try:
            self.seen.append(pb_utils.is_model_ready(self.name))
        except pb_utils.TritonModelException:
            seen = np.array(self.seen)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out), pb_utils.Tensor("SEEN", seen)])]
"""


def times(factor: float) -> bytes:
    return graph(
        [helper.make_node("Mul", ["IN", "by"], ["OUT"])],
        {"IN": (FLOAT, ["n", 1])},
        {"OUT": (FLOAT, ["n", 1])},
        [numpy_helper.from_array(np.array(factor, np.float32), "by")],
    )


def test_a_model_loads_others_as_in_the_bls_guide(tmp_path: Path) -> None:
    for version, factor in ((1, 2.0), (2, 3.0)):
        (tmp_path / "sums" / str(version)).mkdir(parents=True)
        (tmp_path / "sums" / str(version) / "model.onnx").write_bytes(times(factor))
    (tmp_path / "override.onnx").write_bytes(times(100.0))
    config = {
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [
            {"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]},
            {"name": "SEEN", "data_type": "TYPE_BOOL", "dims": [-1]},
        ],
        "parameters": {"file": {"string_value": str(tmp_path / "override.onnx")}},
    }
    with bls.ModelRepository(tmp_path) as repo:
        repo.define("loader", LOADER, config)
        # The plain load serves the newest version, 2; the config asks for 1; the file replaces that of version 1.
        answer = repo.infer("loader", {"X": [1.0]})
        assert answer.error is None
        assert answer["SEEN"].as_numpy().tolist() == [True, False, True]
        assert answer["OUT"].as_numpy().tolist() == [100.0]
