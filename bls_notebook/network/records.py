"""Records of connections and endpoints: frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.repository import ModelRecord


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionRecord(Record):
    """A connection, as it was when somebody looked.

    ``state`` is ``CONNECTED``, ``LOST`` (which changes by itself when the server answers again) or
    ``DISCONNECTED``. ``server`` is its name and version, as it says. ``models`` are its models here;
    ``names`` are those that have another name there: here and there. ``reason`` is why it is lost. ``notes``
    say what is otherwise than one may think.
    """

    address: str
    state: str
    server: str = ""
    reason: str = ""
    models: tuple[ModelRecord, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class EndpointModel(Record):
    """A model version behind an endpoint, and how many requests clients sent to the model so far."""

    name: str
    version: int = 1
    state: str = ""
    reason: str = ""
    decoupled: bool = False
    requests: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class EndpointRecord(Record):
    """An endpoint, as it was when somebody looked.

    ``state`` is ``READY``, ``STOPPED``, or ``CLOSED`` where it runs but its repository has been closed.
    ``http`` and ``grpc`` are addresses (host and port); ``token`` is what clients send, empty where they need
    none. ``under_way`` counts requests, ``error`` is what the last one that failed was answered.
    """

    state: str
    http: str = ""
    grpc: str = ""
    token: str = ""
    models: tuple[EndpointModel, ...] = ()
    under_way: int = 0
    error: ErrorRecord | None = None
