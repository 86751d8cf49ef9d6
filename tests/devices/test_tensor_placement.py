"""Where tensors are: inputs on the CPU unless a model says "no", outputs where they are preferred, else where
they were made.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.devices.registry import devices
from tests.devices.conftest import Kit
from tests.devices.models import CUPY_DOUBLE, KEEP, SAY, define, model

X = np.arange(5, dtype=np.float32)
CPU = "(1, 0)"
SAMPLES = Path(__file__).parents[2] / "model_repository"


def values(tensor: pb_utils.Tensor, gpu: Kit) -> list[float]:
    if tensor.is_cpu():
        return tensor.as_numpy().tolist()  # type: ignore[no-any-return]
    return gpu.cupy.from_dlpack(tensor).get().tolist()  # type: ignore[no-any-return]


def where(response: bls.Response, name: str = "OUT") -> str:
    assert response.error is None, response.error
    return response[name]._device().name


@pytest.mark.parametrize(("setting", "moves"), [("yes", True), (None, True), ("no", False)])
def test_inputs_move_to_the_cpu_unless_the_model_says_no(
    gpu: Kit, repo: bls.ModelRepository, setting: str | None, moves: bool
) -> None:
    more = ""
    if setting is not None:
        more = f'parameters {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS" value {{ string_value: "{setting}" }} }}'
    define(repo, "say", SAY, force_cpu=True, outputs={"OUT": "STRING"}, more=more)
    told = repo.infer("say", {"IN": gpu.array(X)})["OUT"].as_numpy()
    assert told.tolist() == [CPU.encode() if moves else b"(2, 0)"]
    assert repo.infer("say", {"IN": X})["OUT"].as_numpy().tolist() == [CPU.encode()]


@pytest.mark.parametrize("source", ["cpu", "gpu:0", "gpu:1"])
@pytest.mark.parametrize("preferred", [None, "cpu", "gpu:0", "gpu:1", "gpu"])
@pytest.mark.parametrize("model", ["keep", "double"])
@pytest.mark.parametrize("way", ["infer", "infer_async", "stream", "gather"])
def test_outputs(gpu: Kit, repo: bls.ModelRepository, source: str, preferred: str | None, model: str, way: str) -> None:
    if "gpu:1" in (source, preferred) and gpu.count < 2:
        pytest.skip("needs two GPUs")
    define(repo, "keep", KEEP)
    define(repo, "double", CUPY_DOUBLE)
    given = X if source == "cpu" else gpu.array(X, index=int(source[-1]))

    async def both() -> list[bls.Response]:
        sent = (repo.infer_async(model, {"IN": given}, preferred_memory=preferred) for _ in range(3))
        return await asyncio.gather(*sent)

    if way == "infer":
        responses = [repo.infer(model, {"IN": given}, preferred_memory=preferred)]
    elif way == "stream":
        responses = list(repo.stream(model, {"IN": given}, preferred_memory=preferred))
    elif way == "infer_async":
        responses = [asyncio.run(repo.infer_async(model, {"IN": given}, preferred_memory=preferred))]
    else:
        responses = asyncio.run(both())
    made = source if model == "keep" or source != "cpu" else "gpu:0"
    expected = {None: made, "gpu": "gpu:0"}.get(preferred, preferred)
    for response in responses:
        assert where(response) == expected
        assert values(response["OUT"], gpu) == (X if model == "keep" else X * 2).tolist()
    assert (given if source == "cpu" else given.get()).tolist() == X.tolist()


CALLER = model("""
def execute(self, requests):
    out = []
    for request in requests:
        sent = pb_utils.InferenceRequest(
            model_name="keep", inputs=request.inputs(), requested_output_names=["OUT"]PREFERRED,
        )
        told = str(sent.EXEC.output_tensors()[0].__dlpack_device__())
        out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([told], object))]))
    return out
