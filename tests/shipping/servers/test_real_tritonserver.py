"""The real tritonserver, driven by `TritonServer`. What it answers: tests/conformance."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bls_notebook.shipping.servers.server_programs import ServerEnvironment, TritonServerError
from bls_notebook.shipping.servers.tritonserver import TritonServer
from tests.engine.harness import until
from tests.shipping.fake_tritonserver import leftovers, wait_gone

pytestmark = pytest.mark.triton
CONFIG = """backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""
CONSTANT = """
import sys
import numpy as np
import triton_python_backend_utils as pb_utils
print("constant runs in", sys.prefix, "with NumPy", np.__version__, flush=True)

class TritonPythonModel:
    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([VALUE], np.int32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
ZERO = {"IN": np.zeros(1, np.int32)}


def write_model(repository: Path, name: str, source: str) -> None:
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(CONFIG)
    (repository / name / "1" / "model.py").write_text(source)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in ("constant", "changing"):
        write_model(folder, name, CONSTANT.replace("VALUE", "1"))
    return folder


@pytest.fixture(scope="module")
def real(real_environment: ServerEnvironment, repository: Path) -> Iterator[TritonServer]:
    with TritonServer(repository, environment=real_environment, load=["constant"]) as server:
        yield server
        server.stop(graceful=False)


def test_models_run_in_the_servers_own_environment(real: TritonServer) -> None:
    assert real.environment is not None
    (line, *_) = [line for line in real.log().splitlines() if line.startswith("constant runs in")]
    assert line.startswith(f"constant runs in {real.environment.folder} with NumPy 1.")


def test_models_load_reload_and_unload(real: TritonServer, repository: Path) -> None:
    def value() -> int:
        result = real.infer("changing", ZERO, outputs=["OUT"], request_id="r9")
        assert (result.model, result.version, result.request_id) == ("changing", "1", "r9")
        return int(result["OUT"][0])

    assert not real.ready("changing")
    real.load("changing")
    assert real.ready("changing", 1)
    assert not real.ready("changing", 2)
    assert value() == 1
    write_model(repository, "changing", CONSTANT.replace("VALUE", "2"))
    real.load("changing")
    assert value() == 2
    config = real.config("changing")
    config["parameters"] = {"note": {"string_value": "with an equal config the server keeps the old files"}}
    real.load("changing", config, {"1/model.py": CONSTANT.replace("VALUE", "3").encode()})
    assert value() == 3

    def succeeded() -> int:
        return int(real.statistics("changing")["model_stats"][0]["inference_stats"]["success"]["count"])

    until(lambda: succeeded() >= 1, "the server counts after it has answered")
    real.unload("changing")
    assert not real.ready("changing")


def test_the_server_listens_on_loopback_only(real: TritonServer) -> None:
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


def in_group(entry: Path, group: int) -> bool:
    try:
        return entry.name.isdecimal() and os.getpgid(int(entry.name)) == group
    except ProcessLookupError:
        return False


def test_a_killed_server_is_an_error_and_leaves_nothing(real_environment: ServerEnvironment, repository: Path) -> None:
    with TritonServer(repository, environment=real_environment, load=["constant"]) as server:
        paths = leftovers(server)
        assert len(paths) > 1
        pid = server.pid
        assert pid is not None
        processes = [int(entry.name) for entry in Path("/proc").iterdir() if in_group(entry, pid)]
        assert len(processes) > 1  # models have their own processes
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)
        with pytest.raises(TritonServerError, match="died of SIGKILL"):
            server.infer("constant", ZERO)
    wait_gone(*processes)
    assert not any(path.exists() for path in paths)
