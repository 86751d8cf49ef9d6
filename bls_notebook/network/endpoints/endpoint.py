"""`endpoint`: serves the models of this process to Triton clients.

Guarantees: it listens on loopback only. It has its own thread, so it answers clients while the notebook is busy.
`stop` lets requests in flight finish and cancels those that take too long. After it, every request has been answered,
and no thread, port or shared memory remains.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from bls_notebook.devices import share_one_heap
from bls_notebook.engine import BLSError, Parker
from bls_notebook.extending import Host, Scope, operation, undo
from bls_notebook.network.kserve.address import HOST, Listening
from bls_notebook.network.kserve.shared_memory import Regions
from bls_notebook.network.limits import Limits
from bls_notebook.network.records import EndpointModel, EndpointRecord
from bls_notebook.records import Printable
from bls_notebook.repository import ModelRepository, current_repository

from .admission import Admission
from .header_options import header_options
from .served_models import ServedModels
from .settings import LogSettings, TraceSettings

_GRACE = 1.0  # seconds for responses to be sent, and for requests in flight when Python ends or Ctrl-C ends `stop`
_INSTALL = "pip install 'bls_notebook[network]'"


class Endpoint(Scope, Listening, Printable):
    """Serves models to clients on this machine; a context manager.

    Attributes
    ----------
    repository : ModelRepository
        The repository whose loaded models are served.
    token : str
        The token that clients must send; empty if they need none.
    http_port, grpc_port : int
        Ports on 127.0.0.1.
    """

    def __init__(
        self, models: ServedModels, admission: Admission, token: str, allow_client_shm: bool, exit_timeout_secs: float
    ) -> None:
        self.repository = models.repository
        self.token = token
        self._models, self._admission, self._exit_timeout = models, admission, exit_timeout_secs
        self._regions = Regions(admission.limits.connections, allow_client_shm)
        self._running: _Running | None = None
        self._finalize: Any = None  # stops the servers when the endpoint is collected, or Python ends

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP header with the token, for tritonclient's ``headers=``; empty if no token is needed."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def running(self) -> bool:
        """Return whether the endpoint accepts requests."""
        return self._running is not None and self._running.thread.is_alive()

    @operation
    def stop(self) -> None:
        """Stop the endpoint once its requests in flight have ended. May be called twice.

        New requests are refused meanwhile. After `exit_timeout_secs`, or at Ctrl-C, the rest is cancelled.
        """
        running, self._running = self._running, None
        if running is not None:
            self._finalize.detach()
            try:
                running.stop(_GRACE if self._raised else self._exit_timeout)
            finally:
                self._regions.remove()

    def wait(self) -> None:
        """Wait until the endpoint is stopped."""
        running = self._running
        while running is not None and running.thread.is_alive():
            running.thread.join(0.5)  # with a timeout, so that Ctrl-C works

    def _leave(self) -> None:
        self.stop()

    @property
    def record(self) -> EndpointRecord:
        """The current state of the endpoint, with advice on the last error; a notebook displays it."""
        from bls_notebook.records import advised  # slow import

        is_running, error = self.running, self._admission.last_error
        state = "STOPPED" if not is_running else "CLOSED" if self.repository.closed else "READY"
        models = []
        for row in self.repository.index():
            requests, failed = self._admission.counted(row.name)
            models.append(EndpointModel(row.name, row.version, row.state, row.reason, row.decoupled, requests, failed))
        return EndpointRecord(
            state=state,
            http=self.url,
            grpc=self.grpc_url,
            token=self.token,
            models=tuple(models),
            under_way=self._admission.under_way if is_running else 0,
            error=None if error is None else advised(error, Host(self.repository).known),
        )

    def __repr__(self) -> str:
        return f"<Endpoint {self.record.state} {self.url}>"


class _Running:
    """The thread of a running endpoint, with its event loop and both servers."""

    def __init__(self, endpoint: Endpoint, http: socket.socket, grpc_port: int) -> None:
        self._owner = os.getpid()
        self._loop = asyncio.SelectorEventLoop()  # grpcio's asyncio API needs a selector loop
        self._stopping = asyncio.Event()
        self._ready: threading.Event = threading.Event()
        self._failure: BaseException | None = None
        self._admission, self._regions, self._models = endpoint._admission, endpoint._regions, endpoint._models
        self._deadline = math.inf  # for requests in flight, by `time.monotonic`
        self._over = Parker()
        self._settings = TraceSettings(), LogSettings()
        self._http, self.grpc_port = http, grpc_port
        self.thread = threading.Thread(target=self._run, name="bls-endpoint", daemon=True)
        self.thread.start()
        self._ready.wait()
        if self._failure is not None:
            self.thread.join()
            raise self._failure

    def stop(self, seconds: float = _GRACE) -> None:
        """Stop both servers and the thread after at most so many seconds; does nothing in a forked child."""
        if os.getpid() != self._owner:
            return
        self._begin_stop(seconds)
        if threading.current_thread() is not self.thread:
            try:
                self._over.park()
            except BaseException:  # Ctrl-C
                self._begin_stop(0)
                raise
            finally:
                self.thread.join()

    def _begin_stop(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._loop.call_soon_threadsafe(self._admission.drained.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            self._settings[1].reset()
            self._ready.set()
            self._over.unpark()
            self._http.close()
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self._loop.close()

    async def _serve(self) -> None:
        from bls_notebook.network.kserve.grpc_client import check_process

        from .grpc_service import GrpcService, grpc_server
        from .http_application import HttpApplication
        from .http_server import HttpServer

        check_process()
        parts = (self._models, self._regions, self._admission, self._settings)
        grpc_service = GrpcService(*parts)
        server = grpc_server(grpc_service, self._admission.limits)
        try:
            port = server.add_insecure_port(f"{HOST}:{self.grpc_port}")
        except RuntimeError:
            port = 0
        if not port:
            raise BLSError(f"port {self.grpc_port} for gRPC is in use; choose another, or 0 for a free one")
        self.grpc_port = port
        await server.start()
        http_server = HttpServer(HttpApplication(*parts), self._admission.limits)
        serving = asyncio.ensure_future(http_server.serve(self._http))
        self._ready.set()
        await self._stopping.wait()
        await self._admission.drain(lambda: self._deadline)
        grpc_service.end_streams()
        await asyncio.gather(server.stop(_GRACE), http_server.stop(serving, _GRACE))


def endpoint(
    repo: ModelRepository | None = None,
    *,
    http_port: int = 0,
    grpc_port: int = 0,
    token: str | None = None,
    body_limit: int = 256 << 20,
    http_max_input_size: int = 64 << 20,
    allow_client_shm: bool = False,
    strict_readiness: bool = True,
    exit_timeout_secs: float = 30.0,
    max_requests: int = 1024,
    patience: float = 60.0,
    http_restricted_api: Sequence[str] = (),
    grpc_restricted_protocol: Sequence[str] = (),
    http_header_forward_pattern: str = "",
    grpc_header_forward_pattern: str = "",
) -> Endpoint:
    """Serve the models of this process to Triton clients, over HTTP and gRPC on 127.0.0.1.

    Every client of the KServe v2 protocol can call them: tritonclient, ``perf_analyzer``, curl. The models stay
    in this process: a request runs the version that is loaded when it arrives, so a cell can redefine a model
    meanwhile, and breakpoints work. Requests and responses have Triton's format.

    Parameters
    ----------
    repo : ModelRepository, optional
        Default: `current_repository`.
    http_port, grpc_port : int
        0 for free ones.
    token : str, optional
        The token that each request must send, in the header ``Authorization: Bearer <token>``. Default: a
        random one. Empty: none, so that any program on this machine may call models, and load its own code.
    body_limit : int
        Largest request, in bytes after decompression.
    http_max_input_size : int
        As Triton's option: largest JSON of an HTTP request, or raw or compressed body, in bytes after decompression.
    allow_client_shm : bool
        As Triton's option: whether clients may register shared memory. Servers before 26.04 always allow it.
    strict_readiness : bool
        As Triton's option: whether the server is only ready if each of its models is.
    exit_timeout_secs : float
        As Triton's option: seconds that ``stop()`` waits for requests in flight before it cancels them.
    max_requests : int
        Limit of requests in flight; further ones get an error.
    patience : float
        Seconds that a client may take to send a request.
    http_restricted_api, grpc_restricted_protocol : sequence of str
        As Triton's options of these names: ``"model-repository,shared-memory:admin-key=secret"`` accepts such
        requests only with the header ``admin-key: secret``, over gRPC ``triton-grpc-protocol-admin-key``.
    http_header_forward_pattern, grpc_header_forward_pattern : str
        As Triton's options: headers whose names match the regular expression become parameters of the request.

    Returns
    -------
    Endpoint
        A running endpoint; stop it with ``stop()``, or use it as a context manager.

    Raises
    ------
    BLSError
        A port is in use, an argument is invalid, or a package is missing.

    Examples
    --------
    >>> with bls.endpoint() as endpoint:  # doctest: +SKIP
    ...     client = tritonclient.http.InferenceServerClient(endpoint.url.removeprefix("http://"))
    ...     client.infer("add_sub", inputs, headers=endpoint.headers)
    """
    for package in ("grpc", "starlette", "uvicorn"):
        try:
            __import__(package)
        except ImportError:
            name = "grpcio" if package == "grpc" else package
            raise BLSError(f"the endpoint needs {name}, which is not installed; run: {_INSTALL}") from None
    token = secrets.token_urlsafe(24) if token is None else token
    if not isinstance(token, str) or not re.fullmatch("[!-~]*", token):
        raise BLSError("token: expected ASCII text without spaces, or '' for no token")
    for name, value in (
        ("body_limit", body_limit), ("http_max_input_size", http_max_input_size), ("max_requests", max_requests),
        ("patience", patience),
    ):  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise BLSError(f"{name}: got {value!r}, expected a number above 0")
    if not isinstance(exit_timeout_secs, (int, float)) or not 0 <= exit_timeout_secs < 1e6:
        raise BLSError(f"exit_timeout_secs: got {exit_timeout_secs!r}, expected a number from 0")
    limits = Limits(
        body=int(body_limit), http_input=int(http_max_input_size), requests=int(max_requests), patience=float(patience)
    )
    for name, port in (("http_port", http_port), ("grpc_port", grpc_port)):
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
            raise BLSError(f"{name}: got {port!r}, expected a number from 0 (for a free one) to 65535")
    http = header_options("http", http_restricted_api, http_header_forward_pattern)
    grpc = header_options("grpc", grpc_restricted_protocol, grpc_header_forward_pattern)
    models = ServedModels(repo if repo is not None else current_repository(), strict_readiness)
    served = Endpoint(models, Admission(token, limits, http, grpc), token, allow_client_shm, exit_timeout_secs)
    share_one_heap()  # before a thread starts: or each thread that decodes a large body keeps memory
    return _start(served, http_port, grpc_port)


@operation
def _start(served: Endpoint, http_port: int, grpc_port: int) -> Endpoint:
    listener = _listening(http_port)
    undo(listener.close)
    served.http_port = listener.getsockname()[1]
    served._running = running = _Running(served, listener, grpc_port)
    served.grpc_port = running.grpc_port
    served._finalize = weakref.finalize(served, running.stop)
    undo(served.stop)
    return served


def _listening(port: int) -> socket.socket:
    # IPPROTO_TCP explicitly: else asyncio does not set TCP_NODELAY, and small answers wait for acknowledgements.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise BLSError(f"port {port} for HTTP: {error.strerror}; choose another, or 0 for a free one") from None
    return listener
