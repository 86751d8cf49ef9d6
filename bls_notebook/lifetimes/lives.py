"""The life of a block of memory: where it was made, who had it when, who holds it."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record
from bls_notebook.records.raw_events import NOBODY, NOWHERE, CodeLine, Holder, Maker


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
    at: Maker = NOBODY


@dataclass(frozen=True, slots=True, repr=False)
class Life(Record):
    """One block of memory: born, perhaps copied or moved from another, handed on, and dead.

    ``kind`` is tensor (it passed through a request) or allocation (a block of a GPU's pool that no request
    has seen). ``source`` is the ``id`` of the block that it is a copy of, 0 for none, and ``how`` says why:
    new, copy (the giver kept its own) or transfer (to another device; it took ``transfer_ns``). ``died``
    is -1 while it lives. ``tensor`` is the first name that it had. ``line`` is where in its maker's code it
    was made: nowhere for the engine's copy of an input.
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
    maker: Maker = NOBODY
    source: int = 0
    how: str = "new"
    transfer_ns: int = 0
    stays: tuple[Stay, ...] = ()
    holders: tuple[Holder, ...] = ()
    line: CodeLine = NOWHERE
