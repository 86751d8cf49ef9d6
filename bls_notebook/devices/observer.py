"""Who is told of allocations, transfers and copies: nobody, unless `observer.current` is set.

Guarantees: an observer is called on the thread that did it, after it was done (`freed`: while the memory
goes away, perhaps inside a garbage collection, so that an observer must take no lock there that it may hold
already). What an observer raises is its own fault and is not caught.
"""

from __future__ import annotations

from typing import Any

current: Any = None  # an `allocation_log.Recording`, or what has its `allocated`, `freed` and `moved`


def moved(how: str, source: Any, result: Any, ns: int = 0) -> None:
    """Tell the observer, if there is one, that an array was moved, or copied on its device.

    `how` is ``transfer`` to another device, by the engine or by ``.get()`` and ``asarray`` of a simulated
    array, in `ns` nanoseconds; or ``copy`` by the engine, because its giver kept it.
    """
    watching = current
    if watching is not None:
        watching.moved(how, source, result, ns)
