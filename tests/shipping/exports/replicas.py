"""An export for compose as processes: its haproxy.cfg as it is, before tritonservers on its models."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bls_notebook.network.kserve.address import HOST
from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from bls_notebook.shipping.servers.tritonserver import TritonServer, free_ports
from tests.engine.harness import until

HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")


@dataclass
class Topology:
    servers: list[TritonServer]
    http: str
    grpc: str


@contextlib.contextmanager
def serving(export: Path, replicas: int, environment: ServerEnvironment) -> Iterator[list[TritonServer]]:
    models = [path.parent.name for path in export.glob("*/config.pbtxt")]
    servers = [TritonServer(export, environment=environment, load=models) for _ in range(replicas)]
    with contextlib.ExitStack() as ends:
        for server in servers:
            ends.callback(server.stop, graceful=False)
        with ThreadPoolExecutor(replicas) as pool:
            list(pool.map(TritonServer.start, servers))
        yield servers


@contextlib.contextmanager
def shared_out(export: Path, servers: list[TritonServer]) -> Iterator[Topology]:
    assert HAPROXY is not None
    http, grpc = (f"{HOST}:{port}" for port in free_ports(2))
    places = {"HTTP": http, "GRPC": grpc}
    for number, server in enumerate(servers, 1):
        places[f"TRITON_{number}_HTTP"] = f"{HOST}:{server.http_port}"
        places[f"TRITON_{number}_GRPC"] = f"{HOST}:{server.grpc_port}"
    haproxy = subprocess.Popen(
        [HAPROXY, "-db", "-f", "haproxy.cfg"], cwd=export, env={**os.environ, **places},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for place in (http, grpc):
            until(lambda place=place: listens(place))
        yield Topology(servers, http, grpc)
    finally:
        haproxy.kill()
        haproxy.wait()


def listens(place: str) -> bool:
    host, _, port = place.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False
