"""`endpoint`: the models of this process for clients of a Triton server.

Guarantees: it listens on loopback only; it runs in a thread of its own, so that clients are answered while
the notebook is busy; once stopped, no thread, port or shared memory is left, and every request has an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
import threading
import weakref
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.network.kserve.address import HOST, Listening
from bls_notebook.network.kserve.shared_memory import Regions
from bls_notebook.network.records import EndpointModel, EndpointRecord
from bls_notebook.repository.repository import ModelRepository, current_repository

from .admission import Admission, Limits
from .served_models import ServedModels

_GRACE = 1.0  # seconds that requests under way have when it is stopped
_INSTALL = "pip install 'bls_notebook[network]'"


class Endpoint(Listening):
    """Serves models to clients on this machine; a context manager.

    Attributes
    ----------
    repository : ModelRepository
        Whose models are served, as they are at each moment.
    token : str
        The token that clients have to send; empty for none.
    http_port, grpc_port : int
        Ports on 127.0.0.1.
    """

    def __init__(self, repository: ModelRepository, token: str, limits: Limits) -> None:
        self.repository = repository
        self.token = token
        self._admission = Admission(token, limits)
        self._regions = Regions()
        self._running: _Running | None = None
        self._finalize: Any = None  # stops it when it is collected, or Python ends

    @property
    def headers(self) -> dict[str, str]:
        """What tritonclient takes as ``headers=``: the token; empty where none is needed."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def running(self) -> bool:
        """Whether it accepts requests."""
        return self._running is not None and self._running.thread.is_alive()

    def stop(self) -> None:
        """Stop: requests under way are cancelled after a second. May be called twice."""
        running, self._running = self._running, None
        if running is not None:
            self._finalize.detach()
            running.stop()
            self._regions.unregister()

    def wait(self) -> None:
        """Wait until it is stopped."""
        running = self._running
        while running is not None and running.thread.is_alive():
            running.thread.join(0.5)  # Ctrl-C works between the waits

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def record(self) -> EndpointRecord:
        """The state of the endpoint now, with advice on the last error; what a notebook shows."""
        from bls_notebook.records.advice import advised  # first needed here

        up, error = self.running, self._admission.last_error
        state = "STOPPED" if not up else "CLOSED" if self.repository.closed else "READY"
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
            under_way=self._admission.under_way if up else 0,
            error=None if error is None else advised(error, Host(self.repository).known),
        )

    def __repr__(self) -> str:
        return f"<Endpoint {self.record.state} {self.url}>"


class _Running:
    """The thread of an endpoint, with its event loop and both servers."""

    def __init__(self, made: Endpoint, http: socket.socket, grpc_port: int) -> None:
        self._owner = os.getpid()
        self._loop = asyncio.SelectorEventLoop()  # gRPC needs this kind
        self._stopping = asyncio.Event()
        self._ready: threading.Event = threading.Event()
        self._failure: BaseException | None = None
        self._admission, self._regions = made._admission, made._regions
        self._models = ServedModels(made.repository)
        self._http, self.grpc_port = http, grpc_port
        self.thread = threading.Thread(target=self._run, name="bls-endpoint", daemon=True)
        self.thread.start()
        self._ready.wait()
        if self._failure is not None:
            self.thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop both servers and the thread; a forked child leaves them alone."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stopping.set)
        if threading.current_thread() is not self.thread:
            self.thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            self._ready.set()
            self._http.close()
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self._loop.close()

    async def _serve(self) -> None:
        from .grpc_service import GrpcService, grpc_server
        from .http_application import HttpApplication
        from .http_server import HttpServer

        parts = (self._models, self._regions, self._admission)
        server = grpc_server(GrpcService(*parts), self._admission.limits)
        try:
            found = server.add_insecure_port(f"{HOST}:{self.grpc_port}")
        except RuntimeError:
            found = 0
        if not found:
            raise BLSError(f"port {self.grpc_port} for gRPC is taken; give another, or 0 for a free one")
        self.grpc_port = found
        await server.start()
        front = HttpServer(HttpApplication(*parts), self._admission.limits)
        serving = asyncio.ensure_future(front.serve(self._http))
        self._ready.set()
        await self._stopping.wait()
        await asyncio.gather(server.stop(_GRACE), front.stop(serving, _GRACE))


def endpoint(
    repo: ModelRepository | None = None,
    *,
    http_port: int = 0,
    grpc_port: int = 0,
    token: str | None = None,
    body_limit: int = 256 << 20,
    max_requests: int = 1024,
    patience: float = 60.0,
) -> Endpoint:
    """Answer clients of a Triton server with the models of this process, which stay where they are.

    Any client of the KServe v2 protocol can ask them, over HTTP and gRPC, on 127.0.0.1 alone: those of
    tritonclient, ``perf_analyzer``, curl. Each request goes to the model as it is at that moment, so a cell
    can be run again meanwhile; breakpoints in the model stop it. Requests and responses are as Triton's.

    Parameters
    ----------
    repo : ModelRepository, optional
        Default: `current_repository`.
    http_port, grpc_port : int
        0 for free ones.
    token : str, optional
        What each request has to send, as the header ``Authorization: Bearer <token>``. Default: one made at
        random. Empty: none, so that any program here may ask, and load models with code of its own.
    body_limit : int
        Bytes of a request, unpacked.
    max_requests : int
        How many may be under way at once; more are answered with an error.
    patience : float
        Seconds that a client may take to send a request.

    Returns
    -------
    Endpoint
        It runs; stop it by ``stop()``, or use it as a context manager.

    Raises
    ------
    BLSError
        A port is taken, or a package is missing.

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
            raise BLSError(f"the endpoint needs {name}; install it with: {_INSTALL}") from None
    token = secrets.token_urlsafe(24) if token is None else token
    if not isinstance(token, str) or not re.fullmatch("[!-~]*", token):
        raise BLSError("token: expected ASCII text without spaces, or '' for none")
    for name, value in (("body_limit", body_limit), ("max_requests", max_requests), ("patience", patience)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise BLSError(f"{name}: got {value!r}, expected a number above 0")
    limits = Limits(body=int(body_limit), requests=int(max_requests), patience=float(patience))
    for name, port in (("http_port", http_port), ("grpc_port", grpc_port)):
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
            raise BLSError(f"{name}: got {port!r}, expected a number from 0 (for a free one) to 65535")
    made = Endpoint(repo if repo is not None else current_repository(), token, limits)
    http = _listening(http_port)
    made.http_port = http.getsockname()[1]
    made._running = running = _Running(made, http, grpc_port)
    made.grpc_port = running.grpc_port
    made._finalize = weakref.finalize(made, running.stop)
    return made


def _listening(port: int) -> socket.socket:
    # The protocol by name, or asyncio does not know that it is TCP, and answers wait for acknowledgements.
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        made.listen(2048)
        made.setblocking(False)
    except BaseException as error:
        made.close()
        if not isinstance(error, OSError):
            raise
        raise BLSError(f"port {port} for HTTP: {error.strerror}; give another, or 0 for a free one") from None
    return made
