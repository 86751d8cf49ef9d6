"""A server in a container, with a program named docker that takes note of how it is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.shipping.servers.environment import Container
from bls_notebook.shipping.servers.tritonserver import TritonServerError
from tests.shipping.fake_tritonserver import linux, stand_in, wait_gone

# What `run` starts is no child of whoever called it, as with docker's daemon: only `rm` ends it.
DOCKER = """\
#!{python}
import os, signal, subprocess, sys
with open({notes!r}, "a") as notes:
    print(*sys.argv[1:], sep="\\x1f", file=notes)
command, rest = sys.argv[1], sys.argv[2:]
if {broken!r} and command != "version":
    sys.exit("Cannot connect to the Docker daemon. Is the docker daemon running?")
if command == "image":
    sys.exit(not os.path.exists({notes!r} + ".pulled"))
if command == "pull":
    open({notes!r} + ".pulled", "w").close()
name = rest[rest.index("--name") + 1] if command == "run" else rest[-1]
if command == "run":
    script, arguments = rest[rest.index("-c") + 1], rest[rest.index("-c") + 3:]
    assert script.endswith('exec tritonserver "$@"')
    arguments = [each.replace("0.0.0.0", "127.0.0.1") for each in arguments]
    server = subprocess.Popen([{server!r}, *arguments], start_new_session=True)
    with open({notes!r} + name, "w") as file:
        file.write(str(server.pid))
    sys.exit(server.wait())
if command == "rm":
    os.killpg(int(open({notes!r} + name).read()), signal.SIGKILL)
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return fake_docker(tmp_path, monkeypatch)


def fake_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, broken: bool = False) -> Path:
    server = stand_in(folder).server / "bin" / "tritonserver"
    notes, program = folder / "docker-calls", folder / "bin" / "docker"
    program.parent.mkdir()
    told = {"notes": str(notes), "server": str(server), "broken": broken}
    program.write_text(DOCKER.format(python=sys.executable, **told))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return notes


def calls(notes: Path) -> list[list[str]]:
    return [line.split("\x1f") for line in notes.read_text().splitlines()]


@linux
def test_a_container_serves_and_goes(samples: bls.ModelRepository, docker: Path, private: Path) -> None:
    with bls.serve("add_sub", repo=samples, container="registry/triton:1") as server:
        assert isinstance(server.environment, Container)
        name, child = server.environment.name, server.metadata()["child"]
        assert server.record.state == "READY"
        assert server.record.program == f"registry/triton:1, in the container {name}"
        pid = int(Path(f"{docker}{name}").read_text())
        models = server.repositories[0]
        ports = server.http_port, server.grpc_port, server.metrics_port
        assert server.python == ""
    wait_gone(pid, child)
    assert not list(private.iterdir())
    version, image, pull, run, rm = calls(docker)
    assert version[0] == "version"
    assert image == ["image", "inspect", "registry/triton:1"]
    assert pull == ["pull", "--quiet", "registry/triton:1"]
    assert rm == ["rm", "--force", "--volumes", name]
    before = run[: run.index("registry/triton:1")]
    assert before == [
        *("run", "--rm", "--name", name, "--label", "bls_notebook=serve", "--shm-size=64m"),
        *(f"--publish=127.0.0.1:{port}:{port}" for port in ports),
        *(f"--volume={models}:{models}:ro", "--env=PYTHONDONTWRITEBYTECODE=1"),
    ]
    after = run[len(before) + 1 :]
    assert after[:4] == ["sh", "-c", "pip install --quiet 'numpy<2' && exec tritonserver \"$@\"", "sh"]
    assert "--http-address=0.0.0.0" in after
    assert "--load-model=add_sub" in after


@linux
def test_a_container_goes_with_a_process_that_is_killed(
    samples: bls.ModelRepository, docker: Path, private: Path
) -> None:
    server = bls.serve("add_sub", repo=samples, container=True)
    assert server._run is not None
    child = server.metadata()["child"]
    assert server._run.watchdog.stdin is not None
    server._run.watchdog.stdin.close()  # as when this process is gone
    wait_gone(child, server._run.watchdog.pid)
    assert calls(docker)[-1][0] == "rm"
    server.stop()


def test_why_there_is_no_container(
    samples: bls.ModelRepository, tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = fake_docker(tmp_path, monkeypatch, broken=True)
    with pytest.raises(TritonServerError, match="cannot pull the image: Cannot connect to the Docker daemon"):
        bls.serve("add_sub", repo=samples, container=True)
    assert [call[0] for call in calls(notes)] == ["version", "image", "pull"]
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(TritonServerError, match="a container needs docker, which is not on PATH"):
        bls.serve("add_sub", repo=samples, container=True)
    assert not list(private.iterdir())
