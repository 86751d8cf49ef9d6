"""Who is told of allocations, transfers and copies: nobody, unless `observer.current` is set.

Guarantees: an observer is called on the thread that did it, after it was done (`freed`: while the memory goes
away, perhaps inside a garbage collection, so that an observer must take no lock there that it may hold
already). What an observer raises is its own fault and is not caught.
"""

from __future__ import annotations

from typing import Any, Protocol


class Observer(Protocol):
    """Sees memory come, move and go."""

    def allocated(self, device: str, number: int, size: int) -> None:
        """A GPU gave memory of that many bytes; `number` is its address, below 0 on a simulated GPU.

        A simulated GPU gives no number a second time.
        """

    def freed(self, device: str, number: int, size: int) -> None:
        """Memory of a GPU is free again. It may have been allocated before anybody watched."""

    def moved(self, how: str, source: Any, result: Any, ns: int) -> None:
        """An array (NumPy's, CuPy's or a simulated one) was moved, or copied on its device.

        Parameters
        ----------
        how : str
            ``transfer`` to another device, by the engine or by ``.get()`` and ``asarray`` of a simulated
            array; ``copy`` by the engine, because its giver kept it.
        source, result : array
        ns : int
            How long a transfer took, in nanoseconds.
        """


current: Observer | None = None


def moved(how: str, source: Any, result: Any, ns: int = 0) -> None:
    """Tell the observer, if there is one."""
    watching = current
    if watching is not None:
        watching.moved(how, source, result, ns)
