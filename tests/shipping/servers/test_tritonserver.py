"""Start, failure and end of a server process, with a fake tritonserver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bls_notebook.shipping.servers.server_programs import TritonServerError
from bls_notebook.shipping.servers.tritonserver import TritonRequestError, TritonServer
from tests.shipping.fake_tritonserver import leftovers, linux, stand_in, wait_gone


def server_of(folder: Path, behaviour: str = "", **options: Any) -> TritonServer:
    (folder / "models").mkdir(exist_ok=True)
    return TritonServer(folder / "models", environment=stand_in(folder, behaviour), **options)


@linux
@pytest.mark.parametrize("behaviour", ["", "stubborn"])
def test_stopping_leaves_nothing(tmp_path: Path, behaviour: str) -> None:
    server = server_of(tmp_path, behaviour)
    with server:
        assert server.ready()
        pid, child = server.pid, server.metadata()["child"]
        paths = leftovers(server)
        assert len(paths) == 2
        assert all(path.exists() for path in paths)
        if behaviour:
            server.stop(graceful=False)
    assert pid is not None
    wait_gone(pid, child)
    assert not any(path.exists() for path in paths)
    assert server.pid is None
    server.stop()  # a second time does nothing


@linux
def test_a_collected_server_is_stopped(tmp_path: Path) -> None:
    server = server_of(tmp_path).start()
    pid, child, paths = server.pid, server.metadata()["child"], leftovers(server)
    assert pid is not None
    del server
    wait_gone(pid, child)
    assert not any(path.exists() for path in paths)


@linux
def test_a_forked_child_leaves_the_server_alone(tmp_path: Path) -> None:
    with server_of(tmp_path) as server:
        run = server._run
        real, run.owner = run.owner, run.owner + 1  # as it looks from a child
        run.end(graceful=False)
        run.owner = real
        assert server.ready()


@linux
def test_the_error_of_a_failed_start_has_the_log(tmp_path: Path) -> None:
    server = server_of(tmp_path, "dies")
    with pytest.raises(TritonServerError) as caught:
        server.start()
    first, *rest = str(caught.value).splitlines()
    assert first == "tritonserver ended with status 3 while starting:"
    assert rest == ['  E1201 00:00:00 1 y.cc:2] "failed to load m: bad config"']
    assert server.pid is None
    assert "fine so far" in server.log()  # all of it can still be read


@linux
def test_a_taken_port_is_replaced(tmp_path: Path) -> None:
    with server_of(tmp_path, "port taken") as server:
        assert server.ready()
    assert (tmp_path / "flag").exists()


@pytest.mark.slow
@linux
def test_errors_of_a_running_server(tmp_path: Path) -> None:
    with server_of(tmp_path) as server:
        with pytest.raises(TritonRequestError, match=r"^no /v2/repository/models/a%2F\.\./load$") as caught:
            server.load("a/..")
        assert caught.value.status == 400
        with pytest.raises(TritonRequestError, match="<html>not json</html>"):
            server.infer("html", {})
        with pytest.raises(TritonServerError, match=r"did not answer POST /v2/models/hang/infer within 0\.2 s"):
            server.infer("hang", {}, wait=0.2)
        with pytest.raises(TritonServerError, match="broke off POST /v2/models/break/infer"):
            server.infer("break", {})
        assert server.ready()
        with pytest.raises(TritonServerError, match=r"^tritonserver died of SIGKILL during POST .*/kill/infer"):
            server.infer("kill", {})
        assert server.pid is None
        with pytest.raises(TritonServerError, match="died of SIGKILL"):
            server.ready()
    with pytest.raises(TritonServerError, match="does not run; start it first"):
        server.infer("m", {})


@linux
def test_a_tritonserver_starts_once_at_a_time(tmp_path: Path) -> None:
    with server_of(tmp_path) as server:
        with pytest.raises(TritonServerError, match="runs already"):
            server.start()
        first = server.pid
    with server:
        assert server.pid != first


def test_the_repository_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(TritonServerError, match=r"model repository .*nowhere is not a folder"):
        TritonServer(tmp_path / "nowhere")


@linux
def test_a_server_that_cannot_run_is_named(tmp_path: Path) -> None:
    made = stand_in(tmp_path)
    (made.server / "bin" / "tritonserver").unlink()
    with pytest.raises(TritonServerError, match=r"cannot start .*tritonserver: No such file"):
        TritonServer(tmp_path, environment=made).start()
