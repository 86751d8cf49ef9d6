"""Several servers behind HAProxy, as an export for compose has them: as processes, and lost under load."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.shipping.servers.server_programs import ServerEnvironment

pytest.importorskip("tritonclient.grpc", reason="tritonclient's clients are not installed (extra: network)")

from tests.engine.harness import until
from tests.shipping.exports.replicas import HAPROXY, Topology, serving, shared_out
from tests.waiting import LIMIT

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(HAPROXY is None, reason="needs HAProxy (on Debian: apt-get install haproxy)"),
]

# Takes a while for each request, and writes down which ones it has had.
TWICE = """
import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.book = json.loads(args["model_config"])["parameters"]["book"]["string_value"]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        with open(self.book, "a") as book:
            book.write(request.request_id() + "\\n")
        time.sleep(0.003)
        who = os.getpid() if "who" in request.parameters() else 0
        told = pb_utils.Tensor("WHO", np.array([who], np.int64))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * request.inputs()[0].as_numpy()), told])
"""


LOST = re.compile("a replica was lost before it had answered|the connection was lost during the request")

# In the notebook: what it is asked, it asks the servers.
CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        call = pb_utils.InferenceRequest(
            model_name="twice", request_id=request.request_id(), inputs=request.inputs(),
            requested_output_names=["Y", "WHO"], parameters={"who": True},
        )
        response = await call.async_exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(response.output_tensors())
"""
CONFIG = {
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [
        {"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]},
        {"name": "WHO", "data_type": "TYPE_INT64", "dims": [1]},
    ],
}
X = np.ones(2, np.float32)


class Running(NamedTuple):
    topology: Topology
    export: Path
    book: Path


@pytest.fixture(scope="module")
def running(real_environment: ServerEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("replicas")
    book = folder / "book"
    book.touch()
    config = {**CONFIG, "parameters": {"book": {"string_value": str(book)}}}
    with bls.ModelRepository() as repo:
        repo.define("twice", TWICE, config)
        bls.export(folder / "ship", target="compose", replicas=3, requests={"twice": [{"X": X}, {"X": [0]}]}, repo=repo)
    ship = folder / "ship"
    with serving(ship, 3, real_environment) as servers, shared_out(ship, servers) as found:
        yield Running(found, folder / "ship", book)


Send = Callable[[str], tuple[Any, Any]]  # a request's ID to its outputs Y and WHO


@contextmanager
def caller(url: str) -> Iterator[Send]:
    with bls.ModelRepository() as repo, bls.connect(url, "twice", repo=repo):
        repo.define("caller", CALLER, CONFIG)

        def send(request: str) -> tuple[Any, Any]:
            response = repo.infer("caller", {"X": X}, request_id=request)
            if response.error is not None:
                raise RuntimeError(response.error.message())
            return response["Y"].as_numpy(), response["WHO"].as_numpy()

        yield send


class Load:
    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, url
        self.answered: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        self.enough = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        with caller(self.url) as send:
            while not self.enough.is_set():
                request = f"{self.name}-{len(self.answered) + len(self.failed)}"
                try:
                    doubled, who = send(request)
                except RuntimeError as error:
                    self.failed[request] = str(error)
                else:
                    assert doubled.tolist() == [2, 2]
                    self.answered[request] = int(who[0])

    def stop(self) -> None:
        self.enough.set()
        self.thread.join(LIMIT)
        assert not self.thread.is_alive()


def test_a_lost_replica_fails_only_its_requests_in_flight(running: Running) -> None:
    at = running.topology
    lost = at.servers[0]
    loads = [
        Load(f"{scheme}-{number}", f"{scheme}://{address}")
        for scheme, address in (("http", at.http), ("grpc", at.grpc))
        for number in range(3)
    ]

    def who() -> set[int]:
        return {pid for load in loads for pid in list(load.answered.values())}

    def answers() -> int:
        return sum(len(load.answered) for load in loads)

    try:
        until(lambda: len(who()) == 3)
        lost.stop(graceful=False)
        before = answers()
        until(lambda: answers() > before + 200)  # the others go on
        lost.start()
        until(lambda: len(who()) == 4)  # it is back
    finally:
        for load in loads:
            load.stop()
    runs = Counter(running.book.read_text().split())
    answered = {request for load in loads for request in load.answered}
    failed = {request: error for load in loads for request, error in load.failed.items()}
    assert set(runs.values()) == {1}  # none twice
    assert answered <= runs.keys() <= answered | failed.keys()
    assert {error for error in failed.values() if not LOST.search(error)} == set()
    assert len(failed) <= len(loads)  # what it was at


def test_the_replicas_answer_as_the_notebook_did(running: Running) -> None:
    prove = [sys.executable, str(running.export / "prove.py"), running.topology.grpc]
    done = subprocess.run(prove, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2" in done.stdout
