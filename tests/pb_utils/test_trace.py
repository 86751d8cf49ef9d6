"""`InferenceTrace`: contexts of OpenTelemetry, carried from request to request as on the real server.

The shape of what is expected here is compared with the real server's in tests/conformance.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.pb_utils import InferenceRequest, get_output_tensor_by_name
from bls_notebook.repository.requests.inputs import trace_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c12666c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01")
X = {"X": [1.0]}


@pytest.fixture
def leaf(repo: bls.ModelRepository) -> bls.ModelRepository:
    folder = Path(__file__).parents[1] / "conformance" / "observed"
    source = (folder / "leaf" / "1" / "model.py").read_text()
    repo.define("leaf", source, (folder / "leaf" / "config.pbtxt").read_text())
    return repo


def context(repo: bls.ModelRepository, model: str = "leaf", **options: Any) -> Any:
    response = repo.infer(model, X, **options)
    assert response.error is None, response.error.message()
    text = json.loads(response["CONTEXT"].as_numpy()[0])
    return None if text is None else json.loads(text)


def ids(found: dict[str, str]) -> tuple[str, str]:
    match = TRACEPARENT.fullmatch(found["traceparent"])
    assert match is not None, found
    return match[1], match[2]


def test_requests_are_not_traced_by_themselves(leaf: bls.ModelRepository) -> None:
    assert context(leaf) is None
    assert context(leaf, trace=False) is None


def test_a_new_trace_each(leaf: bls.ModelRepository) -> None:
    found = [ids(context(leaf, trace=True)) for _ in range(3)]
    assert len({trace for trace, _ in found}) == 3


@pytest.mark.parametrize("trace", [
    PARENT, {"traceparent": PARENT}, {"Traceparent": PARENT, "accept": "*/*"}, f"00-{TRACE}-{SPAN}-00",
    f"cc-{TRACE}-{SPAN}-01-more",
])  # fmt: skip
def test_joining_a_trace(leaf: bls.ModelRepository, trace: Any) -> None:
    given = copy.deepcopy(trace)
    found = context(leaf, trace=trace)
    assert ids(found)[0] == TRACE
    assert ids(found)[1] != SPAN  # the request has a span of its own
    assert trace == given


@pytest.mark.parametrize("trace", [
    "", "garbage", PARENT[:-1], PARENT.upper(), f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01", PARENT + "\n", 1, b"x", [PARENT], {}, {"traceparent": None},
    {"traceparent": PARENT, "tracestate": 5},
])  # fmt: skip
def test_wrong_traceparents_are_refused(leaf: bls.ModelRepository, trace: Any) -> None:
    """A server sends such a request without a trace, and nobody knows why."""
    with pytest.raises(bls.BLSError, match=r"^trace: ") as raised:
        leaf.infer("leaf", X, trace=trace)
    assert "\n" not in str(raised.value)


RELAY = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        given = {"trace": requests[0].trace()} if TRACED else {}
        request = pb.InferenceRequest(
            model_name=NEXT, inputs=requests[0].inputs(), requested_output_names=["CONTEXT"], **given)
        return [request.exec()]
"""
CONFIG = """
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "CONTEXT" data_type: TYPE_STRING dims: [1] }]
"""


def relay(repo: bls.ModelRepository, name: str, to: str, traced: bool = True) -> None:
    repo.define(name, RELAY.replace("NEXT", repr(to)).replace("TRACED", str(traced)), CONFIG)


def test_a_chain_of_models_is_one_trace(leaf: bls.ModelRepository) -> None:
    relay(leaf, "inner", "leaf")
    relay(leaf, "outer", "inner")
    found = context(leaf, "outer", trace={"traceparent": PARENT, "tracestate": "a=1"})
    assert (ids(found)[0], found["tracestate"]) == (TRACE, "a=1")
    assert context(leaf, "outer") is None
    relay(leaf, "inner", "leaf", traced=False)  # a model that does not pass the trace on ends it
    assert context(leaf, "outer", trace=PARENT) is None


async def test_async_requests_and_streams_are_traced_too(leaf: bls.ModelRepository) -> None:
    answer = await leaf.infer_async("leaf", X, trace=PARENT)
    streams = [*leaf.stream("leaf", X, trace=PARENT)]
    streams += [r async for r in leaf.stream_async("leaf", X, trace=PARENT)]
    for response in (answer, *streams):
        found = json.loads(json.loads(response["CONTEXT"].as_numpy()[0]))
        assert ids(found)[0] == TRACE


async def test_each_request_of_a_batch_has_its_own_trace(leaf: bls.ModelRepository) -> None:
    source = """
import json
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        assert len(requests) == 2
        texts = [np.array([[json.dumps(r.trace().get_context())]], object) for r in requests]
        return [pb.InferenceResponse([pb.Tensor("CONTEXT", t)]) for t in texts]
"""
    batching = "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 60000000 }\n"
    leaf.define("b", source, "max_batch_size: 2\n" + batching + CONFIG)
    traces = [TRACE, TRACE[::-1]]
    sent = [
        leaf.infer_async("b", {"X": [[1.0]]}, trace=f"00-{t}-{SPAN}-01", parameters={"a": 1}, request_id="r")
        for t in traces
    ]
    answers = await asyncio.gather(*sent)
    assert [ids(json.loads(json.loads(a["CONTEXT"].as_numpy()[0, 0])))[0] for a in answers] == traces


def test_a_request_that_is_made_has_the_trace_that_it_was_given(leaf: bls.ModelRepository) -> None:
    given = trace_of(PARENT)
    assert given is not None

    def body() -> None:
        request = InferenceRequest("", 0, [], ["CONTEXT"], "leaf", trace=given)
        assert request.trace().get_context() == json.dumps({"traceparent": PARENT}, separators=(",", ":"))
        request.set_flags(3)
        assert request.trace() is given
        assert get_output_tensor_by_name(request.exec(), "CONTEXT") is None  # an input is missing

    leaf.run(body)
