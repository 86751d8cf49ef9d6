"""A repository at one moment: what each model does just now, and how full the devices are."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.devices import DeviceRecord
from bls_notebook.records.plain import Record


@dataclass(frozen=True, slots=True, repr=False)
class ModelNow(Record):
    """One version of a model at one moment.

    ``state`` and ``reason`` are those of `ModelRecord` (``stub: why`` where one answers); ``busy`` of its
    ``instances`` run something, ``queue`` requests wait for one. ``answered`` and ``failed`` count requests
    since it was loaded, ``rate`` and ``errors`` are the same a second, lately. ``p50`` and ``p99`` are of the
    latencies (ns) of the requests that were answered since the look before, None where there were none.
    """

    name: str
    version: int = 1
    state: str = "READY"
    reason: str = ""
    instances: int = 0
    busy: int = 0
    queue: int = 0
    answered: int = 0
    failed: int = 0
    rate: float = 0.0
    errors: float = 0.0
    p50: int | None = None
    p99: int | None = None

    @property
    def in_use(self) -> bool:
        """Whether it serves, is about to, or could not: not merely a folder that nobody has loaded."""
        return self.state != "UNAVAILABLE" or self.reason not in ("not loaded", "unloaded", "")


@dataclass(frozen=True, slots=True, repr=False)
class WatchRecord(Record):
    """A repository at a moment, ``at`` seconds since 1970; ``place`` says where it is."""

    at: float
    place: str = ""
    models: tuple[ModelNow, ...] = ()
    devices: tuple[DeviceRecord, ...] = ()
    closed: bool = False
