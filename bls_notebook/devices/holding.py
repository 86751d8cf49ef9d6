"""Telling whether anybody else holds an object, by its reference count.

What a count means depends on the version of Python and on the code around it, so each place that
asks is calibrated when it is imported: the same code runs once with an object that its maker keeps
and once with one that it does not.
"""

from __future__ import annotations


class RecordingNumber:
    """Stands in for a reference count while a place is calibrated, and notes what it is compared to.

    Comparing says "held", so that calibrating changes nothing.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            self.seen.append(other)
        return False

    def unheld(self) -> int:
        """Return the count of the object that was not kept (the first); -1 where it cannot be told
        from that of any of the others, which were kept in one way or another.
        """
        unheld, *held = self.seen
        return unheld if held and min(held) > unheld else -1
