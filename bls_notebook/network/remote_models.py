"""Models of a remote server: their configurations, and the engine's proxies for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bls_notebook.backends import BackendError, Exchange
from bls_notebook.engine import ModelLoadError
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.repository.config import parse_json
from bls_notebook.repository.source import RemoteVersions

from .kserve.address import Address
from .kserve.client import Client, ServerError

_GONE_SECONDS = _READY_SECONDS = 2.0
_EXTRA = "pip install 'bls_notebook[network]'"

log = logging.getLogger("bls_notebook")


def open_link(address: Address) -> Client:
    """Return a client that has sent nothing yet; imports its libraries.

    Raises BackendError: grpcio is not installed, or a certificate cannot be read.
    """
    try:
        if address.scheme in ("http", "https"):
            from .kserve.http_client import HttpClient

            return HttpClient(address)
        from .kserve.grpc_client import GrpcClient

        return GrpcClient(address)
    except ModuleNotFoundError as error:
        raise BackendError(f"{address}: gRPC needs grpcio, which is not installed ({error}); {_EXTRA}") from error
    except (OSError, ValueError) as error:  # the TLS files
        raise BackendError(f"{address}: {error}") from error


class RemoteServer:
    """A remote server; connects at the first `take`.

    `when_changed`: called on a thread of the connection when the server stops answering, and when it answers again.
    """

    def __init__(self, address: Address, when_changed: Callable[[], None] | None = None) -> None:
        self.address = address
        self.when_changed = when_changed
        self._lock = threading.Lock()
        self._link: Client | None = None

    @property
    def lost(self) -> str:
        """Why the server does not answer; empty while it does."""
        link = self._link
        return "" if link is None else link.lost

    @property
    def connected(self) -> bool:
        link = self._link
        return link is not None and not link.closed

    def is_gone(self) -> bool:
        """Return whether the server does not answer; probes it unless it is already known to be lost."""
        link = self._link
        try:
            if link is not None and not link.lost:
                link.live(_GONE_SECONDS)
        except ServerError:
            return True
        return self.lost != ""

    def take(self) -> Client:
        """Return the connection, which the caller must release; BackendError if it cannot be opened."""
        with self._lock:
            if self._link is None or self._link.closed:
                self._link = open_link(self.address)
                self._link.when_changed = self.when_changed
            self._link.take()
            return self._link


@dataclass(frozen=True)
class ServerModel:
    """A model of a server, for the repository (`RemoteModel`); `name` is its name on the server."""

    server: RemoteServer
    name: str

    @property
    def address(self) -> str:
        return str(self.server.address)

    def is_gone(self) -> bool:
        """Return whether the server does not answer now."""
        return self.server.is_gone()

    @contextmanager
    def described(self, name: str) -> Iterator[RemoteVersions]:
        """Yield the model's configuration and versions, queried from the server; `name` is its local name."""
        try:
            link = self.server.take()
        except BackendError as error:
            raise ModelLoadError(f"model {name!r}: {error}", name) from error
        try:
            metadata = link.metadata(self.name, "")
            document = link.config(self.name, "") or _config_of_metadata(self.name, metadata)
            config = parse_json(document, model=self.name, source="the server's configuration", newer=True)
            numbers = sorted(int(v) for v in metadata["versions"] if v.isascii() and v.isdigit() and int(v) > 0) or [1]
            # The newest version is requested without its number, so that a newer one replaces it.
            versions = {number: "" if number == numbers[-1] else str(number) for number in numbers}
            yield RemoteVersions(config, {n: partial(RemoteInstance, link, self.name, versions[n]) for n in numbers})
        except ServerError as error:
            where = "" if error.lost else f"{link.address}: "
            raise ModelLoadError(f"model {name!r} at {where}{error}", name) from error
        finally:
            link.release()


def _config_of_metadata(name: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration, as JSON, for a model whose server has only its metadata.

    Metadata lacks two facts: whether the first dimension is the batch, so the model does not batch here and
    keeps all dimensions; and whether an input is optional, so all inputs are optional here.
    """

    def tensors(kind: str, **fields: Any) -> list[dict[str, Any]]:
        types = [f"TYPE_{row['datatype'].replace('BYTES', 'STRING')}" for row in metadata[kind]]
        rows = zip(metadata[kind], types, strict=True)
        return [
            {"name": row["name"], "data_type": data_type, "dims": row["shape"], **fields} for row, data_type in rows
        ]

    inputs, outputs = tensors("inputs", optional=True), tensors("outputs")
    return {"name": name, "platform": metadata["platform"], "input": inputs, "output": outputs}


class UnsendableError(ValueError):
    """The protocol cannot carry a request; the message is one line."""


class RemoteInstance:
    """The engine's proxy for a model version on a server; accepts any number of requests at a time.

    `name`: the model's name on the server. `version`: the requested version; empty for the server's default.
    """

    is_async = False
    asks_ready = True

    def __init__(self, link: Client, name: str, version: str, decoupled: bool, all_outputs: tuple[str, ...]) -> None:
        self.link = link
        self.name = name
        self.version = version
        self._all_outputs = all_outputs
        self._exchange: Callable[..., Exchange] = link.exchange
        if decoupled:
            self._exchange = getattr(link, "streamed", self._no_streams)
        link.take()

    def send(self, request: InferenceRequest) -> Exchange:
        """Return an exchange that is ready to be sent; ValueError if the protocol cannot carry the request."""
        return self._exchange(self.name, self.version, request, request._requested == self._all_outputs)

    def _no_streams(self, *_: object) -> Exchange:
        raise UnsendableError(
            f"model '{self.name}' is decoupled, and HTTP cannot carry its streams; connect to the server's "
            f"gRPC port: grpc://{self.link.address.host}:8001"
        )

    def statistics(self) -> list[dict[str, Any]]:
        """Return the server's statistics of the model's versions; empty if there are none."""
        return [] if self.link.lost else self.link.statistics(self.name, self.version, _READY_SECONDS)

    def execute(self, requests: list[InferenceRequest]) -> Any:
        """Never called: the engine uses `send`."""
        raise NotImplementedError

    def finalize(self) -> None:
        self.link.release()

    def ready(self) -> bool:
        """Return whether the server reports the model as ready."""
        try:
            answer = self.link.query("ready", self.name, self.version, _READY_SECONDS)
        except ServerError as error:
            log.debug("%s", error)
            return False
        return answer.get("ready") is not False  # over HTTP the answer has no body
