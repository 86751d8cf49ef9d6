"""Starts, calls, watches and stops a real tritonserver on this machine.

Guarantees: the server listens on free ports of loopback only. It writes only to a private temporary folder, to its
environment, and to shared memory with a private prefix. The server, its model processes and these files are removed
when the object is closed or collected, when the interpreter ends, and also when this process is killed. A
`TritonServer` may be used from several threads.

Linux on x86-64 only.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bls_notebook.engine import Parker
from bls_notebook.extending import Scope, operation, undo
from bls_notebook.network.kserve.address import HOST, Address, Listening
from bls_notebook.network.kserve.client import ServerError
from bls_notebook.network.kserve.http_client import HttpAnswer, HttpClient, HttpExchange, error_text
from bls_notebook.network.kserve.json_codec import JSON_LENGTH, decode_outputs, encode_request
from bls_notebook.network.limits import INFER_BYTES
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.dtypes import Array, from_bits
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.progress import progress
from bls_notebook.repository import client_parameters, tensors_of

from .server_programs import Program, TritonServerError, make_environment, wait_for_end

# Shell scripts that wait for the end of their input: the kernel closes it when this process ends, for any reason.
# The folder is removed several times, because processes that end with this one may still write into it.
_FOLDER_WATCHDOG = 'cat >/dev/null; for i in 1 2 3 4 5 6 7 8; do rm -rf -- "$1" && break; sleep 0.5; done'


class PrivateFolder:
    """A temporary folder; removed by `remove`, when the object is collected, and when this process is killed.

    ``made`` is its time of creation (`time.monotonic`).
    """

    def __init__(self, prefix: str) -> None:
        self.made = time.monotonic()
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self.watchdog = _watched(_FOLDER_WATCHDOG, str(self.path))
        self.remove = weakref.finalize(self, _remove, os.getpid(), self.path, self.watchdog)


def _watched(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    none = subprocess.DEVNULL
    command = ["/bin/sh", "-c", script, "sh", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=none, stderr=none, start_new_session=True)


def _remove(owner: int, path: Path, watchdog: subprocess.Popen[bytes]) -> None:
    if os.getpid() != owner:  # a forked child must not remove the folder
        return
    shutil.rmtree(path, ignore_errors=True)
    watchdog.kill()
    watchdog.communicate()


_NOISE = re.compile(r"NVML|CudaDriverHelper|DCGM|pinned")  # logged on every machine without a GPU
_TROUBLE = re.compile(r"E\d{4} |error|\w*(Error|Exception): ")
_SERVER_WATCHDOG = 'cat >/dev/null; kill -s KILL -- "-$1"; rm -rf -- "$2" "/dev/shm/$3"*; shift 3; "$@"'
_CLEANUP_SECONDS = 60.0
_GRACE = 30.0  # seconds for the models to finalize


class ServerRun:
    """One run of the server: its processes, log, shared memory and private folder."""

    def __init__(self, environment: Program, arguments: Sequence[str]) -> None:
        self.owner = os.getpid()
        self.kept_log: str | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="bls-tritonserver-"))
        self.shared_memory = f"bls_{secrets.token_hex(6)}_"
        shared = f"--backend-config=python,shm-region-prefix-name={self.shared_memory}"
        command = environment.command([shared, *arguments])
        self.cleanup = environment.cleanup
        try:
            with open(self.folder / "log", "wb") as log:
                self.process = subprocess.Popen(
                    command, env=environment.variables(), cwd=self.folder, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise TritonServerError(f"cannot start {command[0]}: {error.strerror}") from None
        ends = [str(self.process.pid), str(self.folder), self.shared_memory]
        self.watchdog = _watched(_SERVER_WATCHDOG, *ends, *self.cleanup)

    def end(self, graceful: bool) -> None:
        """Stop all processes and remove their files; `log` still works afterwards."""
        if os.getpid() != self.owner:  # a forked child must not stop the server
            return
        try:
            if graceful and self.process.poll() is None:
                self.process.terminate()
                wait_for_end(self.process, _GRACE)
        finally:  # also after Ctrl-C during the wait
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.cleanup:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(self.cleanup, capture_output=True, timeout=_CLEANUP_SECONDS, check=False)
        self.watchdog.kill()
        self.watchdog.communicate()
        for leftover in glob.glob(f"/dev/shm/{self.shared_memory}*"):
            with contextlib.suppress(OSError):
                os.unlink(leftover)
        if self.kept_log is None:
            self.kept_log = self.log()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """Return the output of the server and its models so far."""
        if self.kept_log is not None:
            return self.kept_log
        try:
            return (self.folder / "log").read_text(errors="replace")
        except OSError:  # the system may clean temporary folders
            return ""

    def last_lines(self) -> str:
        """Return the last lines of the log that report errors; without such lines, the last lines."""
        lines = [line for line in self.log().splitlines() if line.strip() and not _NOISE.search(line)]
        errors = [line for line in lines if _TROUBLE.match(line)]
        return "\n".join(f"  {line[:500]}" for line in (errors or lines)[-6:])

    def how_it_ended(self) -> str:
        """Return the exit status or signal as text."""
        status = self.process.returncode
        if status is not None and status < 0:
            return f"died of {signal.Signals(-status).name}"
        return f"ended with status {status}"


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind((HOST, 0))
        return [item.getsockname()[1] for item in sockets]


_PORT_TAKEN = re.compile(r"already in use|failed to start (HTTP|GRPC|Metrics) service", re.IGNORECASE)


class TritonRequestError(TritonServerError):
    """The server answered a request with an error.

    `status`: the HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class InferResult:
    """A response of the server: model, version, request ID, outputs and parameters.

    ``outputs`` are writeable arrays by name: for ``BYTES`` of `bytes` objects, for ``BF16`` of float32.
    """

    model: str
    version: str
    request_id: str
    outputs: dict[str, Array]
    parameters: dict[str, Any]

    def __getitem__(self, name: str) -> Array:
        """Return the output of this name."""
        return self.outputs[name]

    def as_numpy(self) -> dict[str, Array]:
        """Return the outputs by name."""
        return dict(self.outputs)


