"""What is known of a block of memory, and of a request that it passed through, while a track is on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bls_notebook.records.seen import Maker

from .ledger import Key, Place

MOST_STOPS = 1_000  # of a block; of one that comes around more often the first and the last half


@dataclass(eq=False, slots=True)
class Request:
    """One request that was seen; the notebook has none."""

    number: int
    model: str
    version: int
    options: Any
    parent: Request | None
    span: int
    cell: str
    instance: str = ""

    @property
    def maker(self) -> Maker:
        """Its model, as who made a block."""
        name = self.options.request_id if self.options is not None else ""
        return Maker(self.model, self.version, self.instance, self.number, name, self.span, self.cell)


Stop = tuple[int, str, str, str, tuple[int, ...], Request | None, str]


@dataclass(eq=False, slots=True)
class Block:
    """A block of memory, as far as it is known; times are of `perf_counter_ns`, -1 for not yet."""

    id: int
    key: Key
    device: str
    bytes: int
    born: int
    maker: Request | None
    cell: str
    died: int = -1
    kind: str = "allocation"
    tensor: str = ""
    datatype: str = ""
    shape: tuple[int, ...] = ()
    source: int = 0
    how: str = "new"
    transfer_ns: int = 0
    line: Place | None = None
    stays: list[Stop] = field(default_factory=list)

    def stop_at(self, stop: Stop) -> None:
        self.stays.append(stop)
        if len(self.stays) > MOST_STOPS:
            del self.stays[MOST_STOPS // 2]
