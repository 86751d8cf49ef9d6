"""What the inspector found out of a model. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.plain import Record
from bls_notebook.records.repository import ModelRecord
from bls_notebook.records.statistics import StatisticsRecord


@dataclass(frozen=True, slots=True, repr=False)
class Setting(Record):
    """A field of a configuration; ``origin`` is author, model (auto_complete_config), Triton or default."""

    path: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True, repr=False)
class InstanceNow(Record):
    """An instance at one moment; ``state`` is idle, busy or passive.

    Of a busy one, ``seconds`` is since when (None where that is not known), ``sender`` who sent what it runs,
    and ``waits`` the models that it waits for.
    """

    name: str
    device: str = "cpu"
    state: str = "idle"
    seconds: float | None = None
    sender: str = ""
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Held(Record):
    """Memory that a model keeps under a name of its own."""

    name: str
    bytes: int
    what: str = ""
    device: str = "cpu"


@dataclass(frozen=True, slots=True, repr=False)
class ModelView(Record):
    """A model version, as it was when it was looked into.

    ``queued`` is -1 where there is no queue; ``held`` is the largest first, ``held_bytes`` all of it.
    """

    model: ModelRecord
    instances: tuple[InstanceNow, ...] = ()
    queued: int = 0
    statistics: StatisticsRecord | None = None
    held: tuple[Held, ...] = ()
    held_bytes: int = 0
    error: ErrorRecord | None = None
    calls: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    file: str = ""
    source: str = ""
