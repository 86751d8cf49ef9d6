"""`Lifetimes`: the lifetimes of memory blocks, with what can be computed from them. Frozen, JSON-able."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.records.base import Record
from bls_notebook.records.raw_events import NOWHERE, CodeLine, Holder, Maker
from bls_notebook.records.record_file import RecordFile

from .lives import Life, Stay


@dataclass(frozen=True, slots=True, repr=False)
class LineBytes(Record):
    """What one line of a model's code has made of some blocks: ``bytes`` in so many ``blocks``.

    An empty ``model`` is the notebook. Where no line made them, ``what`` says why they are there.
    """

    model: str
    line: CodeLine = NOWHERE
    what: str = ""
    bytes: int = 0
    blocks: int = 0
    tensors: tuple[str, ...] = ()


def by_line(lives: Iterable[Life]) -> tuple[LineBytes, ...]:
    """Return what made some blocks, by lines of code; the largest first."""
    found: dict[tuple[str, str, int, str], list[Life]] = {}
    for life in lives:
        if life.bytes:
            key = life.maker.model, life.line.file, life.line.line, _what(life)
            found.setdefault(key, []).append(life)
    lines = [
        LineBytes(
            lives[0].maker.model,
            lives[0].line,
            _what(lives[0]),
            sum(life.bytes for life in lives),
            len(lives),
            tuple(dict.fromkeys(life.tensor for life in lives if life.tensor)),
        )
        for lives in found.values()
    ]
    return tuple(sorted(lines, key=lambda each: (-each.bytes, each.model, each.line.line)))


def _what(life: Life) -> str:
    if life.line.line:
        return ""
    if life.how == "new":
        return "line not known"
    return "inputs moved to it" if life.how == "transfer" else "copies of inputs"


__all__ = [
    "NOWHERE", "SCHEMA", "CodeLine", "DeviceSeen", "Holder", "Life", "Lifetimes", "LifetimesAnalysis",
    "Maker", "MemoryLevel", "Peak", "Stay", "is_left_behind", "load_lifetimes",
]  # fmt: skip

SCHEMA = 1


@dataclass(frozen=True, slots=True, repr=False)
class DeviceSeen(Record):
    """A device during a track; ``total`` is its capacity in bytes, 0 where it is not known.

    ``used`` is what was allocated there by this process when the track began: it is in no life.
    """

    name: str
    simulated: bool = False
    total: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class MemoryLevel(Record):
    """From ``ns`` on, so many ``bytes`` were alive on a device."""

    ns: int
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class Peak(Record):
    """When most bytes were alive on a device, and the lives that they were, the largest first."""

    ns: int = 0
    bytes: int = 0
    lives: tuple[Life, ...] = ()


def is_left_behind(life: Life) -> bool:
    """Whether a request made it and somebody still holds it.

    An array that the notebook made itself and gave as an input is its own affair. What a model allocated on
    a GPU is left behind, also where no request has seen it.
    """
    return life.died < 0 and life.bytes > 0 and bool(life.maker.model or life.how != "new")


def _lives_at(life: Life, ns: int) -> bool:
    """Whether a life has begun and not ended; a moment belongs to what begins in it."""
    return life.died < 0 if ns < 0 else life.born <= ns and (life.died < 0 or ns < life.died)


def _largest_first(lives: Iterable[Life]) -> tuple[Life, ...]:
    return tuple(sorted(lives, key=lambda life: (-life.bytes, life.id)))


class LifetimesAnalysis:
    """What lifetimes answer; for those that have a `Lifetimes` as `record`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def record(self) -> Lifetimes:
            """The lifetimes."""

    def alive(self, ns: int = -1) -> tuple[Life, ...]:
        """Return what was alive at a moment of the track, -1 for its end; the largest first."""
        return _largest_first(life for life in self.record.lives if _lives_at(life, ns))

    def bytes(self, device: str = "", ns: int = -1) -> int:
        """Return how many bytes were alive at a moment of the track, -1 for its end.

        Parameters
        ----------
        device : str
            ``cpu``, ``gpu:0``; all of them by default.
        ns : int
            Nanoseconds since the track began.
        """
        here = (life for life in self.record.lives if device in ("", life.device))
        return sum(life.bytes for life in here if _lives_at(life, ns))

    def levels(self, device: str) -> tuple[MemoryLevel, ...]:
        """Return the bytes alive on a device over time, a step for each change; the first at 0 ns."""
        changes: dict[int, int] = {0: 0}
        for life in self.record.lives:
            if life.device == device and life.bytes and life.died != life.born:
                changes[life.born] = changes.get(life.born, 0) + life.bytes
                if life.died >= 0:
                    changes[life.died] = changes.get(life.died, 0) - life.bytes
        out: list[MemoryLevel] = []
        total = 0
        for ns in sorted(changes):
            total += changes[ns]
            if not out or changes[ns]:
                out.append(MemoryLevel(ns, total))
        return tuple(out)

    def peak(self, device: str) -> Peak:
        """Return when most bytes were alive on a device, and what they were."""
        top = max(self.levels(device), key=lambda level: (level.bytes, -level.ns))
        return Peak(top.ns, top.bytes, tuple(life for life in self.alive(top.ns) if life.device == device))

    def lines(self, device: str) -> tuple[LineBytes, ...]:
        """Return which lines of code made what was alive at the peak of a device, the largest first.

        Parameters
        ----------
        device : str
            ``cpu``, ``gpu:0``.
        """
        return by_line(self.peak(device).lives)

    def left_behind(self) -> tuple[Life, ...]:
        """Return what requests made and somebody still holds, the largest first.

        Arrays that the notebook made itself, and sent, are not among them.
        """
        return _largest_first(filter(is_left_behind, self.record.lives))

    def save(self, path: str | Path) -> Path:
        """Write the lifetimes to a file; what its name ends with says how.

        Parameters
        ----------
        path : str or Path
            ``.pickle`` is a memory snapshot of PyTorch's, for pytorch.org/memory_viz; all else is JSON for
            `bls.load`, compressed where it ends with ``.gz``.

        Returns
        -------
        Path
            Of the file.

        Raises
        ------
        BLSError
            It cannot be written.
        """
        if Path(path).suffix == ".pickle":
            from .memory_viz import save_memory_viz

            return save_memory_viz(self.record.lives, path)
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