""")


@pytest.mark.parametrize(("preferred", "expected"), [
    ("", "(2, 0)"),
    ("pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)", CPU),
    ("pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)", "(2, 0)"),
    ("pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU)", "(2, 0)"),
])  # fmt: skip
@pytest.mark.parametrize("way", ["exec", "async_exec"])
def test_bls(gpu: Kit, repo: bls.ModelRepository, preferred: str, expected: str, way: str) -> None:
    source = CALLER.replace("PREFERRED", f", preferred_memory={preferred}" if preferred else "")
    if way == "exec":
        source = source.replace("sent.EXEC", "sent.exec()")
    else:
        source = source.replace("sent.EXEC", "(await sent.async_exec())").replace("def exec", "async def exec")
    define(repo, "keep", KEEP)
    define(repo, "caller", source, outputs={"OUT": "STRING"})
    response = repo.infer("caller", {"IN": gpu.array(X)})
    assert response.error is None, response.error.message()
    assert response["OUT"].as_numpy().tolist() == [expected.encode()]


TWO = model("""
def execute(self, requests):
    return [
        pb_utils.InferenceResponse([
            pb_utils.Tensor("WORDS", np.array(["äh", "", "longer"], object)),
            pb_utils.Tensor.from_dlpack("OUT", request.inputs()[0]),
            pb_utils.Tensor("MORE", np.arange(3, dtype=np.float32)),
        ])
        for request in requests
    ]
""")


def test_text_on_a_gpu_is_as_unreadable_as_on_triton(gpu: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "two", TWO, outputs={"WORDS": "STRING", "OUT": "FP32", "MORE": "FP32"})
    before = gpu.used()
    response = repo.infer("two", {"IN": gpu.array(X)}, preferred_memory="gpu:0")
    assert [response[n]._device().name for n in response] == ["gpu:0"] * 3
    assert (list(response), values(response["MORE"], gpu)) == (["WORDS", "OUT", "MORE"], [0, 1, 2])
    words = response["WORDS"]
    assert not words.is_cpu()
    assert (words.shape(), words.__dlpack_device__()) == ([3], (2, 0))
    with pytest.raises(pb_utils.TritonModelException, match="stored in GPU"):
        words.as_numpy()
    with pytest.raises(pb_utils.TritonModelException, match="does not have support for string tensors"):
        words.to_dlpack()
    assert "gpu:0" in repr(words)
    assert response.record.tensors[0].preview.startswith("on gpu:0")
    # a model that takes its inputs on the CPU sees the text again
    define(repo, "words", KEEP_TEXT, force_cpu=True, inputs={"IN": "STRING"}, outputs={"OUT": "STRING"})
    again = repo.infer("words", {"IN": words})
    assert again["OUT"].as_numpy().tolist() == ["äh".encode(), b"", b"longer"]
    # and one that does not, hands it on
    define(repo, "pass", PASS_TEXT, inputs={"IN": "STRING"}, outputs={"OUT": "STRING"})
    assert where(repo.infer("pass", {"IN": words})) == "gpu:0"
    on_cpu = repo.infer("pass", {"IN": words}, preferred_memory="cpu")
    assert on_cpu["OUT"].as_numpy().tolist() == ["äh".encode(), b"", b"longer"]
    if gpu.count > 1:
        assert where(repo.infer("pass", {"IN": words}, preferred_memory="gpu:1")) == "gpu:1"
    del response, words, again, on_cpu
    assert gpu.used() == before


KEEP_TEXT = model("""
def execute(self, requests):
    return [
        pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
        for request in requests
    ]
