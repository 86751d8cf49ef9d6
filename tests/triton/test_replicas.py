"""Several servers behind HAProxy, as an export for compose has them: as processes, and lost under load."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.triton.tritonserver import ServerEnvironment

pytest.importorskip("tritonclient.grpc", reason="tritonclient's clients are not installed (extra: network)")
pytest.importorskip("tritonclient.http", reason="tritonclient's clients are not installed (extra: network)")

import tritonclient.grpc
import tritonclient.http
from geventhttpclient.response import HTTPConnectionClosed
from tritonclient.utils import InferenceServerException

from tests.engine.harness import until
from tests.triton.replicas import HAPROXY, Topology, topology

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
        told = pb_utils.Tensor("WHO", np.array([os.getpid()], np.int64))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * request.inputs()[0].as_numpy()), told])
"""


LOST = re.compile("a replica was lost before it had answered|^connection closed|UNAVAILABLE.*RST_STREAM")


class Running(NamedTuple):
    """The topology, and the file in which its models write what they have had."""

    topology: Topology
    book: Path


@pytest.fixture(scope="module")
def running(
    real_environment: ServerEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("replicas")
    book = folder / "book"
    book.touch()
    config = {
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [
            {"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]},
            {"name": "WHO", "data_type": "TYPE_INT64", "dims": [1]},
        ],
        "parameters": {"book": {"string_value": str(book)}},
    }
    with bls.ModelRepository() as repo:
        repo.define("twice", TWICE, config)
        repo.export(folder / "ship", target="compose", replicas=3)
    with topology(folder / "ship", 3, real_environment) as found:
        yield Running(found, book)


class Load:
    """Sends requests from a thread, one after the other, until it is told to stop."""

    def __init__(self, name: str, api: Any, url: str) -> None:
        self.name, self.api, self.url = name, api, url
        self.answered: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        self.enough = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        client = self.api.InferenceServerClient(self.url)
        sent = self.api.InferInput("X", [2], "FP32")
        sent.set_data_from_numpy(np.ones(2, np.float32))
        number = 0
        while not self.enough.is_set():
            number += 1
            request = f"{self.name}-{number}"
            try:
                result = client.infer("twice", [sent], request_id=request)
            except (InferenceServerException, HTTPConnectionClosed) as error:
                self.failed[request] = str(error)
            else:
                assert result.as_numpy("Y").tolist() == [2, 2]
                self.answered[request] = int(result.as_numpy("WHO")[0])
        client.close()

    def stop(self) -> None:
        self.enough.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


def test_a_lost_replica_costs_no_more_than_what_it_had_begun(running: Running) -> None:
    at = running.topology
    lost = at.servers[0]
    loads = [
        Load(f"{api.__name__}-{number}", api, url)
        for number in range(2)
        for api, url in ((tritonclient.http, at.http), (tritonclient.grpc, at.grpc))
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
        until(lambda: len(who()) == 4, 30)  # it is back
    finally:
        for load in loads:
            load.stop()
    runs = Counter(running.book.read_text().split())
    answered = {request for load in loads for request in load.answered}
    failed = {request: error for load in loads for request, error in load.failed.items()}
    assert set(runs.values()) == {1}  # none twice
    assert answered <= runs.keys() <= answered | failed.keys()
    assert all(LOST.search(error) for error in failed.values())
    assert len(failed) <= len(loads)  # what it was at
