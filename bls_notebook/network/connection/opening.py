"""`RemoteServer`: a server that models are at, whose link is opened when it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from bls_notebook.backends.errors import BackendError

from .address import Address
from .link import Link, RemoteError

_GONE_SECONDS = 2.0
_EXTRA = "pip install 'bls_notebook[network]'"


def open_link(address: Address) -> Link:
    """Return a link, of which nothing is sent yet; the libraries are imported when the first is opened.

    Raises BackendError: grpcio is not installed; or a certificate cannot be read.
    """
    try:
        if address.scheme in ("http", "https"):
            from bls_notebook.network.kserve.http_client import HttpLink

            return HttpLink(address)
        from .grpc_link import GrpcLink

        return GrpcLink(address)
    except ModuleNotFoundError as error:
        raise BackendError(
            f"{address}: gRPC needs grpcio, which is not installed ({error}); {_EXTRA}"
        ) from error
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
        self._link: Link | None = None

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
        except RemoteError:
            return True
        return self.lost != ""

    def take(self) -> Link:
        """Return the link, to be released by who takes it; BackendError where it cannot be opened."""
        with self._lock:
            if self._link is None or self._link.closed:
                self._link = open_link(self.address)
                self._link.when_changed = self.when_changed
            self._link.take()
            return self._link


@dataclass(frozen=True)
class RemoteModel:
    """Where a model is: the server, and its name there."""

    server: RemoteServer
    name: str
