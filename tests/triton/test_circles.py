"""Models of two repositories that call each other over the network, and can only wait for themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.backends.remote import link
from bls_notebook.engine.waiting import abroad, claims
from tests.engine.harness import pbtxt

X = np.arange(3, dtype=np.float32)
CONFIG = pbtxt(inputs="X:FP32", outputs="X:FP32")
MODEL = """
import asyncio
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    DEF execute(self, requests):
        request = requests[0]
        own = pb_utils.InferenceResponse([pb_utils.Tensor("X", request.inputs()[0].as_numpy())])
        asked = pb_utils.InferenceRequest(
            model_name="CALLEE", requested_output_names=["X"], inputs=request.inputs()
        )
        CALL
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return [response]
"""
SYNC, ASYNC = "response = asked.exec()", "response = await asked.async_exec()"
SHORTLY = """try:
            response = await asyncio.wait_for(asked.async_exec(), 0.2)
        except asyncio.TimeoutError:
            response = own"""
STOPS = "response = own"


def calling(callee: str, call: str) -> str:
    text = MODEL.replace("CALLEE", callee).replace("CALL", call)
    return text.replace("DEF", "async def" if "await" in call else "def")


class Two:
    """Two repositories with an endpoint each."""

    def __init__(self) -> None:
        self.here, self.there = bls.ModelRepository(), bls.ModelRepository()
        self.ends = bls.endpoint(self.here, token=""), bls.endpoint(self.there, token="")

    def link(self, protocol: str) -> None:
        """Have `b` of there call `a` of here, which calls `b`."""
        ours, theirs = [e.url if protocol == "http" else f"grpc://{e.grpc_url}" for e in self.ends]
        self.here.define("a", calling("b", STOPS), CONFIG)
        bls.connect(ours, "a", repo=self.there)
        self.there.define("b", calling("a", STOPS), CONFIG)
        bls.connect(theirs, "b", repo=self.here)

    def close(self) -> None:
        for each in (*self.ends, self.here, self.there):
            each.stop() if isinstance(each, bls.Endpoint) else each.close()


@pytest.fixture(scope="module", params=["http", "grpc"])
def two(request: pytest.FixtureRequest) -> Iterator[Two]:
    made = Two()
    try:
        made.link(request.param)
        yield made
    finally:
        made.close()


@pytest.fixture(params=["one process", "two"])
def apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the repositories were in two processes, which know of each other what is said alone."""
    if request.param == "two":
        monkeypatch.setattr(abroad, "returned", abroad._came.__setitem__)
        monkeypatch.setattr(link, "TELL_SECONDS", 0.05)
        monkeypatch.setattr(link, "PROBE_SECONDS", 0.05)


@pytest.mark.parametrize(("first", "second"), [(SYNC, SYNC), (ASYNC, SYNC), (SYNC, ASYNC), (ASYNC, ASYNC)])
@pytest.mark.usefixtures("apart")
def test_a_circle_over_the_network_is_refused(two: Two, first: str, second: str) -> None:
    two.here.define("a", calling("b", first), CONFIG)
    two.there.define("b", calling("a", second), CONFIG)
    error = two.here.infer("a", {"X": X}).error
    assert error is not None
    assert "circular BLS: a -> b -> a. The request to 'a' can never be served" in error.message()
    assert "instance_group.count = 2 or more for 'a'" in error.message()


@pytest.mark.usefixtures("apart")
def test_what_may_still_move_is_not_refused(two: Two) -> None:
    two.here.define("a", calling("b", SYNC), CONFIG)
    two.there.define("b", calling("a", SHORTLY), CONFIG)
    response = two.here.infer("a", {"X": X})
    assert response.error is None
    np.testing.assert_array_equal(response["X"].as_numpy(), X)


def test_what_nobody_knows_says_nothing(two: Two) -> None:
    two.here.define("a", calling("b", STOPS), CONFIG)
    number = "0" * 16 + ".1"
    for text in ("", ">", ";;>", "ö>é", f"{number}>{number}", f"{number};{number}>", "a" * 100_000):
        claims.told(text)
    assert two.here.infer("a", {"X": X}).error is None
