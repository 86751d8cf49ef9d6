"""The pytorch backend: loading and running TorchScript models, and their errors."""

from __future__ import annotations

import asyncio
import io
import runpy
import sys
import threading
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from bls_notebook.pb_utils import InferenceRequest, Tensor
from tests.engines.caller import CALL, GATHERED, define_caller
from tests.waiting import LIMIT

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

from tests.engines import torch_modules as modules  # noqa: E402 - it needs PyTorch
from tests.engines.torch_modules import load, scripted, tensor  # noqa: E402


def backend(repo: bls.ModelRepository, number: int = 0) -> Any:
    return host_of(repo).ready("m").instances[number].backend.instance


def request(*requested: str, **inputs: Any) -> InferenceRequest:
    tensors = [Tensor(n, np.asarray(a)) for n, a in inputs.items()]
    return InferenceRequest(model_name="m", inputs=tensors, requested_output_names=list(requested))


X = np.array([1, 2, 3], np.float32)
PAIR = {"input": [tensor("b"), tensor("a")], "output": [tensor("DIFFERENCE__1"), tensor("SUM__0")]}


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"])
def test_every_data_type_comes_back(repo: bls.ModelRepository, datatype: str) -> None:
    data = scripted(modules.Identity())
    load(repo, data, input=[tensor("x", datatype)], output=[tensor("y", datatype)])
    dtype = host_of(repo).ready("m").spec.inputs["x"].dtype
    for array in (np.array([0, 1, 100]).astype(dtype), np.zeros(3, dtype)):
        answer = repo.infer("m", {"x": array})
        assert answer.error is None
        assert answer.warnings == ()
        assert answer["y"].as_numpy().dtype == dtype
        np.testing.assert_array_equal(answer["y"].as_numpy(), array)


def test_inputs_by_the_names_of_arguments_and_outputs_by_index(repo: bls.ModelRepository) -> None:
    record = load(repo, scripted(modules.AddSub()), **PAIR)
    assert (record.backend, record.instances, record.warnings) == ("pytorch", 1, ())
    answer = repo.infer("m", {"a": X, "b": X * 10})
    assert answer["SUM__0"].as_numpy().tolist() == [11, 22, 33]
    assert answer["DIFFERENCE__1"].as_numpy().tolist() == [-9, -18, -27]
    only = repo.infer("m", {"a": X, "b": X}, outputs=["SUM__0"])
    assert list(only.as_numpy()) == ["SUM__0"]


def test_a_dict_of_inputs(repo: bls.ModelRepository) -> None:
    load(repo, scripted(modules.OfDict()), input=[tensor("right"), tensor("left")])
    assert repo.infer("m", {"left": X * 3, "right": X})["y"].as_numpy().tolist() == [2, 4, 6]


TEXTS = {
    "max_batch_size": 8,
    "input": [tensor("x", "STRING", (1,), reshape={"shape": []})],
    "output": [tensor("TEXT__0", "STRING", (1,), reshape={"shape": []}), tensor("LENGTH__1", "INT64", (1,))],
}


def test_text_is_a_list_of_strings(repo: bls.ModelRepository) -> None:
    load(repo, scripted(modules.Shout()), **TEXTS)
    answer = repo.infer("m", {"x": np.array([["a"], ["日本".encode()], [""]], np.object_)})
    assert answer["TEXT__0"].as_numpy().tolist() == [[b"a!"], ["日本!".encode()], [b"!"]]
    assert answer["LENGTH__1"].as_numpy().tolist() == [[1], [6], [0]]  # bytes: TorchScript's are C++'s strings
    instance = backend(repo)
    asked = [request("TEXT__0", "LENGTH__1", x=np.array([b"1", b"22"][:n], np.object_)) for n in (2, 1)]
    first, second = instance.execute(asked)
    assert [t.as_numpy().tolist() for t in first.output_tensors()] == [["1!", "22!"], [[1], [2]]]
    assert [t.as_numpy().tolist() for t in second.output_tensors()] == [["1!"], [[1]]]


def test_bytes_that_are_not_utf8_are_inputs_but_not_outputs(repo: bls.ModelRepository) -> None:
    given = {"x": np.array([b"\xff\x00", b"ok"], np.object_)}
    text = tensor("x", "STRING", (-1,))
    load(repo, scripted(modules.Lengths()), input=[text], output=[tensor("y", "INT64", (-1,))])
    assert repo.infer("m", given)["y"].as_numpy().tolist() == [2, 2]
    load(repo, scripted(modules.Identity()), input=[text])
    assert "PyTorch execute failure: " in repo.infer("m", given).error.message()


