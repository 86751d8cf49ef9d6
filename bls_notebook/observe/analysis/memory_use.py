"""How much memory lived when: pure functions of the lives that a track recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bls_notebook.observe.records.lives import Life
from bls_notebook.observe.records.plain import Record

__all__ = ["MemoryLevel", "Peak", "alive", "bytes_alive", "is_left_behind", "left_behind", "levels", "peak"]


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


def _lives_at(life: Life, ns: int) -> bool:
    """Whether a life has begun and not ended; a moment belongs to what begins in it."""
    return life.died < 0 if ns < 0 else life.born <= ns and (life.died < 0 or ns < life.died)


def _largest_first(lives: list[Life]) -> tuple[Life, ...]:
    return tuple(sorted(lives, key=lambda life: (-life.bytes, life.id)))


def alive(lives: Iterable[Life], ns: int = -1) -> tuple[Life, ...]:
    """Return the lives at a moment, the largest first; -1 for the end of the track."""
    return _largest_first([life for life in lives if _lives_at(life, ns)])


def bytes_alive(lives: Iterable[Life], device: str = "", ns: int = -1) -> int:
    """Return the bytes of the lives at a moment, -1 for the end; of one device, or of all."""
    return sum(life.bytes for life in lives if device in ("", life.device) and _lives_at(life, ns))


def levels(lives: Iterable[Life], device: str) -> tuple[MemoryLevel, ...]:
    """Return the bytes alive on a device over time.

    Parameters
    ----------
    lives : iterable of Life
    device : str
        ``cpu``, ``gpu:0``.

    Returns
    -------
    tuple of MemoryLevel
        One for each moment at which it changed, in order; it begins with 0 bytes at 0 ns.
    """
    changes: dict[int, int] = {0: 0}
    for life in lives:
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


def peak(lives: Sequence[Life], device: str) -> Peak:
    """Return the first moment at which most bytes were alive on a device, with what lived then."""
    top = max(levels(lives, device), key=lambda level: (level.bytes, -level.ns))
    here = [life for life in lives if life.device == device and _lives_at(life, top.ns)]
    return Peak(top.ns, top.bytes, _largest_first(here))


def left_behind(lives: Iterable[Life]) -> tuple[Life, ...]:
    """Return what requests made and somebody still holds, the largest first.

    An array that the notebook made itself and gave as an input is its own affair, and not among them. What
    a model allocated on a GPU is, also where no request has seen it.
    """
    return _largest_first([life for life in lives if is_left_behind(life)])


def is_left_behind(life: Life) -> bool:
    """Whether a life is among those of `left_behind`."""
    return life.died < 0 and life.bytes > 0 and bool(life.maker.model or life.how != "new")
