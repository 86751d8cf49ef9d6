"""`RemoteInstance`: what the engine has of a model that a server elsewhere runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from bls_notebook.backends.remote import Exchange
from bls_notebook.network.kserve.client import Client, ServerError
from bls_notebook.pb_utils.request import InferenceRequest

READY_SECONDS = 2.0

log = logging.getLogger("bls_notebook")


class UnsendableError(ValueError):
    """A request that cannot be sent as the server wants it; the text is one line."""


class RemoteInstance:
    """A model version at a server; it runs nothing here, and takes any number of requests at a time.

    `name`: the model's name at the server. `version`: that is asked for there; empty for the one that the
    server takes by itself.
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
        """Return a request that is ready to be sent.

        Raises ValueError: it cannot be sent as the server wants it.
        """
        all_outputs = request._requested == self._all_outputs
        return self._exchange(self.name, self.version, request, all_outputs)

    def _no_streams(self, *_: object) -> Exchange:
        host = self.link.address.host
        raise UnsendableError(
            f"model '{self.name}' is decoupled, and streams are not sent over HTTP; connect to the server's "
            f"gRPC port: grpc://{host}:8001"
        )

    def statistics(self) -> list[dict[str, Any]]:
        """Return the server's statistics of its versions; nothing where it gives none."""
        if self.link.lost:
            return []
        try:
            return list(self.link.statistics(self.name, self.version, READY_SECONDS).get("model_stats", ()))
        except (ServerError, AttributeError, TypeError):  # or what answers is no Triton
            return []

    def execute(self, requests: list[InferenceRequest]) -> Any:
        """Never called: requests go through `send`."""
        raise NotImplementedError

    def finalize(self) -> None:
        """Let go of the connection."""
        self.link.release()

    def ready(self) -> bool:
        """Whether the server says so."""
        try:
            return self.link.ready(self.name, self.version, READY_SECONDS)
        except ServerError as error:
            log.debug("%s", error)
            return False
