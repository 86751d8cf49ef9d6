"""What is known of a block of memory, and of a request that it passed through, while a track is on."""

from __future__ import annotations

from typing import Any

from bls_notebook.observe.records.lives import Maker

from .ledger import Key

__all__ = ["Block", "Request", "Stop"]

MOST_STOPS = 1_000  # of a block; of one that comes around more often the first and the last half


class Request:
    """One request that was seen; the notebook has none."""

    __slots__ = ("cell", "instance", "model", "number", "options", "parent", "span", "version")

    def __init__(
        self,
        number: int,
        model: str,
        version: int,
        options: Any,
        parent: Request | None,
        span: int,
        cell: str,
    ) -> None:
        self.number = number
        self.model = model
        self.version = version
        self.options = options
        self.parent = parent
        self.span = span
        self.cell = cell
        self.instance = ""

    @property
    def maker(self) -> Maker:
        """Its model, as who made a block."""
        name = self.options.request_id if self.options is not None else ""
        return Maker(self.model, self.version, self.instance, self.number, name, self.span, self.cell)


Stop = tuple[int, str, str, str, tuple[int, ...], "Request | None", str]


class Block:
    """A block of memory, as far as it is known; times are of `perf_counter_ns`, -1 for not yet."""

    __slots__ = (
        "born", "bytes", "cell", "datatype", "device", "died", "how", "id", "key", "kind", "maker", "shape",
        "source", "stays", "tensor", "transfer_ns",
    )  # fmt: skip

    def __init__(
        self, number: int, key: Key, device: str, size: int, born: int, maker: Request | None, cell: str
    ) -> None:
        self.id = number
        self.key = key
        self.device = device
        self.bytes = size
        self.born = born
        self.died = -1
        self.maker = maker
        self.cell = cell
        self.kind = "allocation"
        self.tensor = self.datatype = ""
        self.shape: tuple[int, ...] = ()
        self.source = 0
        self.how = "new"
        self.transfer_ns = 0
        self.stays: list[Stop] = []

    def stop_at(self, stop: Stop) -> None:
        """Take note of a stop on its way."""
        self.stays.append(stop)
        if len(self.stays) > MOST_STOPS:
            del self.stays[MOST_STOPS // 2]