class TritonServer(Scope, Listening):
    """A tritonserver that this process starts with `start` or ``with``.

    Parameters
    ----------
    repository : path
        The model repository. The server writes ``__pycache__`` folders into it.
    environment : Program, optional
        A ServerEnvironment, InstalledServer or Container. Default: ``make_environment()``.
    load : sequence of str
        Models to load at the start; ``"*"`` means all. Load others with `load`.
    options : sequence of str
        Additional options of tritonserver, such as ``"--cache-config=local,size=1048576"``.
    start_timeout : float
        Timeout of the start in seconds, including the loading of models.

    Attributes
    ----------
    http_port, grpc_port, metrics_port : int
        Ports on 127.0.0.1; 0 before the first start.

    Examples
    --------
    >>> with TritonServer("model_repository", load=["add_sub"]) as server:  # doctest: +SKIP
    ...     server.infer("add_sub", {"INPUT0": a, "INPUT1": b})["OUTPUT0"]
    """

    def __init__(
        self, repository: str | os.PathLike[str], *, environment: Program | None = None, load: Sequence[str] = (),
        options: Sequence[str] = (), start_timeout: float = 120.0,
    ) -> None:  # fmt: skip
        self.repository = Path(repository).absolute()
        if not self.repository.is_dir():
            raise TritonServerError(f"model repository {self.repository} is not a folder")
        self.environment = environment
        self.load_at_start = tuple(load)
        self.options = tuple(options)
        self.start_timeout = start_timeout
        self.http_port = self.grpc_port = self.metrics_port = 0
        self._last_log = ""
        self._run: ServerRun | None = None
        self._client: HttpClient | None = None
        self._end: weakref.finalize[Any, Any] | None = None

    @operation
    def start(self) -> TritonServer:
        """Start the server and wait until it is ready; a stopped one starts again, on the same ports if they are free.

        Raises
        ------
        TritonServerError
            The server ended or was not ready in time; the message has the last lines of its log.
        """
        if self._run is not None:
            raise TritonServerError("tritonserver runs already; stop it first")
        if self.environment is None:
            self.environment = make_environment()
        undo(partial(TritonServer.stop, self, graceful=False))  # not a subclass's `stop`, which removes more
        for attempt in range(3):
            if attempt or not self.http_port:
                self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
            self._run = ServerRun(self.environment, self._arguments())
            self._client = HttpClient(Address("http", HOST, self.http_port))
            self._client.server = "triton"  # so that the client quotes model names as Triton expects
            self._end = weakref.finalize(self, self._run.end, graceful=False)
            try:
                with progress("starting tritonserver"):
                    self._wait_ready()
                break
            except TritonServerError:
                if attempt == 2 or not _PORT_TAKEN.search(self._run.log()):
                    raise
                TritonServer.stop(self, graceful=False)  # another program may take a free port first
        return self

    @operation
    def stop(self, graceful: bool = True) -> None:
        """Stop the server and remove its files; does nothing if it does not run.

        Parameters
        ----------
        graceful : bool
            Let the models finalize (1 to 3 seconds); otherwise kill the server at once.
        """
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

    def _enter(self) -> None:
        self.start()

    def _leave(self) -> None:
        self.stop(graceful=not self._raised)

    @property
    def pid(self) -> int | None:
        """Process ID of the server; None if it does not run."""
        return self._run.process.pid if self._run and self._run.process.poll() is None else None

    def log(self) -> str:
        """Return the output of the server and its models in the current run, or else in the last one."""
        return self._run.log() if self._run else self._last_log

    def _http_client(self) -> HttpClient:
        self._running()
        assert self._client is not None
        return self._client

    def send(
        self, method: str, path: str, body: Sequence[Any] = (), headers: Mapping[str, str] | None = None,
        wait: float = 60.0,
    ) -> HttpAnswer:  # fmt: skip
        """Send an HTTP request and return the answer with any status; TritonServerError if there is none.

        `wait`, here and below: timeout in seconds.
        """
        run = self._running()
        try:
            return HttpExchange(self._http_client(), method, path, body, headers or {}, INFER_BYTES).answer(wait)
        except ServerError as error:
            if isinstance(error.__cause__, TimeoutError) or "no answer within" in error.lost:
                raise TritonServerError(f"tritonserver did not answer {method} {path} within {wait:g} s") from None
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(2.0)  # the connection may break shortly before the process ends
            if run.process.returncode is None:
                message = f"tritonserver broke off {method} {path}: {error.lost or error}"
            else:
                message = f"tritonserver {run.how_it_ended()} during {method} {path}:\n{run.last_lines()}"
            raise TritonServerError(message) from None

    def load(
        self, name: str, config: str | Mapping[str, Any] | None = None, files: Mapping[str, bytes] | None = None,
        wait: float = 120.0,
    ) -> None:  # fmt: skip
        """Load or reload a model.

        `config` replaces config.pbtxt: JSON text, or a mapping. `files` are the model's files by path
        (``"1/model.py"``) and replace the files on disk; they need `config`.
        """
        contents = {path.removeprefix("file:"): content for path, content in (files or {}).items()}
        parameters = {f"file:{path}": base64.b64encode(content).decode() for path, content in contents.items()}
        if config is not None:
            parameters["config"] = config if isinstance(config, str) else json.dumps(config)
        self._json("POST", f"{self._repository_path(name)}/load", {"parameters": parameters}, wait)

    def unload(self, name: str, wait: float = 120.0) -> None:
        """Unload a model. The server may answer before the model is unloaded: see `index`."""
        self._json("POST", f"{self._repository_path(name)}/unload", {}, wait)

    def ready(self, name: str | None = None, version: int | None = None) -> bool:
        """Return whether the server is ready, or one of its models."""
        path = "/v2/health/ready" if name is None else f"{self._path(name, version)}/ready"
        return self.send("GET", path).status == 200

    def index(self, wait: float = 60.0) -> list[dict[str, str]]:
        """Return the repository index: name, version, state and reason of each version."""
        rows: list[dict[str, str]] = self._json("POST", "/v2/repository/index", wait=wait)
        return rows

    def config(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Return a model's completed configuration."""
        return dict(self._json("GET", f"{self._path(name, version)}/config"))

    def statistics(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Return a model's statistics."""
        return dict(self._json("GET", f"{self._path(name, version)}/stats"))

    def metadata(self) -> dict[str, Any]:
        """Return the server's name, version and extensions."""
        return dict(self._json("GET", "/v2"))

    def infer(
        self, name: str, inputs: Mapping[str, npt.ArrayLike | Tensor], outputs: Sequence[str] | None = None,
        version: int = -1, timeout: int = 0, request_id: str = "", correlation_id: int | str = 0, flags: int = 0,
        parameters: Mapping[str, str | int | bool] | None = None, headers: Mapping[str, str] | None = None,
        wait: float = 60.0,
    ) -> InferResult:  # fmt: skip
        """Send one request and return the response. Decoupled models need gRPC.

        The parameters are the same as in `ModelRepository.infer`; `headers` are HTTP headers. BLSError: an
        array's dtype has no Triton data type.
        """
        tensors = tensors_of(name, {key: _native(value) for key, value in inputs.items()}, None)
        request = InferenceRequest(
            request_id, correlation_id, tensors, list(outputs or ()), name, version, flags, timeout
        )
        parameters_json, priority = client_parameters(parameters or {})
        request._options = replace(request._options, parameters=parameters_json, priority=priority)
        parts = encode_request(request, outputs is None, binary=True)
        all_headers = {**(headers or {}), JSON_LENGTH: str(len(parts[0])), "Content-Type": "application/octet-stream"}
        path = f"{self._path(name, None if version == -1 else version)}/infer"
        answer = self.send("POST", path, parts, all_headers, wait)
        if answer.status != 200:
            raise TritonRequestError(error_text(answer), answer.status)
        return decode_result(answer.body, answer.headers.get(JSON_LENGTH.lower()))

    def _running(self) -> ServerRun:
        if self._run is None:
            raise TritonServerError("tritonserver does not run; start it first")
        return self._run

    def _arguments(self) -> list[str]:
        arguments = [f"--model-repository={self.repository}"]
        for service in ("http", "grpc", "metrics"):
            port = getattr(self, f"{service}_port")
            arguments += [f"--{service}-address={HOST}", f"--{service}-port={port}"]
        loaded = [f"--load-model={name}" for name in self.load_at_start]
        return [*arguments, "--model-control-mode=explicit", *loaded, *self.options]

    def _wait_ready(self) -> None:
        run, deadline = self._running(), time.monotonic() + self.start_timeout
        while time.monotonic() < deadline:
            if run.process.poll() is not None:
                raise TritonServerError(f"tritonserver {run.how_it_ended()} while starting:\n{run.last_lines()}")
            with contextlib.suppress(ServerError):
                probe = HttpExchange(self._http_client(), "GET", "/v2/health/ready", (), {})
                if probe.answer(5.0, pauses=()).status == 200:
                    return
            Parker().park(0.02)
        message = f"tritonserver was not ready within {self.start_timeout:g} s"
        raise TritonServerError(f"{message}:\n{run.last_lines()}")

    def _path(self, name: str, version: int | None) -> str:
        return self._http_client().model_path(name, "" if version is None else str(version))

    def _repository_path(self, name: str) -> str:
        return f"/v2/repository{self._path(name, None).removeprefix('/v2')}"

    def _json(self, method: str, path: str, body: object = None, wait: float = 60.0) -> Any:
        answer = self.send(method, path, () if body is None else (json.dumps(body).encode(),), None, wait)
        if answer.status != 200:
            raise TritonRequestError(error_text(answer), answer.status)
        return json.loads(answer.body) if answer.body else None


def _native(value: Any) -> Any:
    """Return an array in the byte order of this machine, as `Tensor` needs it; other values unchanged."""
    is_swapped = isinstance(value, np.ndarray) and not value.dtype.isnative
    return value.astype(value.dtype.newbyteorder("=")) if is_swapped else value


def decode_result(body: bytes, length: str | None) -> InferResult:
    """Return the response in a body; `length` is the value of the header `JSON_LENGTH`, or None."""
    document, tensors = decode_outputs(body, length)
    arrays = {t._name: from_bits(t._array) if t._datatype == "BF16" else t._array for t in tensors}
    model, version, request_id = (document.get(key, "") for key in ("model_name", "model_version", "id"))
    return InferResult(model, version, request_id, arrays, document.get("parameters") or {})
