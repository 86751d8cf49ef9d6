"""The life of a block of memory: who made it, where it went, and who still holds it. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.observe.records.plain import Record

__all__ = ["DeviceSeen", "Holder", "Life", "Maker", "MemoryLevel", "Peak", "Stay", "is_left_behind"]


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
