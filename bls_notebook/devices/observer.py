"""Who is told of allocations, transfers and copies: nobody, unless `observer.current` is set.

Guarantees: an observer is called on the thread that did it, after it was done (`freed`: while the memory goes
away, perhaps inside a garbage collection, so that an observer must take no lock there that it may hold
already). What an observer raises is its own fault and is not caught.
"""

from __future__ import annotations

from typing import Any, Protocol

from .device import Device

__all__ = ["Observer", "current"]


class Observer(Protocol):
    """Sees memory come, move and go."""

    def allocated(self, device: Device, memory: Any, size: int) -> None:
        """A simulated GPU gave memory.

        Parameters
        ----------
        device : Device
        memory : SimulatedMemory
            Its ``key`` is unique for as long as the process lives; it may be weakly referenced.
        size : int
            In bytes.
        """

    def freed(self, device: Device, key: int, size: int) -> None:
        """Memory of a simulated GPU is free again; `key` is that of the memory that was allocated.

        It may have been allocated before anybody watched.
        """

    def transferred(self, source: Any, result: Any, from_device: Device, to_device: Device, ns: int) -> None:
        """The engine, or ``.get()`` and ``asarray`` of a simulated array, moved data to another device.

        Parameters
        ----------
        source, result : array
            NumPy, CuPy or simulated arrays.
        ns : int
            How long it took, in nanoseconds.
        """

    def copied(self, source: Any, result: Any, device: Device) -> None:
        """The engine copied an array on its device, because its giver kept it."""


current: Observer | None = None
