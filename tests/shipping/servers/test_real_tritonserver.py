"""The real tritonserver, driven by `TritonServer`."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bls_notebook.shipping.servers.tritonserver import (
    ServerEnvironment,
    TritonRequestError,
    TritonServer,
    TritonServerError,
)
from tests.engine.harness import until
from tests.shipping.fake_tritonserver import leftovers, wait_gone

KINDS = {
    "BOOL": "TYPE_BOOL",
    "UINT8": "TYPE_UINT8",
    "INT64": "TYPE_INT64",
    "FP16": "TYPE_FP16",
    "FP64": "TYPE_FP64",
    "BYTES": "TYPE_STRING",
}
ECHO_CONFIG = 'backend: "python"\n' + "".join(
    f'{way} {{ name: "{name}" data_type: {kind} dims: [ -1 ] {extra} }}\n'
    for name, kind in KINDS.items()
    for way, extra in (("input", "optional: true"), ("output", ""))
)
ECHO = """
import sys
import numpy
import triton_python_backend_utils as pb_utils
print("echo runs in", sys.prefix, "with NumPy", numpy.__version__, flush=True)

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            tensors = [pb_utils.Tensor(item.name(), item.as_numpy()) for item in request.inputs()]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
"""
CONSTANT_CONFIG = """backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""
CONSTANT = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([VALUE], np.int32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


def write_model(repository: Path, name: str, config: str, source: str) -> None:
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(config)
    (repository / name / "1" / "model.py").write_text(source)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, "echo", ECHO_CONFIG, ECHO)
    write_model(folder, "constant", CONSTANT_CONFIG, CONSTANT.replace("VALUE", "1"))
    write_model(folder, "broken", CONSTANT_CONFIG, "class TritonPythonModel\n")
    return folder


@pytest.fixture(scope="module")
def real(real_environment: ServerEnvironment, repository: Path) -> Iterator[TritonServer]:
    with TritonServer(repository, environment=real_environment, load=["echo"]) as server:
        yield server
        server.stop(graceful=False)


@pytest.mark.triton
def test_real_arrays_there_and_back(real: TritonServer) -> None:
    inputs: dict[str, Any] = {
        "BOOL": np.array([True, False]),
        "UINT8": np.arange(1 << 16, dtype=np.uint8),
        "INT64": np.array([-(2**63), 2**63 - 1]),
        "FP16": np.array([1.5, np.inf], np.float16),
        "FP64": np.zeros(0),
        "BYTES": np.array(["é", b"", b"\0x"], np.object_),
    }
    result = real.infer("echo", inputs, request_id="r9")
    assert (result.model, result.version, result.request_id) == ("echo", "1", "r9")
    assert result.datatypes == {name: name for name in KINDS}
    assert result.as_numpy().pop("BYTES").tolist() == ["é".encode(), b"", b"\0x"]
    for name, array in inputs.items():
        if name != "BYTES":
            np.testing.assert_array_equal(result[name], array)
            assert result[name].dtype == array.dtype
    assert list(real.infer("echo", inputs, outputs=["FP16"]).outputs) == ["FP16"]


@pytest.mark.triton
def test_real_models_run_in_the_servers_own_environment(real: TritonServer) -> None:
    assert real.environment is not None
    (line, *_) = [line for line in real.log().splitlines() if line.startswith("echo runs in")]
    assert line.startswith(f"echo runs in {real.environment.folder} with NumPy 1.")


@pytest.mark.triton
def test_real_errors_are_the_servers_own(real: TritonServer) -> None:
    with pytest.raises(TritonRequestError, match="data-type is 'FP64', but model 'echo' expects 'UINT8'") as caught:
        real.infer("echo", {"UINT8": np.zeros(1)})
    assert caught.value.status == 400
    with pytest.raises(TritonRequestError, match="unknown model") as caught:
        real.infer("nobody", {})
    assert caught.value.status == 404
    with pytest.raises(TritonRequestError, match="failed to load 'nobody'"):
        real.load("nobody")
    with pytest.raises(TritonRequestError, match="SyntaxError"):
        real.load("broken")
    row = next(row for row in real.index() if row["name"] == "broken")
    assert row["state"] == "UNAVAILABLE"
    assert "SyntaxError" in row["reason"]


@pytest.mark.triton
def test_real_models_load_reload_and_unload(real: TritonServer, repository: Path) -> None:
    def value() -> int:
        return int(real.infer("constant", {"IN": np.zeros(1, np.int32)})["OUT"][0])

    assert not real.ready("constant")
    real.load("constant")
    assert real.ready("constant", 1)
    assert not real.ready("constant", 2)
    assert value() == 1
    write_model(repository, "constant", CONSTANT_CONFIG, CONSTANT.replace("VALUE", "2"))
    real.load("constant")
    assert value() == 2
    config = real.config("constant")
    config["parameters"] = {"note": {"string_value": "with an equal config the server keeps the old files"}}
    real.load("constant", config, {"1/model.py": CONSTANT.replace("VALUE", "3").encode()})
    assert value() == 3

    def succeeded() -> int:
        return int(real.statistics("constant")["model_stats"][0]["inference_stats"]["success"]["count"])

    until(lambda: succeeded() >= 1, "the server counts after it has answered")
    real.unload("constant")
    assert not real.ready("constant")


@pytest.mark.triton
def test_real_requests_from_many_threads(real: TritonServer) -> None:
    wrong: list[int] = []

    def ask(seed: int) -> None:
        array = np.full(1000, seed, np.int64)
        for _ in range(10):
            if not np.array_equal(real.infer("echo", {"INT64": array})["INT64"], array):
                wrong.append(seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.triton
def test_real_server_listens_on_loopback_only(real: TritonServer) -> None:
    ports = {real.http_port, real.grpc_port, real.metrics_port}
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, port = local.split(":")
            if state == "0A" and int(port, 16) in ports:
                # an IPv4 address, alone or mapped into IPv6, ends with its bytes in reverse
                listening.add((socket.inet_ntoa(bytes.fromhex(address[-8:])[::-1]), int(port, 16)))
    assert listening == {("127.0.0.1", port) for port in ports}


@pytest.mark.triton
def test_real_server_with_a_model_that_fails_does_not_start(
    real_environment: ServerEnvironment, repository: Path
) -> None:
    with pytest.raises(TritonServerError, match="while starting") as caught:
        TritonServer(repository, environment=real_environment, load=["broken"]).start()
    assert "broken" in str(caught.value)


def in_group(entry: Path, group: int) -> bool:
    try:
        return entry.name.isdecimal() and os.getpgid(int(entry.name)) == group
    except ProcessLookupError:
        return False


@pytest.mark.triton
def test_real_server_killed_in_mid_request(real_environment: ServerEnvironment, repository: Path) -> None:
    with TritonServer(repository, environment=real_environment, load=["echo"]) as server:
        paths = leftovers(server)
        assert len(paths) > 1
        pid = server.pid
        assert pid is not None
        processes = [int(entry.name) for entry in Path("/proc").iterdir() if in_group(entry, pid)]
        assert len(processes) > 1  # the models have theirs
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)
        with pytest.raises(TritonServerError, match="died of SIGKILL"):
            server.infer("echo", {"INT64": np.zeros(1, np.int64)})
    wait_gone(*processes)
    assert not any(path.exists() for path in paths)
