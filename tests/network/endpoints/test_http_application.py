"""Answers of an endpoint over HTTP, in the words of a tritonserver 2.51 (but 400, not 500, for unreadable JSON)."""

from __future__ import annotations

import http.client
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from tests.repository.models import ECHOES
from tests.waiting import LIMIT

ECHO = ECHOES.replace('"OUT"', '"Y"')
ADD = ECHOES.replace('"OUT", r.inputs()[0].as_numpy()', '"SUM", sum(tensor.as_numpy() for tensor in r.inputs())')
CALL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request.inputs()) for request in requests]

    def answer(self, inputs):
        long = len(inputs[0].as_numpy()) > 1
        request = pb_utils.InferenceRequest(
            model_name="one" if long else "gone", inputs=inputs, requested_output_names=["Y"],
            correlation_id="s" * 129 if long else 0,
        )
        return pb_utils.InferenceResponse(error=request.exec().error())
"""
COUNT = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for at in range(int(request.inputs()[0].as_numpy()[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([at], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def config(batch: int, datatype: str, dims: str, inputs: str = "X", output: str = "Y", more: str = "") -> str:
    tensors = [f'input {{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} }}' for name in inputs]
    out = f'output {{ name: "{output}" data_type: TYPE_{datatype} dims: {dims} }}'
    return "\n".join(['backend: "python"', f"max_batch_size: {batch}", *tensors, out, more])


DECOUPLED = "model_transaction_policy { decoupled: true }"
MODELS = {
    "add": (ADD, config(8, "FP32", "[-1]", "AB", "SUM")), "one": (ECHO, config(0, "FP32", "[-1]")),
    "call": (CALL, config(0, "FP32", "[-1]")),
    "pairs": (ECHO, config(8, "FP32", "[2]")), "two": (ECHO, config(0, "FP32", "[-1, -1]")),
    "text": (ECHO, config(0, "STRING", "[1]")), "texts": (ECHO, config(0, "STRING", "[-1]")),
    "small": (ECHO, config(0, "INT8", "[-1]")),
    "half": (ECHO, config(0, "FP16", "[-1]")), "count": (COUNT, config(0, "INT32", "[1]", more=DECOUPLED)),
}  # fmt: skip


@pytest.fixture(scope="module")
def connection() -> Iterator[http.client.HTTPConnection]:
    with bls.ModelRepository() as repo:
        for name, (source, text) in MODELS.items():
            repo.define(name, source, text)
        repo.define("gone", ECHO, MODELS["one"][1])
        repo.unload("gone")
        with bls.endpoint(repo, token="") as endpoint:
            connection = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)
            yield connection
            connection.close()


def ask(connection: http.client.HTTPConnection, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request("GET" if data is None else "POST", f"/v2/{path}", data, headers)
    answer = connection.getresponse()
    content = answer.read()
    return answer.status, json.loads(content) if content else None


def x(data: Any, shape: Any = None, datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    given = {"name": "X", "shape": [len(data)] if shape is None else shape, "datatype": datatype}
    return {"inputs": [{**given, "data": data}], **more}


def ab(request: dict[str, Any] | None = None, **first: Any) -> dict[str, Any]:
    a = {"name": "A", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
    b = {"name": "B", "shape": [1, 2], "datatype": "FP32", "data": [3, 4]}
    return {"inputs": [{**a, **first}, b], **(request or {})}


def nested(times: int, data: Any) -> Any:
    for _ in range(times):
        data = [data]
    return data


ID = "[request id: <id_unknown>] "
DEPTH = "JSON nesting depth exceeds maximum allowed limit (100)"
DISABLED = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
ONLY_ONE = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But "
)
UNSIGNED = "attempt to access JSON non-unsigned-integer as unsigned-integer"
MEMBER = "attempt to access non-existing object member"
LONG = "string correlation ID cannot be longer than 128 characters"
SHAPE = "Unable to parse 'data': Shape does not match true shape of 'data' field"


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("models/none", None, 404, "Request for unknown model: 'none' is not found"),
        ("models/gone/config", None, 404, "Request for unknown model: 'gone' has no available versions"),
        ("models/add/versions/7", None, 404, "Request for unknown model: 'add' version 7 is not found"),
        ("models/add/versions/x", None, 404, "Not Found"),
        ("models/none/ready", None, 404, "Request for unknown model: 'none' is not found"),
        ("repository/index", {"ready": [[]]}, 400, "Invalid value for 'ready': expected a boolean"),
        ("models/add/infer", ab({"outputs": [{"name": "SUM"}] * 2, "id": "r"}), 400,
         "[request id: r] output 'SUM' already exists in request"),
        ("models/add/infer", ab(data=nested(100, [1, 2])), 400, f"Unable to parse 'data': {DEPTH}"),
        ("models/text/infer", x(nested(100, ["a"]), [1], "BYTES"), 400, DEPTH),
        ("models/texts/infer", x(["a", "b"], [1], "BYTES"), 400,
         f"{ID}unexpected number of string elements 2 for inference input 'X' for model 'texts', expecting 1"),
        ("models/texts/infer", x(["a"], [2], "BYTES"), 400,
         f"{ID}expected 2 string elements for inference input 'X' for model 'texts', got 1"),
        ("models/text/infer", x([1], [1], "BYTES"), 400,
         "Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
        ("models/add/infer", ab({"outputs": [{"name": "SUM", "parameters": {
            "classification": 1, "shared_memory_region": "r"}}]}), 400,
         "Output can't set both 'shared_memory_region' and 'classification'"),
        ("models/text/infer", x(["a"], datatype="BYTES", outputs=[{"name": "Y", "parameters": {
            "classification": 1}}]), 400, "class result not available for output due to unsupported type 'BYTES'"),
        ("systemsharedmemory/region/r/register", {"key": "k", "byte_size": 1}, 501, DISABLED),
        ("cudasharedmemory/unregister", {}, 501, DISABLED),
        ("models/none/stats", None, 400, "requested model 'none' is not available"),
        ("models/add/infer", None, 405, "Method Not Allowed"),
        ("systemsharedmemory/region/z/status", None, 404, "Unable to find system shared memory region: 'z'"),
        ("repository/models/none/load", {}, 500,
         "failed to load 'none', failed to poll from model repository"),
        ("models/none/infer", ab(), 404, "Request for unknown model: 'none' is not found"),
        ("models/add/infer", {}, 400, f"Unable to parse 'inputs': {MEMBER} 'inputs'"),
        ("models/add/infer", b"[]", 400, f"Unable to parse 'inputs': {MEMBER} 'inputs'"),
        ("models/add/infer", {"inputs": [1]}, 400, f"{ONLY_ONE}no field is set"),
        ("models/add/infer", ab(parameters={"binary_data_size": 8}), 400,
         f"{ONLY_ONE}set 'data' 'binary_data_size'"),
        ("models/add/infer", ab(shape=[-1, 2]), 400, f"Unable to parse 'shape': {UNSIGNED}"),
        ("models/add/infer", ab(shape=[1, 3]), 400, SHAPE),
        ("models/add/infer", ab(shape=[2]), 400,
         f"{ID}input 'A' batch size does not match other inputs for 'add'"),
        ("models/add/infer", ab(datatype="NOPE"), 400, "invalid datatype for input A"),
        ("models/add/infer", ab(datatype="INT32"), 400,
         f"{ID}inference input 'A' data-type is 'INT32', but model 'add' expects 'FP32'"),
        ("models/add/infer", ab(data=[True, 1]), 400,
         "Unable to parse 'data': attempt to access JSON non-number as double"),
        ("models/add/infer", ab(name="B"), 400, f"{ID}input 'B' already exists in request"),
        ("models/add/infer", ab({"outputs": [{"name": "NO"}]}), 400,
         "unexpected inference output 'NO' for model 'add'"),
        ("models/add/infer", ab({"id": 3}), 400,
         "Unable to parse 'id': attempt to access JSON non-string as string"),
        ("models/add/infer", ab({"parameters": {"timeout": "x"}}), 400,
         f"Unable to parse 'timeout': {UNSIGNED}"),
        ("models/add/infer", ab({"parameters": 3}), 400,
         "failed to get request params.: attempt to get members for non-object"),
        ("models/add/infer", ab({"parameters": {"triton_x": 1}}), 400,
         "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."),
        ("models/add/infer", ab({"parameters": {"sequence_id": "\u00e9" * 65}}), 501, LONG),
        ("models/call/infer", x([1, 2]), 500, f"Model one - Error when running inference: {LONG}"),
        ("models/call/infer", x([1]), 500, "Model gone - Error when running inference: Request for unknown "
         "model: 'gone' has no available versions"),
        ("models/add/infer", ab({"parameters": {"a": [1]}}), 400,
         "parameter 'a' has invalid type. It should be either 'int', 'bool', or 'string'."),
        ("models/add/infer", b"", 400,
         f"{ID}Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'add' model "
         "configuration"),
        ("models/text/infer", x([1], datatype="BYTES"), 400,
         "Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
        ("models/small/infer", x([1.5], datatype="INT8"), 400,
         "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
        ("models/half/infer", x([1], datatype="FP16"), 400,
         "receiving FP16 data via JSON is not supported. Please use the binary data format for input X"),
        ("models/count/infer", x([1], datatype="INT32"), 501,
         "HTTP end point doesn't support models with decoupled transaction policy"),
        ("models/count/generate", {"X": 2}, 400,
         "generate expects model to produce exactly 1 response, use generate stream for model that generates "
         "various number of responses"),
        ("models/pairs/generate", {"X": [1, 2, 3]}, 400,
         "The schema can not convert input 'X' to tensor with proper shape"),
        ("models/one/generate", {"X": [[1, 2]]}, 400, SHAPE),
        ("models/one/generate", b"[]", 400, "attempt to get members for non-object"),
        ("models/one/generate", b'{"X": 1, "X": 2}', 400, f"{ID}input 'X' already exists in request"),
        ("models/add/generate", b'{"A": 1, "B": 2, "B": 3, "A": 4}', 400, f"{ID}input 'B' already exists in request"),
        ("models/one/generate", {"X": 1, "parameters": {"X": 2}}, 400,
         f"Converting keyword: 'parameters': {ID}input 'X' already exists in request"),
        ("models/one/generate", {"X": 1, "parameters": {"n": {}}}, 400,
         "Converting keyword: 'parameters': parameter 'n' has invalid type. It should be either 'int', 'bool', or "
         "'string'."),
        ("models/one/generate_stream", {}, 400, f"{ID}expected 1 inputs but got 0 inputs for model 'one'. Got input(s) "
         "[], but missing required input(s) ['X']. Please provide all required input(s)."),
        ("models/texts/infer", b"", 400, "For BYTE datatype raw input 'X', the model must have input shape [1]"),
        ("models/gone/versions/1", None, 503, "Request for unknown model: 'gone' version 1 is not at ready state"),
        ("models/gone/versions/2", None, 404, "Request for unknown model: 'gone' version 2 is not found"),
        ("models/never/versions/1", None, 404, "Request for unknown model: 'never' is not found"),
    ],
)  # fmt: skip
def test_requests_are_refused_as_by_triton(
    connection: http.client.HTTPConnection, path: str, body: Any, status: int, words: str
) -> None:
    assert ask(connection, path, body) == (status, {"error": words})


@pytest.mark.parametrize(
    ("model", "body", "outputs"),
    [
        ("add", ab(), [("SUM", "FP32", [1, 2], [4.0, 6.0])]),
        ("add", ab(data=[[1, 2]], parameters=3), [("SUM", "FP32", [1, 2], [4.0, 6.0])]),
        ("add", ab({"outputs": [{"name": "SUM"}]}), [("SUM", "FP32", [1, 2], [4.0, 6.0])]),
        ("add", ab(data=nested(98, [1, 2])), [("SUM", "FP32", [1, 2], [4.0, 6.0])]),
        ("small", x([300], datatype="INT8"), [("Y", "INT8", [1], [44])]),
        ("one", x([0.1, 1e300]), [("Y", "FP32", [2], [0.10000000149011612, float("inf")])]),
        ("text", x(["\u00e9\n\""], datatype="BYTES"), [("Y", "BYTES", [1], ["\u00e9\n\""])]),
        ("one", b"\xef\xbb\xbf" + json.dumps(x([1])).encode()[:-3] + b', "data": [2]}]}', [("Y", "FP32", [1], [1.0])]),
        ("one", struct.pack("<3f", 1, 2, 3), None),
        ("pairs", struct.pack("<2f", 1, 2), None),
        ("text", b"as it is", None),
        ("one", x([3, 1, 2, 2], outputs=[{"name": "Y", "parameters": {"classification": 3}}]),
         [("Y", "BYTES", [3], ["3.000000:0", "2.000000:2", "2.000000:3"])]),
        ("pairs", x([3, 1, 2, 5], [2, 2], outputs=[{"name": "Y", "parameters": {"classification": 1}}]),
         [("Y", "BYTES", [2, 1], ["3.000000:0", "5.000000:1"])]),
    ],
)  # fmt: skip
def test_requests_are_answered_as_by_triton(
    connection: http.client.HTTPConnection, model: str, body: Any, outputs: list[Any] | None
) -> None:
    if outputs is None:
        connection.request("POST", f"/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": "0"})
        answer = connection.getresponse()
        length = int(answer.headers["Inference-Header-Content-Length"])
        content = answer.read()[length:]
        assert content == (len(body).to_bytes(4, "little") if model == "text" else b"") + body
        return
    status, said = ask(connection, f"models/{model}/infer", body)
    found = [tuple(each[key] for key in ("name", "datatype", "shape", "data")) for each in said["outputs"]]
    assert (status, found) == (200, outputs)
    assert (said["model_name"], said["model_version"]) == (model, "1")


@pytest.mark.parametrize(
    ("model", "given", "output"),
    [("one", 1, 1.0), ("one", [1, 2], [1.0, 2.0]), ("pairs", [1, 2], [1.0, 2.0]), ("two", [1, 2], [1.0, 2.0]),
     ("text", "a", "a"), ("count", 1, 0)],
)  # fmt: skip
def test_generate_answers(connection: http.client.HTTPConnection, model: str, given: Any, output: Any) -> None:
    said = {"Y": output, "model_name": model, "model_version": "1"}
    for body in ({"X": given}, {"parameters": {"X": given}}):
        assert ask(connection, f"models/{model}/generate", body) == (200, said)
    connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps({"X": given}))
    answer = connection.getresponse()
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.read().decode() == f"data: {json.dumps(said, separators=(',', ':'))}\n\n"


def test_an_ensemble_has_the_labels_of_the_step_that_makes_its_output(tmp_path: Path) -> None:
    labels = 'output { name: "Y" label_filename: "labels.txt" data_type'
    (tmp_path / "labeled/1").mkdir(parents=True)
    (tmp_path / "labeled/1/model.py").write_text(ECHO)
    (tmp_path / "labeled/labels.txt").write_text("a\nb\nc\n")
    labeled = config(0, "FP32", "[3]").replace('output { name: "Y" data_type', labels)
    (tmp_path / "labeled/config.pbtxt").write_text(labeled)
    maps = 'input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }'
    text = config(0, "FP32", "[3]").replace('backend: "python"', 'platform: "ensemble"')
    request = x([1, 3, 2], outputs=[{"name": "Y", "parameters": {"classification": 2}}])
    with bls.ModelRepository(tmp_path) as repo, bls.endpoint(repo, token="") as endpoint:
        repo.load("labeled")
        for name, step in (("inner", "labeled"), ("outer", "inner")):
            steps = f'ensemble_scheduling {{ step {{ model_name: "{step}" model_version: -1 {maps} }} }}'
            repo.define(name, "", f"{text}\n{steps}")
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.http_port, timeout=LIMIT)
        for name in ("labeled", "inner", "outer"):
            (output,) = ask(connection, f"models/{name}/infer", request)[1]["outputs"]
            assert output["data"] == ["3.000000:1:b", "2.000000:2:c"]
        connection.close()
