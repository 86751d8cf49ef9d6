"""A fake tritonserver: a small HTTP server with tritonserver's options. And checks that processes have ended."""

from __future__ import annotations

import os
import select
import sys
import tempfile
from pathlib import Path

import pytest

from bls_notebook.shipping.servers.server_programs import ServerEnvironment, is_supported
from bls_notebook.shipping.servers.tritonserver import TritonServer

STAND_IN = """\
#!{python}
import http.server, json, os, signal, sys, threading
options = dict(item[2:].partition("=")[::2] for item in sys.argv[1:])
behaviour = {behaviour!r}
prefix = options["backend-config"].partition("prefix-name=")[2]
print(prefix, file=open({flag!r} + ".regions", "a"))
open("/dev/shm/" + prefix + "region", "w").close()
if behaviour == "dies":
    print('I1201 00:00:00 1 x.cc:1] "fine so far"')
    print("Error: Failed to initialize NVML")
    print('E1201 00:00:00 1 y.cc:2] "failed to load m: bad config"', flush=True)
    sys.exit(3)
if behaviour == "port taken" and not os.path.exists({flag!r}):
    open({flag!r}, "w").close()
    sys.exit("failed to start HTTP service: Unavailable - Socket already in use")
if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if behaviour == "never ready":
            return self.answer(503, b"")
        self.answer(200, json.dumps({{"path": self.path, "child": child}}).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if "kill" in self.path:
            os.kill(os.getpid(), signal.SIGKILL)
        if "hang" in self.path:
            threading.Event().wait()
        if "html" in self.path:
            return self.answer(500, b"<html>not json</html>")
        if "break" in self.path:
            return self.connection.close()
        self.answer(400, json.dumps({{"error": "no " + self.path}}).encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()
address = options["http-address"], int(options["http-port"])
http.server.ThreadingHTTPServer(address, Handler).serve_forever()
"""


def stand_in(folder: Path, behaviour: str = "") -> ServerEnvironment:
    made = ServerEnvironment(folder / "env", "3.11", folder / "site", folder / "lib")
    program = made.server / "bin" / "tritonserver"
    program.parent.mkdir(parents=True)
    flag = str(folder / "flag")
    program.write_text(STAND_IN.format(python=sys.executable, behaviour=behaviour, flag=flag))
    program.chmod(0o755)
    return made


linux = pytest.mark.skipif(not is_supported(), reason="tritonserver runs on Linux x86-64 only")


def wait_gone(*pids: int, seconds: float = 20.0) -> None:
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ended, _, _ = select.select([handle], [], [], seconds)
            assert ended, f"process {pid} is still there"
        finally:
            os.close(handle)


def leftovers(server: TritonServer) -> list[Path]:
    run = server._run
    return [run.folder, *Path("/dev/shm").glob(f"{run.shared_memory}*")]


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "private"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str = "") -> None:
    bin_folder = stand_in(folder, behaviour).server / "bin"
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
