"""tritonclient's four clients (HTTP and gRPC, sync and asyncio), against a real tritonserver and an endpoint."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from bls_notebook.shipping.servers.tritonserver import TritonServer

pytest.importorskip("tritonclient.grpc", reason="tritonclient's clients are not installed (extra: network)")
pytest.importorskip("tritonclient.http", reason="tritonclient's clients are not installed (extra: network)")

import ml_dtypes
from tritonclient.utils import InferenceServerException, shared_memory

from tests.engine.harness import until
from tests.network.endpoints.clients import KINDS, Client, Runner, stream
from tests.repository.models import ECHOES

MODELS = Path(__file__).with_name("client_models")
GRPC_CODE = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 500: "INTERNAL", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE"}
ONE = np.array([1.0, 5.0, 3.0], np.float32)


class Target(NamedTuple):
    http: str
    grpc: str


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(MODELS, tmp_path_factory.mktemp("clients") / "models"))


@pytest.fixture(scope="module")
def endpoint(models: Path) -> Iterator[Target]:
    with bls.ModelRepository(models) as repo:
        for model in models.iterdir():
            repo.load(model.name)
        with bls.endpoint(repo, token="", allow_client_shm=True) as made:
            yield Target(made.url.removeprefix("http://"), made.grpc_url)


@pytest.fixture(scope="module")
def tritonserver(models: Path, real_environment: ServerEnvironment) -> Iterator[Target]:
    server = TritonServer(models, environment=real_environment, load=["*"]).start()
    yield Target(f"127.0.0.1:{server.http_port}", f"127.0.0.1:{server.grpc_port}")
    server.stop(graceful=False)


@pytest.fixture(scope="module", params=["endpoint", pytest.param("tritonserver", marks=pytest.mark.triton)])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def run() -> Iterator[Runner]:
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.close()


@pytest.fixture(scope="module", params=KINDS)
def client(request: pytest.FixtureRequest, target: Target, run: Runner) -> Iterator[Client]:
    found = Client(request.param, target.http, target.grpc, run)
    yield found
    found.close()


def only(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", kinds, indirect=True, scope="module")


def refused(error: InferenceServerException, http: int, words: str) -> None:
    assert words in error.message()
    assert error.status() in (str(http), f"StatusCode.{GRPC_CODE[http]}")


TENSORS = {
    "BOOL": np.array([True, False]), "UINT8": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "INT64": np.array([-(2**63), 2**63 - 1]), "FP16": np.array([0.5, np.inf], np.float16),
    "FP32": np.array([np.nan, -0.0, 1e-40], np.float32), "BF16": np.array([1.0, -2.5], ml_dtypes.bfloat16),
    "BYTES": np.array([b"\x00\xff", b"", "caf\u00e9".encode()], np.object_),
}  # fmt: skip


def same(got: Any, sent: Any) -> bool:
    sent = np.asarray(sent)
    if sent.dtype == np.object_:
        return got.shape == sent.shape and got.tolist() == sent.tolist()
    return (got.dtype, got.shape, got.tobytes()) == (sent.dtype, sent.shape, sent.tobytes())


def test_tensors_of_every_kind_come_back(client: Client) -> None:
    empty = {"INT64": np.zeros(0, np.int64), "UINT8": np.zeros((3, 0), np.uint8), "BYTES": np.zeros(0, np.object_)}
    for inputs in (TENSORS, empty, {"INT64": np.arange(100_000)}):
        result = client.infer("echo", inputs)
        assert all(same(result.as_numpy(name), array) for name, array in inputs.items())


@only("http", "http-aio")
def test_tensors_travel_as_json(client: Client) -> None:
    inputs = []
    for name in ("INT64", "FP32", "BYTES"):
        array = np.array(["caf\u00e9"], np.object_) if name == "BYTES" else TENSORS[name]
        array = np.array([1.5], np.float32) if name == "FP32" else array
        inputs.append(client.tensors.InferInput(name, list(array.shape), name))
        inputs[-1].set_data_from_numpy(array, binary_data=False)
    outputs = [client.output(name, binary_data=False) for name in ("INT64", "FP32", "BYTES")]
    result = client.call("infer", "echo", inputs, outputs=outputs)
    assert result.as_numpy("INT64").tolist() == TENSORS["INT64"].tolist()
    assert result.as_numpy("FP32").tolist() == [1.5]
    assert result.get_output("BYTES")["data"] == ["caf\u00e9"]


def test_only_the_requested_outputs_come_as_classes_if_asked_for(client: Client) -> None:
    result = client.infer("echo", {"FP32": ONE, "BOOL": [True]}, outputs=[client.output("FP32")])
    assert same(result.as_numpy("FP32"), ONE)
    assert result.as_numpy("BOOL") is None
    assert result.as_numpy("ABOUT") is None
    result = client.infer("echo", {"FP32": ONE}, outputs=[client.output("FP32", class_count=2)])
    assert result.as_numpy("FP32").tolist() == [b"5.000000:1:bee", b"3.000000:2:cat"]


def test_id_timeout_and_parameters_reach_the_model(client: Client) -> None:
    parameters = {"text": "\u00e9", "number": -3, "flag": True, "real": 0.5}
    result = client.infer("echo", {"FP32": ONE}, request_id="r7", timeout=5_000_000, priority=2, parameters=parameters)
    about = json.loads(result.as_numpy("ABOUT")[0])
    assert about == {"id": "r7", "timeout": 5_000_000, "parameters": parameters}
    answer = result.get_response()
    assert (answer["id"] if client.http else answer.id) == "r7"
    assert (answer["model_version"] if client.http else answer.model_version) == "1"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_messages_can_be_compressed(client: Client, algorithm: str) -> None:
    if client.http:
        options = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    else:
        options = {"compression_algorithm": algorithm}
    zeros = np.zeros(10_000, np.int64)
    assert same(client.infer("echo", {"INT64": zeros}, **options).as_numpy("INT64"), zeros)


@only("grpc", "grpc-aio")
def test_a_clients_timeout_ends_its_wait(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
        client.infer("echo", {"FP32": ONE}, client_timeout=0.05, parameters={"wait": 0.5})


def count(number: int, **options: Any) -> dict[str, Any]:
    return {"model_name": "count", "inputs": {"N": np.array([number], np.int32)}, **options}


@only("grpc", "grpc-aio")
def test_a_decoupled_model_streams(client: Client) -> None:
    answers = stream(client, count(3, request_id="a"), count(0, request_id="b"))
    assert [error for _, error in answers] == [None] * 3
    assert [int(result.as_numpy("AT")[0]) for result, _ in answers] == [0, 1, 2]
    assert {result.get_response().id for result, _ in answers} == {"a"}
    assert stream(client) == []


@only("grpc")  # its asyncio half does not pass the wish on
def test_a_stream_can_say_where_it_ends(client: Client) -> None:
    answers = [result for result, _ in stream(client, count(2, enable_empty_final_response=True))]
    ends = [each.get_response().parameters["triton_final_response"].bool_param for each in answers]
    assert ends == [False, False, True]
    assert answers[-1].as_numpy("AT") is None


@only("grpc", "grpc-aio")
def test_an_error_does_not_end_a_stream(client: Client) -> None:
    answers = stream(client, count(-2), count(1))
    assert [int(result.as_numpy("AT")[0]) for result, error in answers if not error] == [0, 0]
    (error,) = [error for _, error in answers if error]
    assert "below zero" in error.message()


@only("grpc", "grpc-aio")
def test_ordinary_models_answer_in_streams_in_the_order_of_requests(client: Client) -> None:
    asked = [{"model_name": "echo", "inputs": {"INT64": np.array([number])}} for number in range(5)]
    asked[0]["parameters"] = {"wait": 0.05}
    quick = {"model_name": "total", "inputs": {"ADD": np.array([[7]], np.int32)}}
    quick |= {"sequence_id": 1, "sequence_start": True, "sequence_end": True}
    unknown = {"model_name": "nowhere", "inputs": {}}
    wrong = {"model_name": "echo", "inputs": {"FP32": np.array([1])}}
    answers = stream(client, *asked, quick, unknown, wrong)
    assert [int(result.as_numpy("INT64")[0]) for result, _ in answers[:5]] == [0, 1, 2, 3, 4]
    assert int(answers[5][0].as_numpy("SUM")[0, 0]) == 7
    assert "unknown model" in answers[6][1].message()
    assert "data-type" in answers[7][1].message()


def test_a_decoupled_model_needs_a_stream(client: Client) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer("count", {"N": np.array([2], np.int32)})
    refused(caught.value, 501, "decoupled")


def test_a_sequence_keeps_its_state(client: Client) -> None:
    def add(number: int, **flags: bool) -> int:
        add = np.array([[number]], np.int32)
        result = client.infer("total", {"ADD": add}, sequence_id=7, **flags)
        return int(result.as_numpy("SUM")[0, 0])

    assert add(1, sequence_start=True) == 1
    assert [add(2), add(3)] == [3, 6]
    assert add(4, sequence_end=True) == 10
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        add(5)


@pytest.mark.parametrize("target", ["endpoint"], indirect=True, scope="module")
def test_a_text_as_correlation_id_is_refused_where_a_number_is_wanted(client: Client) -> None:
    with pytest.raises(InferenceServerException) as caught:  # servers of 24.10 accept it
        client.infer("total", {"ADD": np.array([[1]], np.int32)}, sequence_id="seven", sequence_start=True)
    refused(caught.value, 400, "data-type is 'BYTES', but model 'total' expects 'UINT64'")


@only("grpc", "grpc-aio")
def test_sequences_go_side_by_side_in_a_stream(client: Client) -> None:
    total = {"model_name": "total"}
    asked = [
        {**total, "inputs": {"ADD": np.array([[at * which]], np.int32)}, "request_id": str(which)}
        | {"sequence_id": which, "sequence_start": at == 1, "sequence_end": at == 3}
        for at in (1, 2, 3)
        for which in (1, 10)
    ]
    answers = [result for result, error in stream(client, *asked) if not error]
    sums = {
        which: [int(a.as_numpy("SUM")[0, 0]) for a in answers if a.get_response().id == which] for which in ("1", "10")
    }
    assert sums == {"1": [1, 3, 6], "10": [10, 30, 60]}


REFUSED = {
    "unknown model": ("nowhere", {"FP32": ONE}, {}, 404, "Request for unknown model: 'nowhere' is not found"),
    "unknown version": ("echo", {"FP32": ONE}, {"model_version": "7"}, 404, "is not found"),
    "unknown input": ("echo", {"NO": ONE}, {}, 400, "unexpected inference input 'NO' for model 'echo'"),
    "unknown output": ("echo", {"FP32": ONE}, {"outputs": ["NO"]}, 400, "unexpected inference output 'NO'"),
    "type": ("echo", {"FP32": np.array([1])}, {}, 400, "data-type"),
    "shape": ("echo", {"FP32": np.zeros((1, 1), np.float32)}, {}, 400, "unexpected shape for input 'FP32'"),
    "scalar": ("echo", {"FP32": np.float32(1)}, {}, 400, "unexpected shape for input 'FP32'"),
    "no sequence": ("total", {"ADD": np.zeros((1, 1), np.int32)}, {}, 400, "non-zero"),
    "batch": ("total", {"ADD": np.zeros((5, 1), np.int32)}, {"sequence_id": 1}, 400, "batch"),
    "by the model": ("echo", {"FP32": ONE}, {"parameters": {"fail": "no \u00e9"}}, 404, "no \u00e9"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_have_a_text_and_a_code(client: Client, case: str) -> None:
    model, inputs, options, status, words = REFUSED[case]
    outputs = [client.output(name) for name in options.get("outputs", ())]
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, inputs, **{**options, "outputs": outputs or None})
    refused(caught.value, status, words)


@pytest.fixture
def region() -> Iterator[Any]:
    name = f"/bls_notebook_clients_{time.time_ns()}"
    made = shared_memory.create_shared_memory_region("region", name, 64)
    yield made, name
    shared_memory.destroy_shared_memory_region(made)


@pytest.mark.skipif(sys.platform != "linux", reason="system shared memory is Linux's")
def test_tensors_in_shared_memory(client: Client, region: tuple[Any, str]) -> None:
    handle, key = region
    shared_memory.set_shared_memory_region(handle, [ONE])
    client.register_system_shared_memory("region", key, 64)
    (status,) = regions(client)
    assert (status["name"], status["key"], int(status["byte_size"])) == ("region", key, 64)
    given = client.tensors.InferInput("FP32", [3], "FP32")
    given.set_shared_memory("region", ONE.nbytes)
    wanted = client.output("FP32")
    wanted.set_shared_memory("region", ONE.nbytes, offset=32)
    answer = client.call("infer", "echo", [given], outputs=[wanted])
    assert client.http or list(answer.get_response().raw_output_contents) == [b""]  # clients in C++ index into it
    assert same(shared_memory.get_contents_as_numpy(handle, np.float32, [3], offset=32), ONE)
    given.set_shared_memory("region", ONE.nbytes, offset=60)
    with pytest.raises(InferenceServerException) as caught:
        client.call("infer", "echo", [given])
    refused(caught.value, 400, "Invalid offset + byte size for shared memory region: 'region'")
    wanted.set_shared_memory("region", ONE.nbytes, offset=64)
    with pytest.raises(InferenceServerException) as caught:
        client.infer("echo", {"FP32": ONE}, outputs=[wanted])
    refused(caught.value, 400, "Invalid offset for shared memory region: 'region'")
    client.unregister_system_shared_memory("region")
    assert not regions(client)
    with pytest.raises(InferenceServerException):
        client.register_system_shared_memory("region", "/bls_notebook_is_not_there", 64)
    with pytest.raises(InferenceServerException) as caught:
        client.register_system_shared_memory("region", key, 4160)
    refused(caught.value, 400, "failed to register shared memory region 'region': invalid args")


def regions(client: Client) -> list[dict[str, Any]]:
    status = client.get_system_shared_memory_status()
    return list(status) if client.http else list(status.get("regions", {}).values())


def test_health(client: Client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "1")
    assert not is_ready(client, "echo", "2")
    assert not is_ready(client, "nowhere")


def index(client: Client) -> dict[str, dict[str, str]]:
    rows = client.get_model_repository_index()
    return {row["name"]: row for row in (rows if client.http else rows["models"])}


def is_ready(client: Client, *model: str) -> bool:
    try:
        return bool(client.is_model_ready(*model))
    except InferenceServerException as error:  # over gRPC, as from servers since 26.07
        refused(error, 503 if "ready state" in error.message() else 404, "Request for unknown model")
        return False


def test_metadata(client: Client) -> None:
    server = client.get_server_metadata()
    assert (server["name"], "version" in server) == ("triton", True)
    assert {"classification", "sequence", "system_shared_memory", "statistics"} <= set(server["extensions"])
    model = client.get_model_metadata("total")
    assert (model["name"], model["versions"], model["platform"]) == ("total", ["1"], "python")
    (given,) = model["inputs"]
    assert (given["name"], given["datatype"], [*map(int, given["shape"])]) == ("ADD", "INT32", [-1, 1])


def test_configuration(client: Client) -> None:
    answer = client.get_model_config("total")
    config = answer if client.http else answer["config"]
    assert (config["name"], config["backend"], config["max_batch_size"]) == ("total", "python", 4)
    assert config["sequence_batching"]["oldest"]["max_candidate_sequences"] == 4
    assert config["instance_group"][0]["kind"] == "KIND_CPU"


@pytest.mark.parametrize("method", ["get_model_metadata", "get_model_config", "get_inference_statistics", "load_model"])
def test_queries_for_an_unknown_model_are_refused(client: Client, method: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        getattr(client, method)("nowhere")
    assert "nowhere" in caught.value.message()


SENT = ECHOES.replace("r.inputs()", "-r.inputs()")
SENT_CONFIG = {
    "backend": "python",
    "parameters": {"greeting": {"string_value": "hello"}},
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
}


@pytest.mark.parametrize("kind", ["http", "grpc-aio"])
def test_models_can_be_loaded_and_unloaded(kind: str, target: Target, run: Runner) -> None:
    client = Client(kind, target.http, target.grpc, run)

    def load(source: str) -> None:
        files = {"file:1/model.py": source.encode()}
        client.load_model("sent", config=json.dumps(SENT_CONFIG), files=files)

    with pytest.raises(InferenceServerException) as caught:
        load("raise ValueError('oh dear')")
    assert "oh dear" in caught.value.message()
    assert "sent" not in index(client)  # there is no folder
    load(SENT)
    assert same(client.infer("sent", {"IN": ONE}).as_numpy("OUT"), -ONE)
    answer = client.get_model_config("sent")
    found = answer if client.http else answer["config"]
    assert found["parameters"]["greeting"]["string_value"] == "hello"
    client.load_model("count")  # which is there, and stays as it is
    client.unload_model("sent")
    until(lambda: not is_ready(client, "sent"))  # unloading answers before the model is gone
    with pytest.raises(InferenceServerException) as caught:
        client.infer("sent", {"IN": ONE})
    refused(caught.value, 404, "'sent'")
    states = {name: row.get("state", "") for name, row in index(client).items()}
    assert states.pop("sent", "UNAVAILABLE") == "UNAVAILABLE"
    assert states == {"count": "READY", "echo": "READY", "total": "READY"}
    client.close()
