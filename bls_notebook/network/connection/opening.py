"""`RemoteServer`: a server that models are at, whose link is opened when it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bls_notebook.backends.errors import BackendError
from bls_notebook.engine.errors import ModelLoadError
from bls_notebook.engine.waiting.ctrl_c import may_be_interrupted
from bls_notebook.network.kserve.address import Address
from bls_notebook.network.kserve.client import Client, ServerError
from bls_notebook.network.kserve.metadata import config_of_metadata
from bls_notebook.repository.config import ModelConfigMessage, model_config_class, parse_json
from bls_notebook.repository.source.model_source import RemoteVersions

from .instance import RemoteInstance

_GONE_SECONDS = 2.0
_EXTRA = "pip install 'bls_notebook[network]'"


def open_link(address: Address) -> Client:
    """Return a link, of which nothing is sent yet; the libraries are imported when the first is opened.

    Raises BackendError: grpcio is not installed; or a certificate cannot be read.
    """
    try:
        if address.scheme in ("http", "https"):
            from bls_notebook.network.kserve.http_client import HttpClient

            return HttpClient(address)
        from bls_notebook.network.kserve.grpc_client import GrpcClient

        return GrpcClient(address)
    except ModuleNotFoundError as error:
        raise BackendError(f"{address}: gRPC needs grpcio, which is not installed ({error}); {_EXTRA}") from error
    except (OSError, ValueError) as error:  # of files of TLS
        raise BackendError(f"{address}: {error}") from error


class RemoteServer:
    """A server that models are at.

    `when_changed`: called, on a thread of the link's, when the server was lost, and when it answers again.
    """

    def __init__(self, address: Address, when_changed: Callable[[], None] | None = None) -> None:
        self.address = address
        self.when_changed = when_changed
        self._lock = threading.Lock()
        self._link: Client | None = None

    @property
    def lost(self) -> str:
        """Why the server does not answer, while it does not."""
        link = self._link
        return "" if link is None else link.lost

    @property
    def connected(self) -> bool:
        """Whether anybody uses the link."""
        link = self._link
        return link is not None and not link.closed

    def is_gone(self) -> bool:
        """Whether it does not answer now; it is asked where nobody knows."""
        link = self._link
        try:
            if link is not None and not link.lost:
                link.live(_GONE_SECONDS)
        except ServerError:
            return True
        return self.lost != ""

    def take(self) -> Client:
        """Return the link, to be released by who takes it; BackendError where it cannot be opened."""
        with self._lock:
            if self._link is None or self._link.closed:
                self._link = open_link(self.address)
                self._link.when_changed = self.when_changed
            self._link.take()
            return self._link


def take_link(server: RemoteServer) -> Client:
    """Return the link of a server, to be released. Ctrl-C ends its waits.

    Raises
    ------
    BackendError
        It cannot be opened.
    """
    link = server.take()
    for function in link.waits:
        may_be_interrupted(function.__code__, waits=True)
    return link


@dataclass(frozen=True)
class ServerModel:
    """A model of a server; see `RemoteModel`.

    ``name`` is its name there.
    """

    server: RemoteServer
    name: str

    @property
    def address(self) -> str:
        """The server's URL."""
        return str(self.server.address)

    def is_gone(self) -> bool:
        """Whether the server does not answer now."""
        return self.server.is_gone()

    @contextmanager
    def described(self, name: str) -> Iterator[RemoteVersions]:
        """Ask the server for the model's configuration and versions; `name` is its name here."""
        try:
            link = take_link(self.server)
        except BackendError as error:
            raise ModelLoadError(f"model {name!r}: {error}", name) from error
        try:
            metadata = link.metadata(self.name, "")
            config = _config(link.config(self.name, ""), metadata, self.name)
            ready = metadata["versions"]
            numbers = sorted(int(v) for v in ready if v.isascii() and v.isdigit() and int(v) > 0) or [1]
            # The newest is asked for without its number, so that one which takes its place there is found.
            asked = {number: "" if number == numbers[-1] else str(number) for number in numbers}
            yield RemoteVersions(config, {n: partial(RemoteInstance, link, self.name, asked[n]) for n in numbers})
        except ServerError as error:
            where = "" if error.lost else f"{link.address}: "
            raise ModelLoadError(f"model {name!r} at {where}{error}", name) from error
        finally:
            link.release()


def _config(given: Any, metadata: Any, name: str) -> ModelConfigMessage:
    if isinstance(given, bytes):
        return model_config_class().FromString(given)
    document = config_of_metadata(name, metadata) if given is None else given
    return parse_json(document, model=name, source="the server's configuration", newer=True)
