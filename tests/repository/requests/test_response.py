"""`Response`, and the four ways to send a request from outside any model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError
from tests.engine import gates
from tests.engine.harness import message
from tests.repository.models import ECHO, ECHOES, HEAD, TEXT, saying

COUNT = f"""{HEAD}
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for i in range(int(request.inputs()[0].as_numpy()[0])):
                tensor = pb_utils.Tensor("OUT", np.array([i], np.float32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            {{end}}
"""
FLAG_ALONE = "sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
DECOUPLED = ECHO + "model_transaction_policy { decoupled: true }"


def counter(end: str = FLAG_ALONE) -> str:
    return COUNT.replace("{end}", end)


def test_a_response(repo: bls.ModelRepository) -> None:
    two = f"""{HEAD}
class TritonPythonModel:
    def execute(self, requests):
        arrays = {{"A": np.array([1.5], np.float32), "B": np.array(["x"], object)}}
        outputs = [pb_utils.Tensor(name, array) for name, array in arrays.items()]
        parameters = {{"k": "v", "n": 3, "b": True}}
        return [pb_utils.InferenceResponse(outputs, parameters=parameters) for _ in requests]
"""
    config = 'output [{ name: "A" data_type: TYPE_FP32 dims: [-1] }, { name: "B" data_type: TYPE_STRING dims: [-1] }] '
    repo.define("two", two, config, version=4)
    r = repo.infer("two", {}, request_id="id-1")
    assert (r.error, r.model, r.version, r.request_id, r.index, r.final) == (None, "two", 4, "id-1", 0, True)
    assert (r.seconds or 0) > 0
    assert isinstance(r["A"], Tensor)
    assert (list(r), len(r), "A" in r, "C" in r, None in r) == (["A", "B"], 2, True, False, False)
    assert {k: v.tolist() for k, v in r.as_numpy().items()} == {"A": [1.5], "B": [b"x"]}
    assert r.parameters() == {"k": "v", "n": 3, "b": True}
    assert [t.name() for t in r.output_tensors()] == ["A", "B"]
    assert repr(r) == "<Response of 'two': A FP32[1], B BYTES[1]>"
    with pytest.raises(KeyError, match="no output 'C'; outputs of this response: A, B"):
        r["C"]
    later = asyncio.run(repo.infer_async("two", {}, request_id="id-2"))
    assert (later.model, later.version, later.request_id, list(later)) == ("two", 4, "id-2", ["A", "B"])


def test_a_repr_is_short_however_much_there_is() -> None:
    outputs = [Tensor(f"T{i}", np.zeros(1, np.int8)) for i in range(9)]
    r = bls.Response(InferenceResponse(outputs), "m")
    assert repr(r) == "<Response of 'm': T0 INT8[1], T1 INT8[1], T2 INT8[1], T3 INT8[1], 5 more>"
    assert len(repr(bls.Response(InferenceResponse(error=TritonError("x" * 1000)), "m"))) < 250


def test_an_error_is_data(repo: bls.ModelRepository) -> None:
    repo.define("m", saying("1 / 0"), TEXT)
    r = repo.infer("m", {})
    assert isinstance(r.error, TritonError)
    assert r.error.message().startswith("Failed to process the request(s) for model 'm_0', message: ZeroDivisionError")
    assert r.error.code() is TritonError.INTERNAL
    assert (list(r), len(r), r.parameters()) == ([], 0, {})
    with pytest.raises(bls.BLSError, match="answered with an error: Failed to process"):
        r.as_numpy()
    with pytest.raises(KeyError, match="no output 'OUT': the request failed: Failed to process"):
        r["OUT"]
    failed = "Failed to process the request(s) for model 'm_0', message: ZeroDivisionError: division by zero"
    assert repr(r) == f"<Response of 'm': error \"{failed}\">"
    error = r.record.error
    assert error is not None
    assert (error.kind, error.chain, error.code) == ("ZeroDivisionError", ("m",), "INTERNAL")
    assert error.frames[-1].function == "execute"


@pytest.mark.parametrize("text", ["", "\n", " \n\n "])
def test_an_error_without_words_has_a_repr_and_keeps_its_code(repo: bls.ModelRepository, text: str) -> None:
    error = f"pb_utils.InferenceResponse(error=pb_utils.TritonError({text!r}, pb_utils.TritonError.NOT_FOUND))"
    repo.define("m", f"{HEAD}\nclass TritonPythonModel:\n    def execute(self, requests): return [{error}]\n")
    r = repo.infer("m", {})
    assert r.error is not None
    assert (r.error.message(), repr(r)) == (text, "<Response of 'm': error ''>")
    assert r.error.code() is TritonError.NOT_FOUND
    assert r.record.error is not None
    assert r.record.error.code == "NOT_FOUND"
    assert "no message" in render(r.record).text
    assert "no message" in render([r.record, r.record]).text


def test_outputs_that_are_asked_for(repo: bls.ModelRepository) -> None:
    repo.define("m", ECHOES, ECHO)
    for outputs in (["OUT"], []):
        assert list(repo.infer("m", {"IN": [1]}, outputs)) == ["OUT"]
    refused = message(repo.infer("m", {"IN": [1]}, outputs=["X"]))
    assert refused.endswith("unexpected inference output 'X' for model 'm'")


def test_options_of_a_request_as_the_model_sees_them(repo: bls.ModelRepository) -> None:
    source = saying(
        "json.dumps([r.request_id(), r.correlation_id(), r.flags(), r.timeout(), json.loads(r.parameters()), "
        "sorted(r.requested_output_names())])",
        "import json\n",
        "r = requests[0]",
    )
    repo.define("m", source, TEXT)
    r = repo.infer(
        "m", {}, request_id="id", correlation_id="seq", flags=3, timeout=77, parameters={"a": 1, "b": "x", "c": False}
    )
    assert json.loads(r["OUT"].as_numpy()[0]) == ["id", "seq", 3, 77, {"a": 1, "b": "x", "c": False}, ["OUT"]]
    r = repo.infer("m", {})
    assert json.loads(r["OUT"].as_numpy()[0]) == ["", 0, 0, 0, {}, ["OUT"]]


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (FLAG_ALONE, []),
        ("sender.send(pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.array([9], np.float32))]), 1)", [[9.0]]),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
async def test_streams(repo: bls.ModelRepository, end: str, last: list[Any], count: int) -> None:
    repo.define("m", counter(end), DECOUPLED)
    expected = [[float(i)] for i in range(count)] + last
    responses = list(repo.stream("m", {"IN": [count]}, request_id="s"))
    later = [r async for r in repo.stream_async("m", {"IN": [count]}, request_id="s")]
    for got in (responses, later):
        values = [r["OUT"].as_numpy().tolist() for r in got if len(r)]
        assert (values, [r.index for r in got]) == (expected, list(range(len(got))))
        assert all(r.request_id == "s" and r.model == "m" and r.error is None for r in got)
        seconds = [r.seconds for r in got]
        assert seconds == sorted(seconds)  # type: ignore[type-var]


def test_a_stream_of_nothing_or_of_a_plain_model_is_one_response(repo: bls.ModelRepository) -> None:
    repo.define("m", counter(), DECOUPLED)
    (only,) = repo.stream("m", {"IN": [0]})
    assert (len(only), only.error, only.final) == (0, None, True)
    repo.define("m", ECHOES, ECHO)  # of a plain model, the stream is its one response
    (only,) = repo.stream("m", {"IN": [5]})
    assert (only["OUT"].as_numpy().tolist(), only.final, only.warnings) == ([5], True, ())
    assert "tensors=<1 TensorRecord>" in repr(only.record)
    (tensor,) = only.record.tensors
    assert (tensor.name, tensor.datatype, tensor.shape, tensor.bytes) == ("OUT", "FP32", (1,), 4)


def test_streams_that_are_refused_or_end_with_an_error(repo: bls.ModelRepository) -> None:
    repo.define("m", counter("raise RuntimeError('broke')"), DECOUPLED)
    assert "decoupled" in message(repo.infer("m", {"IN": [1]}))
    first, second = repo.stream("m", {"IN": [1]})
    assert (first["OUT"].as_numpy().tolist(), "RuntimeError: broke" in message(second)) == ([0], True)
    for name in ("nobody", "m"):
        (only,) = repo.stream(name, {})
        assert (only.error is None, only.final) == (False, True)


def test_leaving_a_stream_early_cancels_it(repo: bls.ModelRepository) -> None:
    source = f"""{HEAD}
from tests.engine import gates
class TritonPythonModel:
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))]))
        while not sender.is_cancelled():
            pass
        gates.pass_gate("closed")
        for _ in range(9):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))]))
        sender.send(flags=1)
        gates.open_gate("sent")
"""
    repo.define("m", source, DECOUPLED)
    stream: Any = repo.stream("m", {"IN": [1]})
    assert next(iter(stream))["OUT"].as_numpy().tolist() == [0]
    stream.close()
    gates.open_gate("closed")
    gates.pass_gate("sent")
    assert stream._stream.next_response()[1]  # the final flag: what came before it is not kept


def test_run(repo: bls.ModelRepository) -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return "later"

    async def fails() -> None:
        raise KeyError("x")

    assert (repo.run(lambda: 5), repo.run(later)) == (5, "later")
    given: Any
    for given, error in ((lambda: 1 / 0, ZeroDivisionError), (fails, KeyError), (5, TypeError), (None, TypeError)):
        with pytest.raises((bls.BLSError, error)):
            repo.run(given)
