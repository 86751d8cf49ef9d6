"""The interface of a model on a remote server, as the engine uses it; a connection implements it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .protocol import BackendInstance

REPORT_SECONDS = 10.0  # until a wait for an answer is reported
Deliver = Callable[[list[InferenceResponse], bool], None]  # in a list, so that nobody else holds it
InThread = Callable[[Callable[[], None]], None]


class Exchange(Protocol):
    """One request to a server, and its answers; `run` or `start` is called, once."""

    def run(self) -> InferenceResponse:
        """Send it, and wait for the answer on this thread; `cancel` ends that, and so does Ctrl-C."""

    def start(self, deliver: Deliver, in_thread: InThread) -> None:
        """Send it; `deliver` is called with each response, on any thread, the last with True."""

    def cancel(self, lost: str = "") -> None:
        """Give up: what waits for it ends soon. Where the server is `lost`, that is why."""


class RemoteConnection(Protocol):
    """A connection to a server, shared by its models."""

    address: Any  # `str` gives the URL
    lost: str  # why the server does not answer; empty while it does
    closed: bool
    report_waits: list[Callable[[], None]]  # called every few seconds while a request waits, without a lock

    def all_statistics(self, seconds: float) -> list[dict[str, Any]]:
        """Return the server's statistics of its models, in Triton's JSON; empty if it gives none in time."""


class RemoteBackend(BackendInstance, Protocol):
    """One version of a model on a server."""

    @property
    def link(self) -> RemoteConnection:
        """The connection."""

    def send(self, request: InferenceRequest) -> Exchange:
        """Return a request that is ready to be sent; ValueError if the server cannot take it."""
