"""What the onnxruntime backend completes, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

import bls_notebook as bls
from bls_notebook.backends.protocol import BackendError
from bls_notebook.engines.onnxruntime import new_session, run_options
from tests.engines.onnx_graphs import FLOAT, add_sub, graph, identity, model_bytes


def load(repo: bls.ModelRepository, data: bytes, **config: Any) -> Any:
    repo.load("m", {"backend": "onnxruntime", **config}, {"file:1/model.onnx": data})
    return repo.config("m")


def refused(repo: bls.ModelRepository, data: bytes, **config: Any) -> bls.ModelLoadError:
    with pytest.raises(bls.ModelLoadError) as caught:
        load(repo, data, **config)
    assert "\n" not in str(caught.value)
    assert not repo.ready("m")
    return caught.value


def tensor(name: str, *dims: int, data_type: str = "TYPE_FP32", **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": data_type, "dims": list(dims), **more}


def test_a_graph_that_can_batch_gets_batches_of_four_and_a_dynamic_batcher(repo: bls.ModelRepository) -> None:
    config = load(repo, add_sub())
    assert config.max_batch_size == 4
    assert list(config.dynamic_batching.preferred_batch_size) == [4]
    assert [(t.name, list(t.dims)) for t in config.input] == [("INPUT0", [3]), ("INPUT1", [3])]
    assert [(t.name, list(t.dims)) for t in config.output] == [("OUTPUT0", [3]), ("OUTPUT1", [3])]
    assert {t.data_type for t in [*config.input, *config.output]} == {11}  # TYPE_FP32
    assert config.platform == "onnxruntime_onnx"
    assert config.default_model_filename == "model.onnx"
    assert config.instance_group[0].count == 2


@pytest.mark.parametrize(("dims", "given", "batch", "completed", "reshaped"), [
    ((2, 3), {}, 0, [2, 3], False),
    ((None, "x", 5), {}, 4, [-1, 5], False),
    (("n",), {}, 4, [1], True),
    ((), {}, 0, [1], False),
    (("n",), {"input": [tensor("IN", -1)], "output": [tensor("OUT", -1)]}, 0, [-1], False),
    (("n", 4), {"input": [tensor("IN", 4)]}, 4, [4], False),
    (("n", 3), {"max_batch_size": 16}, 16, [3], False),
    (("n", 3), {"max_batch_size": 1}, 1, [3], False),
])  # fmt: skip
def test_batches_and_dims_are_completed(
    repo: bls.ModelRepository, dims: Any, given: Any, batch: int, completed: list[int], reshaped: bool
) -> None:
    config = load(repo, identity(dims=dims), **given)
    assert config.max_batch_size == batch
    assert config.WhichOneof("scheduling_choice") == ("dynamic_batching" if batch > 1 else None)
    for described in (config.input[0], config.output[0]):
        assert (list(described.dims), described.HasField("reshape")) == (completed, reshaped)
        assert list(described.reshape.shape) == []


def test_a_given_batcher_stays(repo: bls.ModelRepository) -> None:
    config = load(repo, add_sub(), max_batch_size=8, dynamic_batching={"preferred_batch_size": [2]})
    assert list(config.dynamic_batching.preferred_batch_size) == [2]


def test_strings_and_bfloat16_keep_their_type(repo: bls.ModelRepository) -> None:
    assert load(repo, identity("BYTES")).input[0].data_type == 13  # TYPE_STRING
    assert load(repo, identity("BF16")).input[0].data_type == 14


STATE = {"input_name": "S", "output_name": "T", "data_type": "TYPE_FP32", "dims": [1]}


def write(root: Path, files: dict[str, bytes]) -> bls.ModelRepository:
    for name, data in files.items():
        (root / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "m" / name).write_bytes(data)
    return bls.ModelRepository(root)


NAMED = b'backend: "onnxruntime" default_model_filename: "net.onnx"'


@pytest.mark.parametrize(
    "files",
    [
        {"1/model.onnx": add_sub()},
        {"1/model.onnx": add_sub(), "config.pbtxt": b'platform: "onnxruntime_onnx"'},
        {"1/model.onnx/model.onnx": add_sub()},
        {"1/net.onnx": add_sub(), "config.pbtxt": NAMED},
    ],
    ids=["file", "platform", "folder", "filename"],
)
def test_the_model_file_is_found(tmp_path: Path, files: dict[str, bytes]) -> None:
    with write(tmp_path, files) as repo:
        record = repo.load("m")
        assert (record.backend, record.max_batch_size) == ("onnxruntime", 4)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files = {"1/other.bin": b"", "config.pbtxt": b'backend: "onnxruntime"'}
    with write(tmp_path, files) as repo, pytest.raises(bls.ModelLoadError) as caught:
        repo.load("m")
    expected = f"unable to find '{tmp_path / 'm' / '1' / 'model.onnx'}' for model instance 'm'"
    assert expected in str(caught.value)
    assert f"Unavailable: {expected};" in caught.value.reason


def test_batches_of_a_graph_of_fixed_shapes(repo: bls.ModelRepository) -> None:
    error = refused(repo, add_sub(dims=(2, 3)), max_batch_size=8)
    assert error.reason == (
        "load failed for model 'm': version 1 is at UNAVAILABLE state: Invalid argument: autofill failed for "
        "model 'm': model does not support batching while non-zero max_batch_size is specified;\n"
    )


@pytest.mark.parametrize(("config", "words"), [
    ({"input": [tensor("IN", 4)]}, "TYPE_FP32 for input 'IN', model provides TYPE_INT32"),
    (
        {"input": [tensor("IN", 5, data_type="TYPE_INT32")]},
        "model 'm', tensor 'IN': the model expects 2 dimensions (shape [-1,4]) but the model "
        "configuration specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 "
        "followed by the explicit tensor shape, making complete shape [-1,5])",
    ),
    ({"input": [tensor("IN", 4, 1, data_type="TYPE_INT32")]},
     "expects 2 dimensions (shape [-1,4]) but the model configuration specifies 3 dimensions"),
    ({"input": [tensor("X", 4, data_type="TYPE_INT32")]}, "inference input 'X', allowed inputs are: IN"),
    ({"output": [tensor("X", 4)]}, "unexpected inference output 'X', allowed outputs are: OUT"),
    ({"output": [tensor("OUT", -1, data_type="TYPE_INT32")]},
     "expects 2 dimensions (shape [-1,4]) but the model configuration specifies 2 dimensions"),
    ({"input": [tensor("IN", 4, data_type="TYPE_INT32", optional=True)]},
     "configuration expects 0 inputs, model provides 1"),
    ({"input": [tensor("IN", 4, data_type="TYPE_INT32"), tensor("B", 4)]},
     "unable to load model 'm', configuration expects 2 inputs, model provides 1"),
])  # fmt: skip
def test_a_config_that_contradicts_the_graph_is_refused(repo: bls.ModelRepository, config: Any, words: str) -> None:
    error = refused(repo, identity("INT32", ("n", 4)), **config)
    assert words in str(error)
    assert "UNAVAILABLE state: Invalid argument: " in error.reason
    assert words in error.reason


@pytest.mark.parametrize(
    ("data", "config", "words"),
    [
        (
            identity(dims=(2, 3)), {"input": [tensor("IN", 2)], "output": [tensor("OUT", 2, 3)]},
            "model 'm', tensor 'IN': the model expects 2 dimensions (shape [2,3]) but the model configuration "
            "specifies 1 dimensions (shape [2])",
        ),
        (
            identity(dims=(2, 3)), {"max_batch_size": 2, "input": [tensor("IN", 3)], "output": [tensor("OUT", 3)]},
            "for the model to support batching the shape should have at least 1 dimension and the first "
            "dimension must be -1; but shape expected by the model is [2,3]",
        ),
        (identity(dims=()), {"input": [tensor("IN", 2)], "output": [tensor("OUT", 1)]},
         "scalar tensor 'IN', should only provide 1 in the model configuration"),
        (b"nonsense", {}, "Protobuf parsing failed"),
        (b"nonsense", {}, "onnx runtime error 7: "),
        (add_sub(), {"sequence_batching": {"state": [STATE]}}, "sequence_batching.state"),
    ],
    ids=["shape", "batch", "scalar", "no graph", "code", "state"],
)  # fmt: skip
def test_other_graphs_and_configurations_that_are_refused(
    repo: bls.ModelRepository, data: bytes, config: Any, words: str
) -> None:
    assert words in str(refused(repo, data, **config))


def test_outputs_that_are_not_tensors_are_refused(repo: bls.ModelRepository) -> None:
    made = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["IN"], ["OUT"])],
        "graph",
        [helper.make_tensor_value_info("IN", FLOAT, ["n"])],
        [helper.make_tensor_sequence_value_info("OUT", FLOAT, ["n"])],
    )
    error = refused(repo, model_bytes(made))
    assert "Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'OUT', expected 'ONNX_TYPE_TENSOR'." in str(error)
    assert "Unsupported: Unsupported ONNX Type" in error.reason


def test_a_data_type_that_triton_lacks_is_refused(repo: bls.ModelRepository) -> None:
    cast = helper.make_node("Cast", ["IN"], ["OUT"], to=FLOAT)
    data = graph([cast], {"IN": (TensorProto.FLOAT8E4M3FN, ["n"])}, {"OUT": (FLOAT, ["n"])}, opset=19)
    with pytest.raises(bls.BLSError, match="'IN'"):
        load(repo, data)


def test_a_missing_gpu_is_refused(repo: bls.ModelRepository) -> None:
    with pytest.raises(bls.BLSError, match="KIND_GPU"):
        load(repo, add_sub(), instance_group=[{"kind": "KIND_GPU"}])


def test_a_runtime_without_cuda(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="KIND_GPU needs a build of ONNX Runtime with CUDA") as caught:
        new_session(tmp_path / "model.onnx", {}, "GPU", 0)
    assert "onnxruntime-gpu" in str(caught.value)


def test_controls_of_sequences_count_as_inputs(repo: bls.ModelRepository) -> None:
    kind = TensorProto.FLOAT
    data = graph(
        [helper.make_node("Add", ["IN", "START"], ["OUT"])],
        {"IN": (kind, ["n", 1]), "START": (kind, ["n", 1])},
        {"OUT": (kind, ["n", 1])},
    )
    control = {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}]}
    given = {"max_batch_size": 2, "input": [tensor("IN", 1)], "output": [tensor("OUT", 1)]}
    load(repo, data, sequence_batching={"control_input": [control]}, **given)
    error = refused_again(repo, data, sequence_batching={"control_input": [{**control, "name": "BEGIN"}]}, **given)
    assert "configuration specified sequence control 'BEGIN', but model does not provide that input" in error


def refused_again(repo: bls.ModelRepository, data: bytes, **config: Any) -> str:
    with pytest.raises(bls.ModelLoadError) as caught:
        load(repo, data, **config)
    assert repo.ready("m")  # what served still serves
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(add_sub())
    return tmp_path / "model.onnx"


def parameters(**values: str) -> dict[str, Any]:
    return {"parameters": {k: {"string_value": v} for k, v in values.items()}}


def test_parameters_reach_the_session(file: Path) -> None:
    import onnxruntime as ort

    config = parameters(
        intra_op_thread_count="2", inter_op_thread_count="3", execution_mode="1", enable_mem_arena="0",
        enable_mem_pattern="off",
    )  # fmt: skip
    config["parameters"]["session.use_device_allocator_for_initializers"] = {"string_value": "1"}
    options = new_session(file, config, "CPU", 0).get_session_options()
    assert options.intra_op_num_threads == 2
    assert options.inter_op_num_threads == 3
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    assert options.get_session_config_entry("session.use_device_allocator_for_initializers") == "1"


@pytest.mark.parametrize(("level", "name"), [
    (-1, "ORT_ENABLE_BASIC"),
    (0, "ORT_ENABLE_ALL"),
    (1, "ORT_ENABLE_EXTENDED"),
    (2, "ORT_DISABLE_ALL"),
    (None, "ORT_ENABLE_ALL"),
])  # fmt: skip
def test_the_level_of_graph_optimization(file: Path, level: int | None, name: str) -> None:
    import onnxruntime as ort

    config = {} if level is None else {"optimization": {"graph": {"level": level}}}
    options = new_session(file, config, "CPU", 0).get_session_options()
    assert options.graph_optimization_level == getattr(ort.GraphOptimizationLevel, name)


def test_arena_shrinkage_is_an_option_of_the_run() -> None:
    assert run_options({}) is None
    key = "memory.enable_memory_arena_shrinkage"
    options = run_options({"parameters": {key: {"string_value": "cpu:0"}}})
    assert options.get_run_config_entry(key) == "cpu:0"


@pytest.mark.parametrize(("values", "words"), [
    ({"execution_mode": "2"}, "Expected values for execution_mode are 0 or 1 but got 2"),
    ({"intra_op_thread_count": "many"}, "failed to convert 'many' to integral number"),
    ({"enable_mem_arena": "perhaps"}, "failed to convert 'perhaps' to boolean"),
])  # fmt: skip
def test_parameters_that_are_refused(file: Path, values: dict[str, str], words: str) -> None:
    with pytest.raises(BackendError, match=words) as caught:
        new_session(file, parameters(**values), "CPU", 0)
    assert caught.value.code == "Invalid argument"


@pytest.mark.parametrize(
    ("name", "words"),
    [("fast", "unknown Execution Accelerator 'fast' is requested"), ("openvino", "needs OpenVINOExecutionProvider")],
)
def test_missing_accelerators_are_refused(file: Path, name: str, words: str) -> None:
    config = {"optimization": {"execution_accelerators": {"cpu_execution_accelerator": [{"name": name}]}}}
    with pytest.raises(BackendError, match=words):
        new_session(file, config, "CPU", 0)


def test_without_onnxruntime_the_error_says_how_to_install_it(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    error = refused(repo, add_sub())
    assert "pip install onnxruntime" in str(error)
