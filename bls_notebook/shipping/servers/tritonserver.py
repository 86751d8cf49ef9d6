"""A real tritonserver beside this process.

`TritonServer` runs the server of a `make_environment` on a model repository and talks to it over HTTP.

What holds: the server listens on loopback only, on free ports; whatever it writes lies in a private temporary
folder, in its environment, or in shared memory under a prefix of its own; and the server, its model processes
and those leftovers are gone when the object is closed or collected, when the interpreter ends, and also when
this process is killed. A `TritonServer` may be used from several threads.

Linux on x86-64 only.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import subprocess
import time
import urllib.parse
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy.typing as npt

from bls_notebook.network.connection.address import PLAIN
from bls_notebook.network.kserve.listening import HOST, Listening
from bls_notebook.network.kserve.rest import InferResult, decode_response, encode_request
from bls_notebook.pb_utils import Tensor
from bls_notebook.records.progress import progress

from .environment import (
    Program,
    ServerEnvironment,
    TritonServerError,
    default_environment_folder,
    is_supported,
    make_environment,
)
from .server_process import ModelProcess, ServerRun, free_ports, model_processes

__all__ = [
    "InferResult",
    "ModelProcess",
    "ServerEnvironment",
    "TritonRequestError",
    "TritonServer",
    "TritonServerError",
    "default_environment_folder",
    "is_supported",
    "make_environment",
]

START, END = 1, 2  # sequence flags of a request, as in pb_utils
PORT_TAKEN = re.compile(r"already in use|failed to start (HTTP|GRPC|Metrics) service", re.IGNORECASE)


class TritonRequestError(TritonServerError):
    """The server is well and answered a request with an error.

    `status`: HTTP status of the answer.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TritonServer(Listening):
    """A tritonserver of one's own, started by `start` or by ``with``.

    Parameters
    ----------
    *repositories : path
        Model repositories. The server writes ``__pycache__`` folders into them.
    environment : Program, optional
        A ServerEnvironment, InstalledServer or Container. Default: ``make_environment()``.
    load : sequence of str
        Models to load at the start (``model_control="explicit"``); ``"*"`` means all.
    model_control : str
        ``"explicit"`` (models load and unload on request), ``"none"`` (all load at the start) or ``"poll"``.
    options : sequence of str
        More options of tritonserver, as ``"--cache-config=local,size=1048576"``.
    start_timeout : float
        Seconds that starting may take, loading of the models included.

    Attributes
    ----------
    http_port, grpc_port, metrics_port : int
        Ports on 127.0.0.1, once started.

    Examples
    --------
    >>> with TritonServer("model_repository", load=["add_sub"]) as server:  # doctest: +SKIP
    ...     server.infer("add_sub", {"INPUT0": a, "INPUT1": b})["OUTPUT0"]
    """

    def __init__(
        self,
        *repositories: str | os.PathLike[str],
        environment: Program | None = None,
        load: Sequence[str] = (),
        model_control: str = "explicit",
        options: Sequence[str] = (),
        start_timeout: float = 120.0,
    ) -> None:
        if not repositories:
            raise TritonServerError("no model repository given; tritonserver needs one at least")
        self.repositories = tuple(Path(item).absolute() for item in repositories)
        for folder in self.repositories:
            if not folder.is_dir():
                raise TritonServerError(f"model repository {folder} is not a folder")
        self.environment = environment
        self.load_at_start = tuple(load)
        self.model_control = model_control
        self.options = tuple(options)
        self.start_timeout = start_timeout
        self.http_port = self.grpc_port = self.metrics_port = 0
        self._last_log = ""
        self._run: ServerRun | None = None
        self._end: weakref.finalize[Any, Any] | None = None

    # --- life ---

    def start(self) -> TritonServer:
        """Start the server and wait until it is ready; one that ran before keeps its ports, if they are free.

        Raises
        ------
        TritonServerError
            It ended or did not get ready in time; the message has the last lines of its log.
        """
        if self._run is not None:
            raise TritonServerError("tritonserver has been started already; stop it first")
        if self.environment is None:
            self.environment = make_environment()
        for attempt in range(3):
            if attempt or not self.http_port:
                self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
            self._run = ServerRun(self.environment, self._arguments())
            self._end = weakref.finalize(self, self._run.end, graceful=False)
            try:
                with progress("starting tritonserver"):
                    self._wait_ready()
                return self
            except BaseException as error:
                taken = isinstance(error, TritonServerError) and PORT_TAKEN.search(self._run.log())
                self._end_run(graceful=False)
                if not taken or attempt == 2:  # another program may take a port between the look and its use
                    raise
        raise AssertionError("unreachable")

    def stop(self, graceful: bool = True) -> None:
        """Stop the server and remove what it left. Nothing happens where it does not run.

        Parameters
        ----------
        graceful : bool
            Let the models finalize (1 to 3 seconds); else kill at once.
        """
        self._end_run(graceful)

    def _end_run(self, graceful: bool) -> None:
        run, end = self._run, self._end
        self._run = self._end = None
        if end is not None:
            end.detach()
        if run is not None:
            try:
                run.end(graceful)
            finally:
                self._last_log = run.log()

    def __enter__(self) -> TritonServer:
        """Start the server."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; kill it where the body ended with an error."""
        self.stop(graceful=kind is None)

    @property
    def pid(self) -> int | None:
        """Process number of the server; None where it does not run."""
        return self._run.process.pid if self._run and self._run.process.poll() is None else None

    def log(self) -> str:
        """All that the server and its models have written so far, or wrote in the run that was stopped."""
        return self._run.log() if self._run else self._last_log

    def processes(self) -> list[ModelProcess]:
        """The processes of the Python models that are loaded, a row an instance."""
        return model_processes(self._running().process.pid)

    # --- models ---

    def load(
        self,
        name: str,
        config: str | Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
        wait: float = 120.0,
    ) -> None:
        """Load or reload a model.

        Parameters
        ----------
        name : str
        config : str or mapping, optional
            Overrides config.pbtxt. JSON text, or what it says.
        files : mapping of str to bytes, optional
            The model's files by path (``"1/model.py"``), instead of those on disk. Needs `config`.
        wait : float
            Seconds to wait for the answer.
        """
        parameters: dict[str, str] = {}
        if config is not None:
            parameters["config"] = config if isinstance(config, str) else json.dumps(config)
        for path, content in (files or {}).items():
            parameters[f"file:{path.removeprefix('file:')}"] = base64.b64encode(content).decode()
        self._json("POST", f"/v2/repository/models/{_quote(name)}/load", {"parameters": parameters}, wait)

    def unload(self, name: str, unload_dependents: bool = False, wait: float = 120.0) -> None:
        """Unload a model. The answer may come before the model is gone: see `index`."""
        body = {"parameters": {"unload_dependents": unload_dependents}}
        self._json("POST", f"/v2/repository/models/{_quote(name)}/unload", body, wait)

    def ready(self, name: str | None = None, version: int | None = None) -> bool:
        """Whether the server, or a model of it, is ready."""
        path = "/v2/health/ready" if name is None else f"{_path(name, version)}/ready"
        return self._request("GET", path)[0] == 200

    def index(self) -> list[dict[str, str]]:
        """The repository index: name, version, state, reason."""
        rows: list[dict[str, str]] = self._json("POST", "/v2/repository/index")
        return rows

    def config(self, name: str, version: int | None = None) -> dict[str, Any]:
        """A model's completed configuration."""
        return dict(self._json("GET", f"{_path(name, version)}/config"))

    def statistics(self, name: str, version: int | None = None) -> dict[str, Any]:
        """A model's statistics."""
        return dict(self._json("GET", f"{_path(name, version)}/stats"))

    def metadata(self) -> dict[str, Any]:
        """The server's name, version and extensions."""
        return dict(self._json("GET", "/v2"))

    def infer(
        self,
        name: str,
        inputs: Mapping[str, npt.ArrayLike | Tensor],
        outputs: Sequence[str] | None = None,
        version: int = -1,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, str | int | bool] | None = None,
        wait: float = 60.0,
    ) -> InferResult:
        """Send one request and return the answer. Not for decoupled models, which HTTP cannot serve.

        The parameters are those of `ModelRepository.infer`, and beside them `wait`, the seconds to wait.

        Raises
        ------
        TritonRequestError
            The answer is an error.
        TritonServerError
            No answer in time, or the server died.
        """
        extra: dict[str, Any] = dict(parameters or {})
        if timeout:
            extra["timeout"] = timeout
        if correlation_id:
            extra["sequence_id"] = correlation_id
            extra["sequence_start"], extra["sequence_end"] = bool(flags & START), bool(flags & END)
        body, length = encode_request(inputs, outputs, request_id, extra)
        headers = {"Inference-Header-Content-Length": str(length), "Content-Type": "application/octet-stream"}
        path = f"{_path(name, None if version == -1 else version)}/infer"
        status, answer, got = self._request("POST", path, body, headers, wait)
        if status != 200:
            _refuse(status, answer)
        text = got.get("inference-header-content-length")
        return decode_response(answer, None if text is None else int(text))

    # --- inside ---

    def _running(self) -> ServerRun:
        if self._run is None:
            raise TritonServerError("tritonserver does not run; start it first")
        return self._run

    def _arguments(self) -> list[str]:
        arguments = [f"--model-repository={folder}" for folder in self.repositories]
        for what in ("http", "grpc", "metrics"):
            port = getattr(self, f"{what}_port")
            arguments += [f"--{what}-address={HOST}", f"--{what}-port={port}"]
        arguments += [f"--model-control-mode={self.model_control}"]
        arguments += [f"--load-model={name}" for name in self.load_at_start]
        return [*arguments, *self.options]

    def _wait_ready(self) -> None:
        run, deadline = self._running(), time.monotonic() + self.start_timeout
        while time.monotonic() < deadline:
            if run.process.poll() is not None:
                ended = run.how_it_ended()
                raise TritonServerError(f"tritonserver {ended} while starting:\n{run.last_lines()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._exchange("GET", "/v2/health/ready", b"", {}, 5.0)[0] == 200:
                    return
            time.sleep(0.02)
        late = f"tritonserver was not ready within {self.start_timeout:g} s"
        raise TritonServerError(f"{late}:\n{run.last_lines()}")

    def _json(self, method: str, path: str, body: object = None, wait: float = 60.0) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        status, answer, _ = self._request(method, path, data, {}, wait)
        if status != 200:
            _refuse(status, answer)
        return json.loads(answer) if answer else None

    def _request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        wait: float = 60.0,
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        run = self._running()
        try:
            return self._exchange(method, path, body, headers or {}, wait)
        except TimeoutError:
            message = f"tritonserver did not answer {method} {path} within {wait:g} s"
            raise TritonServerError(message) from None
        except (OSError, http.client.HTTPException) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(2.0)  # the connection may break a little before the process is gone
            if run.process.returncode is None:
                message = f"tritonserver broke off {method} {path}: {type(error).__name__}: {error}"
            else:
                message = f"tritonserver {run.how_it_ended()} during {method} {path}:\n{run.last_lines()}"
            raise TritonServerError(message) from None

    def _exchange(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], wait: float
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=wait)
        try:
            connection.request(method, path, body or None, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()


def _quote(name: str) -> str:
    return urllib.parse.quote(name, safe=f"%{PLAIN}")


def _path(name: str, version: int | None) -> str:
    return f"/v2/models/{_quote(name)}" + ("" if version is None else f"/versions/{version}")


def _refuse(status: int, answer: bytes) -> NoReturn:
    try:
        message = json.loads(answer)["error"]
    except (ValueError, KeyError, TypeError):
        message = answer[:500].decode(errors="replace") or f"HTTP status {status}"
    raise TritonRequestError(message, status)