""")
PASS_TEXT = KEEP_TEXT.replace('[pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]', "request.inputs()").replace(
    "class", "import copy\nclass"
)
PASS_TEXT = PASS_TEXT.replace("request.inputs())", "[renamed(request.inputs()[0])])") + (
    "\ndef renamed(tensor):\n    return type(tensor)._of('OUT', tensor._array, 'BYTES')\n"
)


def test_text_on_a_gpu_is_recorded_with_what_it_takes_there(gpu: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "words", KEEP_TEXT, force_cpu=True, inputs={"IN": "STRING"}, outputs={"OUT": "STRING"})
    define(repo, "pass", PASS_TEXT, inputs={"IN": "STRING"}, outputs={"OUT": "STRING"})
    there = repo.infer("words", {"IN": ["a", "bcd"]}, preferred_memory="gpu:0")["OUT"]
    with bls.profile() as session:
        assert where(repo.infer("pass", {"IN": there})) == "gpu:0"
    (span,) = session.record.spans
    assert (span.bytes_in, span.bytes_out) == (12, 12)


def test_the_response_tells_the_truth(gpu: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "keep", KEEP)
    response = repo.infer("keep", {"IN": gpu.array(X)})
    (record,) = response.record.tensors
    assert (record.device, record.bytes, record.shape) == (gpu.label(), 20, (5,))
    assert record.preview == f"on {gpu.label()}, not copied"
    with pytest.raises(bls.BLSError, match=r"output 'OUT' is on gpu:0.*preferred_memory=\"cpu\""):
        response.as_numpy()
    response = repo.infer("keep", {"IN": gpu.array(X)}, preferred_memory="cpu")
    assert response.as_numpy()["OUT"].tolist() == X.tolist()


def test_ways_to_say_where(gpu: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "keep", KEEP)
    memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)
    for preferred in ("gpu", "gpu:0", memory, devices()[1]):
        assert where(repo.infer("keep", {"IN": X}, preferred_memory=preferred)) == "gpu:0"


def test_a_gpu_without_room_answers_with_an_error(simulated: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "keep", KEEP)
    full = simulated.cupy.zeros(simulated.cupy.cuda.Device(0).mem_info[0] - 8, np.uint8)
    response = repo.infer("keep", {"IN": X}, preferred_memory="gpu:0")
    assert "all allocation types failed" in response.error.message()
    assert "Out of memory allocating 20 bytes" in response.error.message()
    held = simulated.array(X, index=1)
    rest = simulated.cupy.cuda.Device(1).mem_info[0]
    with simulated.cupy.cuda.Device(1):
        other = simulated.cupy.zeros(rest, np.uint8)
    for response in (
        repo.infer("keep", {"IN": held}),  # copied for the model: it is held here
        asyncio.run(repo.infer_async("keep", {"IN": held})),
        *repo.stream("keep", {"IN": held}),
    ):
        assert "Failed to allocate memory for the inputs: Out of memory" in response.error.message()
    del full, other
    assert where(repo.infer("keep", {"IN": held}, preferred_memory="gpu:0")) == "gpu:0"


def test_a_model_that_runs_out_of_memory_fails_its_request_only(simulated: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "double", CUPY_DOUBLE)
    full = simulated.cupy.zeros(simulated.cupy.cuda.Device(0).mem_info[0] - 8, np.uint8)
    response = repo.infer("double", {"IN": X})
    assert "OutOfMemoryError: Out of memory allocating 20 bytes" in response.error.message()
    del full
    assert (where(repo.infer("double", {"IN": X})), simulated.used()) == ("gpu:0", 0)


def test_batched_requests_keep_their_own_wishes(gpu: Kit, repo: bls.ModelRepository) -> None:
    config = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 50000 preferred_batch_size: [ 4 ] }\n"
    define(repo, "keep", KEEP, more=config)

    async def send() -> list[bls.Response]:
        wishes = [None, "cpu", "gpu:0", None]
        given = [gpu.array([[1, 2]]), gpu.array([[3, 4]]), np.ones((1, 2), np.float32), np.ones((1, 2), np.float32)]
        return await asyncio.gather(
            *(repo.infer_async("keep", {"IN": x}, preferred_memory=wish) for x, wish in zip(given, wishes, strict=True))
        )

    assert [where(r) for r in asyncio.run(send())] == ["gpu:0", "cpu", "gpu:0", "cpu"]


DECOUPLED = model("""
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        for _ in range(3):
            tensor = pb_utils.Tensor.from_dlpack("OUT", request.inputs()[0])
            sender.send(pb_utils.InferenceResponse([tensor]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""")


@pytest.mark.parametrize(("preferred", "expected"), [(None, "gpu:0"), ("cpu", "cpu"), ("gpu:0", "gpu:0")])
def test_streams(gpu: Kit, repo: bls.ModelRepository, preferred: str | None, expected: str) -> None:
    define(repo, "stream", DECOUPLED, more="model_transaction_policy { decoupled: true }\n")
    responses = [r for r in repo.stream("stream", {"IN": gpu.array(X)}, preferred_memory=preferred) if len(r)]
    assert [where(r) for r in responses] == [expected] * 3


ENSEMBLE = """
platform: "ensemble"
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling {
  step {
    model_name: "double" model_version: -1
    input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "between" }
  }
  step {
    model_name: "LAST" model_version: -1
    input_map { key: "IN" value: "between" } output_map { key: "OUT" value: "OUT" }
  }
}
"""
ON_CPU = KEEP.replace(
    'pb_utils.Tensor.from_dlpack("OUT", request.inputs()[0])', 'pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())'
)


def test_ensembles_leave_tensors_where_their_steps_make_them(gpu: Kit, tmp_path: Path) -> None:
    for name, last in (("twice", "double"), ("back", "on_cpu")):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(ENSEMBLE.replace("LAST", last))
    with bls.ModelRepository(tmp_path) as repo:
        define(repo, "double", CUPY_DOUBLE)
        define(repo, "on_cpu", ON_CPU, force_cpu=True)
        for name in ("twice", "back"):
            repo.load(name)
        for given in (X, gpu.array(X)):
            assert where(repo.infer("twice", {"IN": given})) == "gpu:0"
            assert values(repo.infer("twice", {"IN": given})["OUT"], gpu) == (X * 4).tolist()
            assert where(repo.infer("twice", {"IN": given}, preferred_memory="cpu")) == "cpu"
            assert where(repo.infer("back", {"IN": given})) == "cpu"
            assert where(repo.infer("back", {"IN": given}, preferred_memory="gpu:0")) == "gpu:0"


def test_the_response_cache_keeps_to_the_cpu(gpu: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "keep", KEEP, more="response_cache { enable: true }\n")
    for preferred, expected in ((None, "cpu"), (None, "cpu"), ("gpu:0", "gpu:0"), ("cpu", "cpu")):
        assert where(repo.infer("keep", {"IN": X}, preferred_memory=preferred)) == expected
    hits = repo._server.cache.counts().hits
    assert hits == 3
    for _ in range(2):
        assert where(repo.infer("keep", {"IN": gpu.array(X)})) == "gpu:0"
    assert repo._server.cache.counts().hits == hits
    assert where(asyncio.run(repo.infer_async("keep", {"IN": X}, preferred_memory="gpu:0"))) == "gpu:0"
    assert asyncio.run(repo.infer_async("keep", {"IN": gpu.array(X)})).error is None


def test_sequences(gpu: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "keep", KEEP, more="sequence_batching { max_sequence_idle_microseconds: 1000000 }\n")
    start, end = (pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
    for flags, preferred, expected in ((start, None, "gpu:0"), (0, "cpu", "cpu"), (end, "gpu:0", "gpu:0")):
        response = repo.infer("keep", {"IN": gpu.array(X)}, correlation_id=7, flags=flags, preferred_memory=preferred)
        assert where(response) == expected


def test_onnx_models_answer_on_their_instances_device(gpu: Kit) -> None:
    pytest.importorskip("onnxruntime")
    with bls.ModelRepository(SAMPLES) as repo:
        record = repo.load("digit_classifier_onnx")
        features = np.random.default_rng(1).random((2, 64), np.float32)
        own = {"gpu:0", "gpu:1"} if record.instance_kind == "KIND_GPU" else {"cpu"}  # its instances take turns
        answers = []
        for preferred, given in (("cpu", features), ("cpu", gpu.array(features)), ("gpu:0", features), ("", features)):
            answers.append(repo.infer("digit_classifier_onnx", {"FEATURES": given}, preferred_memory=preferred or None))
            assert where(answers[-1], "PROBABILITIES") in ({preferred} if preferred else own)
        here, there = (answer["PROBABILITIES"].as_numpy() for answer in answers[:2])
        np.testing.assert_allclose(here, there, rtol=1e-5)


@pytest.mark.parametrize("source", ["cpu", "gpu:0", "gpu:1"])
def test_identity_device(gpu: Kit, source: str) -> None:
    if source == "gpu:1" and gpu.count < 2:
        pytest.skip("needs two GPUs")
    given = X if source == "cpu" else gpu.array(X, index=int(source[-1]))
    with bls.ModelRepository(SAMPLES) as repo:
        repo.load("identity_device")
        response = repo.infer("identity_device", {"INPUT": given})
        assert (where(response, "OUTPUT"), values(response["OUTPUT"], gpu)) == (source, X.tolist())
        assert where(repo.infer("identity_device", {"INPUT": given}, preferred_memory="cpu"), "OUTPUT") == "cpu"


@pytest.mark.parametrize("sources", [("gpu:0", "gpu:0"), ("cpu", "gpu:0"), ("gpu:1", "gpu:0")])
def test_dlpack_add_sub(gpu: Kit, sources: tuple[str, str]) -> None:
    if "gpu:1" in sources and gpu.count < 2:
        pytest.skip("needs two GPUs")
    a, b = X, X[::-1].copy()
    given: list[Any] = [
        x if s == "cpu" else gpu.array(x, index=int(s[-1])) for x, s in zip((a, b), sources, strict=True)
    ]
    with bls.ModelRepository(SAMPLES) as repo:
        repo.load("dlpack_add_sub")
        response = repo.infer("dlpack_add_sub", {"INPUT0": given[0], "INPUT1": given[1]})
        expected = next((s for s in sources if s != "cpu"), "cpu")
        for name, wanted in (("OUTPUT0", a + b), ("OUTPUT1", a - b)):
            assert (where(response, name), values(response[name], gpu)) == (expected, wanted.tolist())
