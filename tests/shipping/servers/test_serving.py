"""`bls.serve`: models on a fake tritonserver, in a fake docker container, and on the real one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.engine.waiting.parker import Parker
from bls_notebook.shipping.servers.server_programs import Container, ServerEnvironment, TritonServerError
from tests.checking.conftest import execute, model, write
from tests.engine.harness import until
from tests.shipping.fake_tritonserver import leftovers, linux, on_path, stand_in, wait_gone
from tests.waiting import LIMIT

SAMPLES = Path(__file__).parents[3] / "model_repository"
ROOT = Path(__file__).parents[3]


@linux
def test_serve_leaves_nothing(samples: bls.ModelRepository, tmp_path: Path, private: Path) -> None:
    with bls.serve("add_sub", repo=samples, environment=stand_in(tmp_path)) as server:
        record, pid, child = server.record, server.pid, server.metadata()["child"]
        paths = [*leftovers(server), *private.iterdir()]
        assert len(paths) == 4  # the run's folder twice, its shared memory, and the copy of the models
        assert (server.repository / "add_sub" / "config.pbtxt").exists()
        assert record.state == "READY"
        assert record.http == f"http://127.0.0.1:{server.http_port}"
        assert Path(record.log_file).exists()
    assert pid is not None
    wait_gone(pid, child)
    assert not any(path.exists() for path in paths)
    assert server.record.state == "STOPPED"
    server.stop()
    with pytest.raises(TritonServerError, match=r"call bls\.serve again"):
        server.start()


@linux
def test_models_that_need_a_newer_release(tmp_path: Path, private: Path) -> None:
    source = execute("pass", "[], parameters={'k': 1}")
    with bls.ModelRepository(write(tmp_path / "models", model("late", source=source))) as repo:
        repo.load("late")
        exported = bls.export(tmp_path / "out", repo=repo)
        assert "model 'late': it needs release 25.02 or newer" in " ".join(exported.needs)
        assert "release 25.02 or newer" in (tmp_path / "out" / "README.md").read_text()
        problem = "this server is release 24.10: model 'late', model.py:9: `parameters=` of InferenceResponse needs"
        with bls.serve(repo=repo, environment=stand_in(tmp_path)) as server:
            assert server.record.notes[0].startswith(problem)
        with pytest.raises(TritonServerError, match=r"this server is release 24\.10"):
            bls.serve(repo=repo, environment=stand_in(tmp_path / "dies", "dies"))


@pytest.mark.slow
@linux
def test_a_server_that_died_reports_its_signal(samples: bls.ModelRepository, tmp_path: Path, private: Path) -> None:
    server = bls.serve(repo=samples, environment=stand_in(tmp_path))
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(TritonServerError, match=r"^tritonserver died of SIGKILL"):
        server.wait()
    assert server.record.state == "ENDED"
    assert server.record.notes == ("tritonserver died of SIGKILL",)
    server.stop()
    assert server.record.notes == ("tritonserver died of SIGKILL",)
    assert not list(private.iterdir())


@linux
@pytest.mark.parametrize("how", ["dies", "interrupted", "never ready"])
def test_a_failed_start_leaves_nothing(
    how: str, samples: bls.ModelRepository, tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stand_in(tmp_path, "never ready" if how == "interrupted" else how)
    if how == "interrupted":

        class Pressed(Parker):
            def park(self, seconds: float = -1) -> bool:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                return super().park()

        monkeypatch.setattr("bls_notebook.shipping.servers.tritonserver.Parker", Pressed)
    message = {"dies": "ended with status 3", "never ready": r"^tritonserver was not ready within 0\.5 s"}.get(how)
    with pytest.raises(KeyboardInterrupt if how == "interrupted" else TritonServerError, match=message):
        bls.serve(repo=samples, environment=made, start_timeout=0.5 if how == "never ready" else 60)
    until(lambda: not list(private.iterdir()), "the folder is removed")


def test_models_that_the_server_cannot_run_are_refused(
    samples: bls.ModelRepository, tmp_path: Path, private: Path
) -> None:
    made = stand_in(tmp_path)
    with pytest.raises(bls.BLSError, match="'nobody' is not loaded"):
        bls.serve("nobody", repo=samples, environment=made)
    (made.server / "backends" / "other").mkdir(parents=True)
    with pytest.raises(bls.BLSError, match=r"'add_sub' needs the backend 'python'; .* has other; put"):
        bls.serve(repo=samples, environment=made)
    samples.define("two words", (SAMPLES / "add_sub/1/model.py").read_text())
    with pytest.raises(bls.BLSError, match=r"'two words': .* splits a name with spaces"):
        bls.serve("two words", repo=samples, environment=made)
    assert not list(private.glob("bls-serve-*"))


@pytest.mark.slow
@linux
@pytest.mark.parametrize("end", ["kill -9", "Ctrl-C"])
def test_a_server_ends_with_its_process(
    end: str, tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(tmp_path, monkeypatch)
    shutil.copytree(SAMPLES / "add_sub", tmp_path / "models" / "add_sub")
    command = [sys.executable, "-m", "bls_notebook", "serve", str(tmp_path / "models"), "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline().decode()
        assert line, process.stderr.read().decode()
        record = json.loads(line)
        log = Path(record["log_file"])
        server, *others = _of_group(log.parent)
        prefix = Path(f"/proc/{server}/cmdline").read_text().partition("prefix-name=")[2].partition("\0")[0]
        assert process.stderr.readline() == b"Ctrl-C stops it.\n"
        process.send_signal(signal.SIGKILL if end == "kill -9" else signal.SIGINT)
        assert process.wait(LIMIT) == (-signal.SIGKILL if end == "kill -9" else 0)
    wait_gone(server, *others)
    assert prefix
    assert not [*private.glob("bls-*"), *Path("/dev/shm").glob(f"{prefix}*")]


def _of_group(run: Path) -> list[int]:
    servers, watchdogs = [], []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.readlink(entry / "cwd") == str(run):
                servers.append(int(entry.name))
            elif entry.name.isdecimal() and b"cat >/dev/null" in (line := (entry / "cmdline").read_bytes()):
                watchdogs += [int(entry.name)] if str(run.parent).encode() in line else []
        except OSError:
            continue
    assert len(servers) == 2
    assert len(watchdogs) == 2
    return [*sorted(servers), *watchdogs]


@pytest.mark.triton
def test_the_real_server_answers_and_replays(samples: bls.ModelRepository, real_environment: ServerEnvironment) -> None:
    config = (SAMPLES / "add_sub" / "config.pbtxt").read_text()
    samples.define(
        "from_a_cell", (SAMPLES / "add_sub" / "1" / "model.py").read_text(), config.replace('name: "add_sub"', "")
    )
    samples.load("bls_sync")
    inputs = {"INPUT0": np.array([3, 4], np.float32), "INPUT1": np.array([1, 2], np.float32)}
    asked = {"MODEL_NAME": np.array([b"from_a_cell"], object), **inputs}
    with bls.record(tensors="all") as recorder:
        here = samples.infer("bls_sync", asked).as_numpy()
    with bls.serve("bls_sync", repo=samples, environment=real_environment) as server:
        again = [
            bls.replay(recorder.recording, only=only, server=server, repo=samples) for only in (None, "from_a_cell")
        ]
        there = server.infer("bls_sync", asked)
        record = server.record
    assert all(each.equal for each in again), again
    assert [each.model for replay in again for each in replay.requests] == ["bls_sync", "from_a_cell"]
    assert here.keys() == {"OUTPUT0", "OUTPUT1"}
    for name, array in here.items():
        np.testing.assert_array_equal(there[name], array)
    assert [(m.name, m.state) for m in record.models] == [("bls_sync", "READY"), ("from_a_cell", "READY")]
    assert "2.51" in render(record).text


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
def test_a_container_serves_and_is_removed(samples: bls.ModelRepository, docker: Path, private: Path) -> None:
    with bls.serve("add_sub", repo=samples, container="registry/triton:1") as server:
        assert isinstance(server.environment, Container)
        name, child = server.environment.name, server.metadata()["child"]
        assert server.record.state == "READY"
        assert server.record.program == f"registry/triton:1, in the container {name}"
        pid = int(Path(f"{docker}{name}").read_text())
        models = server.repository
        ports = server.http_port, server.grpc_port, server.metrics_port
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
def test_a_container_is_removed_if_this_process_is_killed(
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


def test_errors_of_docker_are_reported(
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
