"""Records of connections and endpoints: frozen plain data that can be saved as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records import ErrorRecord, ModelRecord, Record


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionRecord(Record):
    """Snapshot of a connection.

    ``state`` is ``CONNECTED``, ``LOST`` (until the server answers again) or ``DISCONNECTED``. ``server`` is the
    server's name and version, as it reports them. ``models`` are its models in the repository. ``names`` are
    pairs of a local name and the name on the server, where these differ. ``reason`` is why it is lost.
    """

    address: str
    state: str
    server: str = ""
    reason: str = ""
    models: tuple[ModelRecord, ...] = ()
    names: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class EndpointModel(Record):
    """A model version that an endpoint serves, and the number of requests from clients to the model so far."""

    name: str
    version: int = 1
    state: str = ""
    reason: str = ""
    decoupled: bool = False
    requests: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class EndpointRecord(Record):
    """Snapshot of an endpoint.

    ``state`` is ``READY``, ``STOPPED``, or ``CLOSED`` if it runs but its repository is closed. ``http`` is its
    URL, ``grpc`` its host and port. ``token`` is the token that clients must send; empty if they need none.
    ``under_way`` is the number of requests in flight, ``error`` the last error that a client received.
    """

    state: str
    http: str = ""
    grpc: str = ""
    token: str = ""
    models: tuple[EndpointModel, ...] = ()
    under_way: int = 0
    error: ErrorRecord | None = None
