"""A real tritonserver beside this process.

`TritonServer` runs the server of a `make_environment` on a model repository: it starts, watches and stops the
process. What it can be asked about models is `ModelClient`'s.

What holds: the server listens on loopback only, on free ports; whatever it writes lies in a private temporary
folder, in its environment, or in shared memory under a prefix of its own; and the server, its model processes
and those leftovers are gone when the object is closed or collected, when the interpreter ends, and also when
this process is killed. A `TritonServer` may be used from several threads.

Linux on x86-64 only.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from bls_notebook.network.kserve.address import Address
from bls_notebook.network.kserve.client import ServerError
from bls_notebook.network.kserve.http_client import HttpAnswer, HttpClient, HttpExchange
from bls_notebook.network.kserve.listening import HOST, Listening
from bls_notebook.network.kserve.model_client import InferResult, ModelClient
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

PORT_TAKEN = re.compile(r"already in use|failed to start (HTTP|GRPC|Metrics) service", re.IGNORECASE)


class TritonRequestError(TritonServerError):
    """The server is well and answered a request with an error.

    `status`: HTTP status of the answer.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TritonServer(Listening, ModelClient):
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
        self._client: HttpClient | None = None
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
            self._client = HttpClient(Address("http", HOST, self.http_port))
            self._client.server = "triton"  # so that names are sent as it takes them
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
        run, end, client = self._run, self._end, self._client
        self._run = self._end = self._client = None
        if client is not None:
            client.close()
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
            with contextlib.suppress(ServerError):
                probe = HttpExchange(self.http_client(), "GET", "/v2/health/ready", (), {})
                if probe.answer(5.0, pauses=()).status == 200:
                    return
            time.sleep(0.02)
        late = f"tritonserver was not ready within {self.start_timeout:g} s"
        raise TritonServerError(f"{late}:\n{run.last_lines()}")

    # --- what the client asks for ---

    def http_client(self) -> HttpClient:
        """Return the connection to the server."""
        self._running()
        assert self._client is not None
        return self._client

    def send(
        self,
        method: str,
        path: str,
        body: Sequence[Any] = (),
        headers: Mapping[str, str] | None = None,
        wait: float = 60.0,
    ) -> HttpAnswer:
        """Send an HTTP request and return the answer; TritonServerError if the server gave none."""
        run = self._running()
        try:
            return super().send(method, path, body, headers, wait)
        except ServerError as error:
            if isinstance(error.__cause__, TimeoutError) or "no answer within" in error.lost:
                raise TritonServerError(f"tritonserver did not answer {method} {path} within {wait:g} s") from None
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(2.0)  # the connection may break a little before the process is gone
            if run.process.returncode is None:
                message = f"tritonserver broke off {method} {path}: {error.lost or error}"
            else:
                message = f"tritonserver {run.how_it_ended()} during {method} {path}:\n{run.last_lines()}"
            raise TritonServerError(message) from None

    def refuse(self, message: str, status: int) -> NoReturn:
        """Raise the error for an answer that is an error."""
        raise TritonRequestError(message, status)