def test_requests_are_joined_and_answered_apart(repo: bls.ModelRepository) -> None:
    load(repo, scripted(modules.AddSub()), max_batch_size=8, **PAIR)
    instance, calls = backend(repo), []
    run = instance._module
    instance._module = lambda *tensors: calls.append(tuple(tensors[0].shape)) or run(*tensors)
    asked = [
        request("SUM__0", a=np.full((rows, 3), rows, np.float32), b=np.ones((rows, 3), np.float32)) for rows in (1, 3)
    ]
    asked.append(request("SUM__0", b=np.ones((1, 2), np.float32), a=np.ones((1, 2), np.float32)))
    answers = instance.execute(asked)
    assert calls == [(4, 3), (1, 2)]  # those of one shape together
    arrays = [a.output_tensors()[0].as_numpy() for a in answers]
    assert [(a.shape, float(a[0, 0])) for a in arrays] == [((1, 3), 2.0), ((3, 3), 4.0), ((1, 2), 2.0)]


def test_instances_have_their_own_buffers_unless_they_share(repo: bls.ModelRepository) -> None:
    groups = {"instance_group": [{"count": 2, "kind": "KIND_CPU"}], "output": [tensor("y", dims=(1,))]}
    load(repo, scripted(modules.Counter()), **groups)
    assert backend(repo, 0)._module is not backend(repo, 1)._module
    shared = {"ENABLE_WEIGHT_SHARING": {"string_value": "true"}}
    load(repo, scripted(modules.Counter()), parameters=shared, **groups)
    assert backend(repo, 0)._module is backend(repo, 1)._module
    first, second = backend(repo, 0), backend(repo, 1)
    repo.unload("m")
    assert not first.ready()
    assert not second.ready()


def test_a_models_own_memory_is_never_a_responses(repo: bls.ModelRepository) -> None:
    load(repo, scripted(modules.Counter()), output=[tensor("y", dims=(1,))])
    answers = [repo.infer("m", {"x": X}) for _ in range(3)]
    assert [a["y"].as_numpy().tolist() for a in answers] == [[1], [2], [3]]
    answers[-1]["y"].as_numpy()[:] = 100
    assert repo.infer("m", {"x": X})["y"].as_numpy().tolist() == [4]


def test_instances_run_side_by_side(repo: bls.ModelRepository) -> None:
    load(repo, scripted(modules.Identity()), instance_group=[{"count": 2, "kind": "KIND_CPU"}])
    both = threading.Barrier(2, timeout=LIMIT)
    for number in range(2):
        instance = backend(repo, number)
        instance._module = lambda x: (both.wait(), x)[1]  # passes only while the other runs too

    async def ask() -> list[Any]:
        return await asyncio.gather(*(repo.infer_async("m", {"x": X}) for _ in range(2)))

    assert [a.error for a in asyncio.run(ask())] == [None, None]


def test_a_sequence_with_controls(repo: bls.ModelRepository) -> None:
    def control(name: str, kind: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}", **more}]}

    controls = [
        control("START__1", "START", fp32_false_true=[0, 1]),
        control("READY__2", "READY", int32_false_true=[0, 1]),
        control("ID__3", "CORRID", data_type="TYPE_INT64"),
    ]
    load(
        repo, scripted(modules.Totals()), max_batch_size=2, input=[tensor("X__0", dims=(1,))],
        output=[tensor("TOTAL__0", dims=(1,)), tensor("ID__1", "INT64", (1,))],
        sequence_batching={"direct": {}, "control_input": controls},
    )  # fmt: skip
    totals = []
    for flags, value, which in ((1, 1, 7), (1, 10, 8), (0, 2, 7), (2, 20, 8), (2, 3, 7)):
        answer = repo.infer("m", {"X__0": [[float(value)]]}, correlation_id=which, flags=flags)
        assert answer["ID__1"].as_numpy().tolist() == [[which]]
        totals.append(answer["TOTAL__0"].as_numpy().item())
    assert totals == [1, 10, 3, 30, 6]


