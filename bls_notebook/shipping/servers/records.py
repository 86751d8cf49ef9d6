"""A tritonserver that serves an export: frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record


@dataclass(frozen=True, slots=True, repr=False)
class ServedModel(Record):
    """A model on the server: its versions, state and why, in the server's words; and what it calls."""

    name: str
    versions: tuple[int, ...] = (1,)
    state: str = ""
    reason: str = ""
    backend: str = ""
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ServerRecord(Record):
    """A tritonserver beside the notebook, as it was when somebody looked.

    ``state`` is ``READY``, ``NOT READY``, ``STOPPED`` or ``ENDED`` (by itself). ``program`` says which server
    it is; ``http``, ``grpc`` and ``metrics`` are addresses (host and port). ``log_file`` is there while it
    runs; ``log`` are the last lines of it. ``seconds`` is what starting took, all in all. ``notes`` say what
    is otherwise than in the notebook.
    """

    state: str
    program: str = ""
    version: str = ""
    http: str = ""
    grpc: str = ""
    metrics: str = ""
    models: tuple[ServedModel, ...] = ()
    log_file: str = ""
    log: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
