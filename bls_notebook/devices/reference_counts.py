"""Tell by the reference count whether another object refers to an object. See `holders` for who does."""

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
