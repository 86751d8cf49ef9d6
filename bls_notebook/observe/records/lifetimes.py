"""What a memory track recorded: the life of every block of memory. Frozen, JSON-able, never drawn here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.observe.records.plain import Record

if TYPE_CHECKING:
    from bls_notebook.observe.analysis.memory_use import Level, Peak

__all__ = ["SCHEMA", "DeviceSeen", "Holder", "Life", "Lifetimes", "Lived", "Maker", "Stay"]

SCHEMA = 1


@dataclass(frozen=True, slots=True, repr=False)
class Maker(Record):
    """Who made a block of memory, or had it; an empty ``model`` is the notebook.

    The engine's copy of an input belongs to the model that received it, its copy of an output to the model
    that gave it.

    ``request`` numbers the requests of the track from 1, 0 for none; ``span`` is the id of the request's
    span where a profile was on too; ``cell`` is the notebook's cell, ``In [3]``.
    """

    model: str = ""
    version: int = 0
    instance: str = ""
    request: int = 0
    request_id: str = ""
    span: int = 0
    cell: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Stay(Record):
    """One stop of a block on its way: as which tensor it came to whom, and when.

    ``role`` is input (a model's input), output (a response that its requester got) or view (it was exported
    by DLPack). ``shape`` may be that of a part of the block.
    """

    ns: int
    role: str
    tensor: str
    datatype: str = ""
    shape: tuple[int, ...] = ()
    at: Maker = Maker()


@dataclass(frozen=True, slots=True, repr=False)
class Holder(Record):
    """Why a block was still alive when the track ended.

    ``kind`` is variable (of the notebook: ``name`` is its name), attribute (of a model: the path
    ``leaky.kept[3]``), response, request, iterator, capsule, view, frame, or unknown; ``remedy`` is what
    to type to let go, where that is known.
    """

    kind: str
    name: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Life(Record):
    """One block of memory: born, perhaps copied or moved from another, handed on, and dead.

    ``kind`` is tensor (it passed through a request) or allocation (a block of a GPU's pool that no request
    has seen). ``source`` is the ``id`` of the block that it is a copy of, 0 for none, and ``how`` says why:
    new, copy (the giver kept its own) or transfer (to another device; it took ``transfer_ns``). ``died``
    is -1 while it lives. ``tensor`` is the first name that it had.
    """

    id: int
    device: str
    bytes: int
    born: int
    died: int = -1
    kind: str = "tensor"
    tensor: str = ""
    datatype: str = ""
    shape: tuple[int, ...] = ()
    maker: Maker = Maker()
    source: int = 0
    how: str = "new"
    transfer_ns: int = 0
    stays: tuple[Stay, ...] = ()
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class DeviceSeen(Record):
    """A device during a track; ``total`` is its capacity in bytes, 0 where it is not known.

    ``used`` is what was allocated there by this process when the track began: it is in no life.
    """

    name: str
    simulated: bool = False
    total: int = 0
    used: int = 0


class Lived:
    """What lifetimes answer; for those that have a `Lifetimes` as `record`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def record(self) -> Lifetimes:
            """The lifetimes."""

    def alive(self, ns: int = -1) -> tuple[Life, ...]:
        """Return what was alive at a moment of the track, -1 for its end; the largest first."""
        from bls_notebook.observe.analysis.memory_use import alive

        return alive(self.record, ns)

    def bytes(self, device: str = "", ns: int = -1) -> int:
        """Return how many bytes were alive at a moment of the track, -1 for its end.

        Parameters
        ----------
        device : str
            ``cpu``, ``gpu:0``; all of them by default.
        ns : int
            Nanoseconds since the track began.
        """
        from bls_notebook.observe.analysis.memory_use import bytes_alive

        return bytes_alive(self.record, device, ns)

    def levels(self, device: str) -> tuple[Level, ...]:
        """Return the bytes alive on a device over time, a step for each change."""
        from bls_notebook.observe.analysis.memory_use import levels

        return levels(self.record, device)

    def peak(self, device: str) -> Peak:
        """Return when most bytes were alive on a device, and what they were."""
        from bls_notebook.observe.analysis.memory_use import peak

        return peak(self.record, device)

    def left_behind(self) -> tuple[Life, ...]:
        """Return what requests made and somebody still holds, the largest first.

        Arrays that the notebook made itself, and sent, are not among them.
        """
        from bls_notebook.observe.analysis.memory_use import left_behind

        return left_behind(self.record)

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
        from bls_notebook.observe.lifetimes_file import save_lifetimes

        return save_lifetimes(self.record, path)


@dataclass(frozen=True, slots=True, repr=False)
class Lifetimes(Record, Lived):
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
