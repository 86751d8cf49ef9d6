"""Models of other servers: what goes over the wire, what is lost, what comes back, and what is left."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.schedulers import forwarding
from bls_notebook.engine.waiting.worker_threads import start_in_thread
from bls_notebook.network import connection as connecting
from bls_notebook.network.kserve import client as link
from bls_notebook.network.kserve import grpc_client as grpc_link
from bls_notebook.network.kserve import grpc_codec, json_codec
from bls_notebook.network.kserve.address import AddressError, address_of
from bls_notebook.network.kserve.tensors import AnswerError, output_tensor
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor
from bls_notebook.repository.repository import ModelRepository
from tests.engine.harness import until
from tests.network.servers import SERVING, Service, pb, serving, serving_http
from tests.waiting import LIMIT

CALLER = (
    """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceRequest(model_name="echo", requested_output_names=["X"], inputs=request.inputs()).exec()
            for request in requests
        ]
""",
    " ".join(f'{way} {{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }}' for way in ("input", "output")),
)
X = np.arange(3, dtype=np.float32)


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repo:
        yield repo


@pytest.fixture(params=["grpc", "http"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(service: Service, scheme: str) -> Iterator[str]:
    with SERVING[scheme](service) as port:
        yield f"{scheme}://127.0.0.1:{port}"


@pytest.fixture
def connection(url: str, repo: bls.ModelRepository) -> bls.Connection:
    return bls.connect(url, "echo", repo=repo)


def asked(repo: bls.ModelRepository, **more: Any) -> Any:
    response = repo.infer("echo", {"X": X}, **more)
    return response.error.message() if response.error is not None else response["X"].as_numpy().tolist()


def test_a_request_carries_its_options_headers_and_trace(service: Service, repo: bls.ModelRepository) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with serving(service) as port:
        bls.connect(f"grpc://127.0.0.1:{port}", "echo", repo=repo, headers={"Authorization": "Bearer t"})
        got = repo.infer(
            "echo", {"X": X}, request_id="r", correlation_id="blue", flags=3, timeout=7, trace=trace,
            parameters={"priority": 2, "s": "é", "i": -3, "b": True, "f": 0.5},
        )  # fmt: skip
    assert got["X"].as_numpy().flags.writeable
    (request,) = service.requests
    said = {k: getattr(v, v.WhichOneof("parameter_choice")) for k, v in request.parameters.items()}
    assert said == {
        "sequence_id": "blue", "sequence_start": True, "sequence_end": True, "timeout": 7, "priority": 2,
        "s": "é", "i": -3, "b": True, "f": 0.5,
    }  # fmt: skip
    assert request.id == "r"
    assert not request.outputs  # all of them
    assert service.metadata[0]["authorization"] == "Bearer t"
    assert service.metadata[0]["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c")
    assert "Bearer" not in repr(repo.index())


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        ("INVALID_ARGUMENT", "INVALID_ARG"), ("UNAVAILABLE", "UNAVAILABLE"),
        ("ABORTED", "UNKNOWN"), ("DEADLINE_EXCEEDED", "UNKNOWN"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["grpc"], indirect=True)
def test_errors_keep_text_and_code(connection: bls.Connection, repo: bls.ModelRepository, code: str, ours: str) -> None:
    error = repo.infer("echo", {"X": X}, parameters={"fail": code}).error
    assert (error.message(), error.code().name) == (f"it is {code}", ours)
    assert not connection.lost


def test_a_server_that_is_lost_and_comes_back(service: Service, repo: bls.ModelRepository) -> None:
    answers: list[Any] = []
    with serving(service) as port:
        connection = bls.connect(f"grpc://127.0.0.1:{port}", "echo", repo=repo)
        repo.define("caller", *CALLER)
        service.go.clear()
        waiting = threading.Thread(target=lambda: answers.append(repo.infer("caller", {"X": X}).error))
        waiting.start()
        service.came.acquire()
    waiting.join()
    assert f"grpc://127.0.0.1:{port}: the connection was lost" in answers[0].message()
    assert "the server does not answer" in asked(repo)
    (row,) = (row for row in repo.index() if row.name == "echo")
    assert (row.state, bool(row.reason), row.remote) == ("UNAVAILABLE", True, f"grpc://127.0.0.1:{port}")
    assert connection.record.state == "LOST"
    with serving(service, port):
        until(lambda: not connection.lost)
        assert asked(repo) == X.tolist()
        assert repo.infer("caller", {"X": X}).error is None
        assert connection.record.state == "CONNECTED"


def test_a_server_that_stops_answering(
    service: Service, repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROBE_SECONDS", "SEEK_SECONDS"):
        monkeypatch.setattr(link, name, 0.05)
    stuck = threading.Event()
    monkeypatch.setattr(Service, "ServerLive", lambda *_: stuck.wait(10) and pb.ServerLiveResponse())
    with serving(service) as port:
        connection = bls.connect(f"grpc://127.0.0.1:{port}", "echo", repo=repo)
        service.go.clear()
        assert "the connection was lost during the request" in asked(repo)
        stuck.set()
        until(lambda: not connection.lost)


def test_a_cancelled_request_is_cancelled_on_the_server(
    service: Service, repo: bls.ModelRepository, connection: bls.Connection, scheme: str
) -> None:
    service.go.clear()

    async def give_up() -> None:
        task = asyncio.ensure_future(repo.infer_async("echo", {"X": X}))
        await asyncio.to_thread(service.came.acquire)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(give_up())
    assert scheme == "http" or service.cancelled.acquire(timeout=LIMIT)
    service.go.set()
    assert asked(repo) == X.tolist()


def test_ctrl_c_ends_a_wait_for_a_server(
    service: Service, repo: bls.ModelRepository, connection: bls.Connection, scheme: str
) -> None:
    def press() -> None:
        assert service.came.acquire(timeout=LIMIT)
        os.kill(os.getpid(), signal.SIGINT)

    service.go.clear()
    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        asked(repo)
    pressing.join()
    assert scheme == "http" or service.cancelled.acquire(timeout=LIMIT)
    service.go.set()
    assert asked(repo) == X.tolist()


def test_a_long_wait_for_a_server_is_reported_once(
    service: Service, repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(link, "PROBE_SECONDS", 0.05)
    live = link.Client.live
    monkeypatch.setattr(link.Client, "live", lambda client, _: live(client, LIMIT))  # on a busy machine, too
    monkeypatch.setattr(forwarding, "REPORT_SECONDS", 0.05)
    reported: list[int] = []

    def answer(*_: Any) -> Any:  # at the looks after the report
        reports = [one for one in caplog.messages if "has been waiting for" in one]
        reported.append(len(reports))
        if sum(map(bool, reported)) > 2:
            service.go.set()
        return pb.ServerLiveResponse(live=True)

    monkeypatch.setattr(Service, "ServerLive", answer)
    with serving(service) as port:
        bls.connect(f"grpc://127.0.0.1:{port}", "echo", repo=repo)
        repo.define("caller", *CALLER)
        service.go.clear()
        assert repo.infer("caller", {"X": X}).error is None
    (report,) = [one for one in caplog.messages if "has been waiting for" in one]
    assert f"A request from 'caller' to 'echo' has been waiting for grpc://127.0.0.1:{port} for " in report
    assert "interrupt (Ctrl-C) to get out" in report


def test_a_lost_server_is_reported_without_a_reference_to_the_connection(
    service: Service, repo: bls.ModelRepository
) -> None:
    with serving(service) as port:
        bls.connect(f"grpc://127.0.0.1:{port}", "echo", repo=repo)
        gc.collect()
    assert "the server does not answer" in asked(repo)
    assert [(row.state, bool(row.reason)) for row in repo.index()] == [("UNAVAILABLE", True)]
    with serving(service, port):
        until(lambda: repo.index()[0].state == "READY")
        with serving(service) as other, pytest.raises(bls.BLSError, match="has this name"):
            bls.connect(f"grpc://127.0.0.1:{other}", "echo", repo=repo)
    with serving(service) as other:  # the first is gone, so that its models may be taken from here
        bls.connect(f"grpc://127.0.0.1:{other}", "echo", repo=repo)
        assert asked(repo) == X.tolist()


def test_closing_leaves_nothing(service: Service, repo: bls.ModelRepository, scheme: str) -> None:
    before = set(threading.enumerate())
    with SERVING[scheme](service) as port:
        bls.connect(f"{scheme}://127.0.0.1:{port}", "echo", repo=repo)
        service.go.clear()
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(asked(repo)))
        waiting.start()
        service.came.acquire()
        repo.close(0)
        waiting.join()
    assert "closed" in got[0] or "cancelled" in got[0]  # closing does both
    left = (t for t in set(threading.enumerate()) - before if not t.name.startswith("bls-worker"))
    until(lambda: not any(t.is_alive() for t in left))


def test_many_requests_run_concurrently(
    service: Service, repo: bls.ModelRepository, connection: bls.Connection
) -> None:
    service.go.clear()

    async def all_at_once() -> list[Any]:
        sent = [asyncio.ensure_future(repo.infer_async("echo", {"X": X + i})) for i in range(6)]
        for _ in sent:
            await asyncio.to_thread(service.came.acquire)
        service.go.set()
        return [response["X"].as_numpy()[0] for response in await asyncio.gather(*sent)]

    assert asyncio.run(all_at_once()) == list(range(6))


def test_requests_that_follow_each_other_share_a_thread(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_link, "_LINGER", 60.0)
    request = InferenceRequest(model_name="echo", requested_output_names=["X"], inputs=[Tensor("X", X)])
    got: SimpleQueue[tuple[InferenceResponse, threading.Thread]] = SimpleQueue()

    def send(cancelled: bool = False) -> tuple[InferenceResponse, threading.Thread]:
        exchange = connection.exchange("echo", "", request, True)
        service.go.clear()  # it is answered once it is known who is told
        if cancelled:  # answered at once, on this thread, which does not linger
            exchange.cancel()
        exchange.start(lambda box, _: got.put((box[0], threading.current_thread())), start_in_thread)
        service.go.set()
        return got.get(timeout=LIMIT)

    with serving(service) as port:
        connection = grpc_link.GrpcClient(address_of(f"grpc://127.0.0.1:{port}"))
        _, its = send()
        again, same = send()
        given_up, here = send(cancelled=True)
        connection.close()
    assert again._outputs[0]._array.tolist() == X.tolist()
    assert its is same is not here is threading.current_thread()
    assert given_up._error is not None
    its.join(LIMIT)
    assert not its.is_alive()


def test_a_profile_has_its_requests(service: Service, repo: bls.ModelRepository) -> None:
    with serving(service) as port, bls.profile() as session:
        bls.connect(f"grpc://127.0.0.1:{port}", "echo", repo=repo)
        repo.define("caller", *CALLER)
        repo.infer("caller", {"X": X})
    inner = next(span for span in session.record.spans if span.model == "echo")
    assert (inner.instance, inner.parent) == (f"grpc://127.0.0.1:{port}", 1)
    assert inner.sent <= inner.queued <= inner.started < inner.inferred <= inner.ended
    assert next(m for m in session.record.models if m.name == "echo").remote == inner.instance
    assert session.record.notes == (f"echo: the time on {inner.instance} is unknown: the server gave no statistics",)


def test_a_server_that_speaks_json_alone(repo: bls.ModelRepository) -> None:
    def answer(path: str, document: dict[str, Any]) -> tuple[int, Any]:
        if path == "/at/v2":
            return 200, {"name": "plain", "version": "0.1", "extensions": []}
        if path == "/at/v2/models/words":
            one = {"name": "T", "datatype": "BYTES", "shape": [-1]}
            return 200, {"name": "words", "versions": [], "inputs": [one], "outputs": [one]}
        if path == "/at/v2/models/words/infer":
            (given,) = document["inputs"]
            if given["data"] == ["fail"]:
                return 400, {"error": "not that word"}
            return 200, {"outputs": [{**given, "data": [word.upper() for word in given["data"]]}]}
        return 404, {"detail": "Not Found"}

    with serving_http(answer) as port:
        url = f"http://127.0.0.1:{port}/at/"
        with pytest.raises(bls.BLSError, match="does not list its models; name the ones"):
            bls.connect(url, repo=repo)
        bls.connect(url, "words", repo=repo)
        got = repo.infer("words", {"T": ["a", "é"]})
        assert got["T"].as_numpy().tolist() == [b"A", "É".encode()]
        error = repo.infer("words", {"T": ["fail"]}).error
        assert (error.message(), error.code().name) == ("not that word", "INVALID_ARG")


@pytest.mark.parametrize("where", ["/v2", "/v2/models/m", "/v2/models/m/config"])
def test_malformed_metadata_is_refused(repo: bls.ModelRepository, where: str) -> None:
    said: Any = None
    right: dict[str, Any] = {"extensions": ["model_configuration"]}
    wrong = [[], 7, "x", *([{"inputs": [7]}, {"inputs": [{}]}, {"versions": 7}] if where.endswith("m") else [])]
    with serving_http(lambda path, _: (200, said if path == where else right)) as port:
        for said in wrong:  # noqa: B007 - what the server says
            with pytest.raises(bls.BLSError, match="check that it is a KServe v2 server"):
                bls.connect(f"http://127.0.0.1:{port}", "m", repo=repo)


def test_a_server_may_claim_any_number_of_instances(repo: bls.ModelRepository) -> None:
    tensors = [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}]
    config = {"input": tensors, "output": tensors, "instance_group": [{"count": 2**31 - 1}]}
    said = {"/v2": {"extensions": ["model_configuration"]}, "/v2/models/m/config": config}
    with serving_http(lambda path, _: (200, said.get(path, {}))) as port:
        bls.connect(f"http://127.0.0.1:{port}", "m", repo=repo)
    assert repo.config("m").instance_group[0].count == 2**31 - 1


def test_connect_limits_models_and_seconds(
    url: str, repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(connecting, "REMOTE_MODELS", 0)
        patched.setattr(link.Client, "index", lambda _: [("echo", "1", "READY")])
        with pytest.raises(bls.BLSError, match="models are ready; name the ones"):
            bls.connect(url, repo=repo)
    with monkeypatch.context() as patched:
        patched.setattr(connecting, "CONNECT_SECONDS", -2.0)  # the time is over, also with a second for the model
        with pytest.raises(bls.BLSError, match="took too long altogether"):
            bls.connect(url, "echo", repo=repo)
    bls.connect(url, "echo", repo=repo)
    asked(repo)


def test_an_interrupted_connect_leaves_no_model(
    url: str, repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = ModelRepository._serve

    def interrupted(*arguments: Any, **options: Any) -> None:
        serve(*arguments, **options)
        raise KeyboardInterrupt  # as Ctrl-C does in the last wait, when the model already serves

    monkeypatch.setattr(ModelRepository, "_serve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bls.connect(url, "echo", repo=repo)
    assert not repo.ready("echo")
    assert [row.name for row in repo.index()] == []


def test_unknown_fields_of_a_newer_servers_config_are_ignored(repo: bls.ModelRepository) -> None:
    config = {"name": "m", "max_batch_size": 4, "of_next_year": {"a": 1}}
    said = {"/v2": {"extensions": ["model_configuration"]}, "/v2/models/m/config": config}
    with serving_http(lambda path, _: (200, said.get(path, {}))) as port:
        bls.connect(f"http://127.0.0.1:{port}", "m", repo=repo)
        assert repo.config("m").max_batch_size == 4


def test_a_taken_name_is_refused_and_other_names_work(service: Service, repo: bls.ModelRepository) -> None:
    repo.define("echo", *CALLER)
    with serving(service) as port:
        url = f"grpc://127.0.0.1:{port}"
        with pytest.raises(bls.BLSError, match="echo: a loaded model has this name"):
            bls.connect(url, "other", "echo", repo=repo)
        with pytest.raises(bls.BLSError, match="no model nope"):
            bls.connect(url, "other", "nope", repo=repo)
        assert [row.name for row in repo.index()] == ["echo"]
        with bls.connect(url, "echo", "other", repo=repo, names={"echo": "far"}, prefix="x_") as connection:
            assert connection.models == {"far": "echo", "x_other": "other"}
            assert repo.infer("far", {"X": X}).error is None
        assert [row.name for row in repo.index()] == ["echo"]


def test_exports_omit_remote_models_and_checks_name_their_server(
    service: Service, repo: bls.ModelRepository, tmp_path: Path
) -> None:
    with serving(service) as port:
        url = f"grpc://127.0.0.1:{port}"
        bls.connect(url, "echo", repo=repo)
        repo.define("caller", *CALLER)
        exported = bls.export(tmp_path / "all", repo=repo)
        assert (exported.names, exported.elsewhere) == (("caller",), (("echo", url),))
        left_out = f"caller calls echo, a remote model at {url}, which was left out"
        assert left_out in (tmp_path / "all" / "README.md").read_text()
        with pytest.raises(bls.BLSError, match=r"'echo' \(grpc://.*the files of a remote model are on its server"):
            bls.export(tmp_path / "one", "echo", repo=repo)
        check = bls.check(repo=repo)
        assert "echo" not in check.models
        (found,) = (each for each in check.findings if each.code.startswith("callee"))
        assert (found.severity, found.code) == ("warning", "callee-remote")
        assert found.what == f"it calls 'echo', a model on the server {url}"


def test_the_configuration_of_a_remote_model_cannot_be_changed(
    connection: bls.Connection, repo: bls.ModelRepository
) -> None:
    with pytest.raises(bls.BLSError, match="its configuration cannot be changed here"):
        repo.set_config("echo", "max_batch_size: 4")
    assert asked(repo) == X.tolist()
    repo.unload("echo")
    assert "has no available versions" in asked(repo)
    repo.load("echo")
    assert asked(repo) == X.tolist()
    with repo.stub("echo", {"X": -X}):
        assert asked(repo) == (-X).tolist()
    assert asked(repo) == X.tolist()


@pytest.mark.parametrize("damage", [b"\x32\xff\xff\x03", b"\xff" * 12, b"\x0f", b"\x32\x01\x00"])
def test_damaged_grpc_answers_are_refused(damage: bytes) -> None:
    with pytest.raises(AnswerError):
        grpc_codec.decode_response(damage)


@pytest.mark.parametrize(("raw", "said"), [
    (b"\0\0", "incomplete string length indicator for output 'Y'"),
    (b"\2\0\0\0a", "incomplete string data for output 'Y', expecting string of length 2 but only 1 bytes available"),
    (bytes(8), "unexpected number of string elements 2 for output 'Y', expecting 1"),
])  # fmt: skip
def test_outputs_of_text_are_read_as_strictly_as_inputs(raw: bytes, said: str) -> None:
    with pytest.raises(AnswerError, match=said):
        output_tensor("Y", "BYTES", [1], raw)


@pytest.mark.parametrize("wrong", [
    {"name": [1]}, {"name": None}, {"datatype": [1]}, {"shape": [1] * 70, "data": [1]},
    {"data": [[1], [2, 3]]}, {"shape": [1 << 62, 0], "data": []}, {"shape": [1 << 70, 0], "data": []},
    {"shape": [float("inf")]}, {"datatype": "BYTES"}, {"parameters": {"binary_data_size": "8"}},
    {"parameters": 7}, {"shape": 2}, {"shape": [1 << 63] * 45000, "data": []},
])  # fmt: skip
def test_malformed_json_outputs_are_refused(wrong: dict[str, Any]) -> None:
    output = {"name": "Y", "datatype": "FP32", "shape": [2], "data": [1, 2], **wrong}
    with pytest.raises(AnswerError):
        json_codec.decode_response(json.dumps({"outputs": [output]}).encode(), None)


def test_a_shape_that_numpy_lacks_fails_only_its_request(service: Service, repo: bls.ModelRepository) -> None:
    def answer(_: pb.ModelInferRequest) -> pb.ModelInferResponse:
        out = pb.ModelInferResponse()
        out.outputs.add(name="X", datatype="FP32", shape=[1] * 70)
        out.raw_output_contents.append(bytes(4))
        return out

    service.answers = answer
    with serving(service) as port:
        connection = bls.connect(f"grpc://127.0.0.1:{port}", "echo", repo=repo)
        assert "output 'X'" in asked(repo)
        response = asyncio.run(asyncio.wait_for(repo.infer_async("echo", {"X": X}), 20))
        assert response.error is not None
        assert not connection.lost


def test_addresses_and_headers_are_checked() -> None:
    odd: Any = ["", "host:8001", "ftp://h", "grpc://h:x", "grpc://", "http://u:p@h", "grpc://h/v2", "http://a b", None]
    for url in odd:
        with pytest.raises(AddressError, match="url"):
            address_of(url)
    assert str(address_of("grpc://h")) == "grpc://h:8001"
    assert str(address_of("https://h/triton/")) == "https://h:443/triton"
    assert str(address_of("grpcs://[::1]:9")) == "grpcs://[::1]:9"
    for wrong in ({"a b": "c"}, {"a": "\n"}):
        with pytest.raises(AddressError, match="headers"):
            address_of("grpc://h", wrong)


@pytest.mark.parametrize(("server", "asked"), [("triton 2.51.0", "a%41b c"), ("other 1", "a%2541b c")])
def test_model_names_are_quoted_as_the_server_expects(server: str, asked: str) -> None:
    paths: list[str] = []

    def answer(path: str, _: Any) -> tuple[int, Any]:
        paths.append(path)
        name, _, version = server.partition(" ")
        return 200, {"name": name, "version": version, "versions": ["1"], "platform": "p"}

    with serving_http(answer) as port, bls.ModelRepository() as repo:
        bls.connect(f"http://127.0.0.1:{port}", "a%41b c", repo=repo)
    assert paths == ["/v2", f"/v2/models/{asked.replace(' ', '%20')}"]
