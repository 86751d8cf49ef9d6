"""A connection to a server whose models are called from here: frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record
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
