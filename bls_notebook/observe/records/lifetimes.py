"""`Lifetimes`: what a memory track recorded, with what can be computed from it. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.observe.analysis import memory_use
from bls_notebook.observe.record_file import RecordFile
from bls_notebook.observe.records.lives import DeviceSeen, Holder, Life, Maker, Stay
from bls_notebook.observe.records.plain import Record

__all__ = [
    "SCHEMA",
    "DeviceSeen",
    "Holder",
    "Life",
    "Lifetimes",
    "LifetimesAnalysis",
    "Maker",
    "Stay",
    "load_lifetimes",
]

SCHEMA = 1


class LifetimesAnalysis:
    """What lifetimes answer; for those that have a `Lifetimes` as `record`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def record(self) -> Lifetimes:
            """The lifetimes."""

    def alive(self, ns: int = -1) -> tuple[Life, ...]:
        """Return what was alive at a moment of the track, -1 for its end; the largest first."""
        return memory_use.alive(self.record.lives, ns)

    def bytes(self, device: str = "", ns: int = -1) -> int:
        """Return how many bytes were alive at a moment of the track, -1 for its end.

        Parameters
        ----------
        device : str
            ``cpu``, ``gpu:0``; all of them by default.
        ns : int
            Nanoseconds since the track began.
        """
        return memory_use.bytes_alive(self.record.lives, device, ns)

    def levels(self, device: str) -> tuple[memory_use.MemoryLevel, ...]:
        """Return the bytes alive on a device over time, a step for each change."""
        return memory_use.levels(self.record.lives, device)

    def peak(self, device: str) -> memory_use.Peak:
        """Return when most bytes were alive on a device, and what they were."""
        return memory_use.peak(self.record.lives, device)

    def left_behind(self) -> tuple[Life, ...]:
        """Return what requests made and somebody still holds, the largest first.

        Arrays that the notebook made itself, and sent, are not among them.
        """
        return memory_use.left_behind(self.record.lives)

    def save(self, path: str | Path) -> Path:
        """Write the lifetimes to a JSON file, for `load_lifetimes`; compressed where it ends with ``.gz``.

        Returns
        -------
        Path
            Of the file.

        Raises
        ------
        BLSError
            It cannot be written.
        """
        return _FILE.save(self.record, path)


@dataclass(frozen=True, slots=True, repr=False)
class Lifetimes(Record, LifetimesAnalysis):
    """Everything that lived while a track was on. Times are nanoseconds since it began.

    ``lives`` are in the order of birth. Beyond the track's limit the oldest that are dead are dropped, and
    where all live, new ones: ``dropped`` counts them, and ``dropped_bytes`` are those of their bytes that
    are still alive.
    """

    lives: tuple[Life, ...] = ()
    devices: tuple[DeviceSeen, ...] = ()
    wall: int = 0
    began: str = ""
    name: str = ""
    dropped: int = 0
    dropped_bytes: int = 0
    schema: int = SCHEMA

    @property
    def record(self) -> Lifetimes:
        """The lifetimes themselves: functions take them, or what has them."""
        return self


_FILE = RecordFile(Lifetimes, "bls_notebook.lifetimes", SCHEMA, "a file of lifetimes", "lifetimes")


def load_lifetimes(path: str | Path) -> Lifetimes:
    """Read lifetimes that were saved.

    Parameters
    ----------
    path : str or Path
        Of a file that `save` has written.

    Returns
    -------
    Lifetimes

    Raises
    ------
    BLSError
        The file cannot be read, holds something else, or was written by a newer version; the message says
        which.
    """
    return _FILE.load(path)