@pytest.mark.parametrize(("mode", "expected"), [("true", True), ("false", False)])
def test_inference_mode(repo: bls.ModelRepository, mode: str, expected: bool) -> None:
    seen = []
    parameters = {"INFERENCE_MODE": {"string_value": mode}, "DISABLE_OPTIMIZED_EXECUTION": {"string_value": "1"}}
    load(repo, scripted(modules.Differentiable()), parameters=parameters)
    instance = backend(repo)
    run = instance._module

    def noted(x: Any) -> Any:
        seen.append(
            (torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch._C._get_graph_executor_optimize())
        )
        return run(x)

    instance._module = noted
    assert repo.infer("m", {"x": X})["y"].as_numpy().tolist() == [1, 1, 1]  # a weight, whose gradient is wanted
    assert seen == [(expected, False, False)]
    assert torch._C._get_graph_executor_optimize()


def test_parameters_that_are_not_applied_are_reported(repo: bls.ModelRepository) -> None:
    threads = torch.get_num_threads()
    record = load(repo, scripted(modules.Identity()), parameters={"INTRA_OP_THREAD_COUNT": {"string_value": "7"}})
    assert ["not applied here: INTRA_OP_THREAD_COUNT" in line for line in record.warnings] == [True]
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("expression", "expected"), [(CALL, 6), (GATHERED, 570)])
def test_a_python_model_calls_it(repo: bls.ModelRepository, expression: str, expected: float) -> None:
    load(repo, scripted(modules.Identity()))
    define_caller(repo, expression, ("x",), (3,), "y")
    answer = repo.infer("caller", {"X": [0.0]})
    assert answer.error is None
    assert answer["SUM"].as_numpy().tolist() == [expected]


def test_an_error_of_forward_reaches_the_callers_caller(repo: bls.ModelRepository) -> None:
    load(repo, scripted(modules.Raises()))
    define_caller(repo, CALL, ("x",), (3,), "y")
    error = repo.infer("caller", {"X": [0.0]}).error
    assert "PyTorch execute failure: " in error.message()
    assert "no <b>such</b> thing" in error.message()
    assert error._origin is not None
    assert (error._origin.chain, error._origin.stage) == (("caller", "m"), "")


@pytest.mark.parametrize(("module", "config", "message"), [
    (modules.GivesDict, {}, "output must be of type Tensor, List[str] or Tuple containing one of these"),
    (modules.GivesList, {}, "output must be of type Tensor or List[str], received List[Tensor]"),
    (modules.GivesScalar, {}, "output 'y' is a scalar which is not supported."),
    (modules.Identity, {"output": [tensor("y", "INT32")]},
     "configuration expects datatype TYPE_INT32 for output 'y', model provides TYPE_FP32"),
    (modules.Identity, {"output": [tensor("y", "STRING")]},
     "configuration expects datatype TYPE_BYTES for output 'y', model provides TYPE_FP32"),
    (modules.Identity, {"output": [tensor("y__0"), tensor("z__3")]},
     "The output z__3 in the model configuration refers to an output index which doesn't exist. This"),
])  # fmt: skip
def test_invalid_results_of_forward_are_errors(
    repo: bls.ModelRepository, module: Any, config: dict[str, Any], message: str
) -> None:
    load(repo, scripted(module()), **config)
    error = repo.infer("m", {"x": X}).error
    assert message in error.message()


def test_a_module_that_loses_the_batch_is_an_error(repo: bls.ModelRepository) -> None:
    load(repo, scripted(modules.LosesBatch()), max_batch_size=4)
    assert repo.infer("m", {"x": [X]}).error is None
    error = repo.infer("m", {"x": [X, X]}).error
    assert "gave shape [1, 3] for a batch of 2" in error.message()


def test_every_argument_is_needed(repo: bls.ModelRepository) -> None:
    inputs = [tensor("a"), tensor("b", optional=True)]
    load(repo, scripted(modules.AddSub()), input=inputs, output=[tensor("y__0")])
    assert "input 'b' is missing: TorchScript needs all" in repo.infer("m", {"a": X}).error.message()


ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "model_repository" / "digit_classifier_torch"


