"""A recorder of allocations and moves in plain lists."""

from __future__ import annotations

from typing import Any

from bls_notebook.devices import allocation_log
from bls_notebook.devices.registry import device_of


class Book(allocation_log.AllocationRecorder):
    """Keeps allocations and moves in plain lists."""

    def __init__(self) -> None:
        super().__init__(1 << 30, list)
        self.alive: dict[int, tuple[str, int]] = {}
        self.events: list[tuple[Any, ...]] = []

    def allocated(self, device: str, number: int, size: int) -> None:
        assert number < 0
        assert number not in self.alive
        self.alive[number] = (device, size)

    def freed(self, device: str, number: int, size: int) -> None:
        assert self.alive.pop(number, (device, size)) == (device, size)

    def paired(self, before: Any, after: Any) -> None:
        """The copies were recorded when they were made."""

    def moved(self, how: str, source: Any, result: Any, ns: int = 0) -> None:
        assert ns >= 0
        assert source.nbytes == result.nbytes
        devices = device_of(source).name, device_of(result).name
        if how == "copy":
            assert devices[0] == devices[1]
            devices = devices[:1]  # type: ignore[assignment]
        self.events.append((how, *devices, result.nbytes))