@pytest.mark.slow
def test_the_samples_file_is_what_its_script_makes(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = runpy.run_path(str(SAMPLE / "make_model.py"), run_name="make_model")
        kept = torch.jit.load(str(SAMPLE / "1" / "model.pt"))
        weights = kept.state_dict()
        learnt = SimpleNamespace(coef_=weights["sums.weight"].numpy(), intercept_=weights["sums.bias"].numpy())
        script["save"](script["module_of"](learnt), tmp_path / "model.pt")
        made = torch.jit.load(str(tmp_path / "model.pt"))
    assert made.code == kept.code
    assert [(n, w.tolist()) for n, w in made.state_dict().items()] == [(n, w.tolist()) for n, w in weights.items()]


def test_the_samples_file_contains_no_path_of_a_machine() -> None:
    with zipfile.ZipFile(SAMPLE / "1" / "model.pt") as archive:
        assert not any(b".py" in archive.read(n) for n in archive.namelist() if "/code/" not in n)
        assert not [n for n in archive.namelist() if n.endswith(".debug_pkl")]


def pickled(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"m/{name}", content)
    return buffer.getvalue()


def damaged() -> bytes:
    whole = bytearray(scripted(torch.nn.Linear(3, 2)))
    at = whole.index(b"PK\x03\x04", 400)
    whole[at : at + 200] = bytes(200)
    return bytes(whole)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: b"", "the file is empty"),
    (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "fetch it: git lfs pull"),
    (lambda: b"<html>Not Found</html>", "the file begins with b'<html>Not Found<' and is not an archive"),
    (lambda: b"PK\x03\x04" + bytes(100), "and is not an archive, expected TorchScript"),
    (lambda: pickled(torch.nn.Linear(3, 2).state_dict()), "the file has weights or a module written by"),
    (lambda: pickled({"epoch": 3, "model": torch.nn.Linear(3, 2).state_dict()}),
     "create the module, load the file"),
    (lambda: pickled(torch.nn.Linear(3, 2)), "weights or a module written by torch.save"),
    (lambda: zipped(archive_format=b"pt2"), "an archive of torch.export (.pt2), expected TorchScript"),
    (lambda: zipped(note=b"hello"), "the file is another kind of zip archive (m/note), expected TorchScript"),
    (lambda: zipped(**{"data.pkl": b"\x00 no pickle"}), "the file has weights"),
    (damaged, "failed to load model 'm': model.pt: "),
])  # fmt: skip
def test_files_of_other_formats_are_named(repo: bls.ModelRepository, make: Any, message: str) -> None:
    with pytest.raises(bls.ModelLoadError) as caught:
        load(repo, make())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.reason.startswith("load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: ")


def test_a_missing_file(repo: bls.ModelRepository) -> None:
    with pytest.raises(bls.ModelLoadError) as caught:
        repo.load("m", {"platform": "pytorch_libtorch"}, {"file:1/weights.pt": b""})
    assert "Unavailable: unable to find '" in caught.value.reason
    assert "model.pt' for model instance 'm'" in caught.value.reason


def test_another_file_name(repo: bls.ModelRepository) -> None:
    config = {"backend": "pytorch", "default_model_filename": "a.pt", "input": [tensor("x")], "output": [tensor("y")]}
    repo.load("m", config, {"file:1/a.pt": scripted(modules.Identity())})
    assert repo.infer("m", {"x": X}).error is None


COUNTS = {"kind": "BATCH_ELEMENT_COUNT", "target_name": ["n"], "data_type": "TYPE_FP32", "source_input": ["x"]}


@pytest.mark.parametrize(("data", "config", "message"), [
    (modules.TakesNumber, {}, "An input of type 'int' was detected in the model."),
    (modules.TakesOptional, {}, "An input of type 'Optional[Tensor]' was detected in the model."),
    (modules.TwoDicts, {}, "Multiple inputs of kind DictType were detected."),
    (modules.Identity, {"batch_input": [COUNTS]}, "batch_input: not supported for pytorch models in the notebook"),
])  # fmt: skip
def test_torchscript_that_does_not_fit_is_refused_at_load(
    repo: bls.ModelRepository, data: Any, config: dict[str, Any], message: str
) -> None:
    config = {"default_model_filename": "model.pt", **config}
    with pytest.raises(bls.BLSError) as caught:
        load(repo, scripted(data()), **config)
    assert message in str(caught.value)


def test_a_module_without_forward(repo: bls.ModelRepository) -> None:
    class Other(torch.nn.Module):
        @torch.jit.export
        def other(self, x):
            return x

    with pytest.raises(bls.ModelLoadError, match="Method 'forward' is not defined"):
        load(repo, scripted(Other()))


def test_without_pytorch_the_error_says_what_to_install(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(bls.ModelLoadError) as caught:
        load(repo, b"any")
    assert str(caught.value).endswith('install it: pip install "bls_notebook[torch]"')
    assert "\n" not in str(caught.value)
