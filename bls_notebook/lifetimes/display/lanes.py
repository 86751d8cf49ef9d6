"""Layout of the lifetime chart: the row of every block, for five blocks or fifty thousand. Pure.

Blocks are grouped by model, then by name and device; blocks of one name that never overlap share a row. When
there are more rows than the picture has, the names with most rows are folded into one row each that shows
their bytes over time; then names are folded together, then models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from bls_notebook.display.units import count
from bls_notebook.lifetimes.records import Life, Lifetimes
from bls_notebook.records.intervals import Rows

from .block_facts import name_of, owner, profile

__all__ = [
    "LifeGroup", "LifeLane", "LifeRow", "heaviest_first", "highest", "layout", "life_lanes", "pack",
    "profile",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class LifeRow:
    """A row of the chart.

    ``lives`` are in the order of birth. Unless ``folded``, no two of them overlap and each is a bar;
    otherwise they are drawn as one band. ``first`` says whether the row begins a name.
    """

    label: str
    device: str
    lives: tuple[Life, ...]
    first: bool = True
    folded: bool = False


@dataclass(frozen=True, slots=True)
class LifeGroup:
    """The rows of one model, by its name in words."""

    model: str
    label: str
    rows: tuple[LifeRow, ...]


@dataclass(frozen=True, slots=True)
class LifeLane:
    """All blocks of one name, maker and device, and the rows in which no two of them overlap."""

    model: str
    label: str
    device: str
    rows: list[list[Life]]
    lives: tuple[Life, ...]


def layout(record: Lifetimes, most: int) -> list[LifeGroup]:
    """Distribute the lives of a track to so many rows at most (2 or more), headings of groups not counted.

    Groups are in the order of their first birth while every block has a bar; where some are folded, those
    that left most behind come first, then the largest.
    """
    lanes = _fold_names(life_lanes(record), most)
    shares = dict(zip(map(id, lanes), _shares([len(lane.rows) for lane in lanes], most), strict=True))
    if any(shares[id(lane)] < len(lane.rows) for lane in lanes):
        lanes = heaviest_first(lanes)
    return _groups(lanes, [shares[id(lane)] for lane in lanes])


def life_lanes(record: Lifetimes) -> list[LifeLane]:
    """Return the lives of a track by names, those of one model together, in the order of first birth."""
    found: dict[str, dict[tuple[str, str], list[Life]]] = {}
    for life in sorted(record.lives, key=lambda each: (each.born, each.id)):
        names = found.setdefault(life.maker.model, {})
        names.setdefault((name_of(life), life.device), []).append(life)
    return [
        LifeLane(model, name, device, pack(lives), tuple(lives))
        for model, names in found.items()
        for (name, device), lives in names.items()
    ]


def pack(lives: Iterable[Life]) -> list[list[Life]]:
    """Give each life, in the order of birth, the first row that is free again; what never ends keeps its."""
    rows, found = Rows(), list[list[Life]]()
    for life in lives:
        row = rows.take(life.born, inf if life.died < 0 else max(life.died, life.born + 1))
        if row == len(found):
            found.append([])
        found[row].append(life)
    return found


def highest(steps: Sequence[tuple[int, ...]], end: int, most: int) -> list[tuple[int, ...]]:
    """Thin out (ns, bytes, ...): of each of `most` pieces of time until `end` the step with most bytes."""
    if len(steps) <= most:
        return list(steps)
    best: dict[int, tuple[int, ...]] = {}
    for step in steps:
        piece = step[0] * most // (end + 1)
        if piece not in best or step[1] > best[piece][1]:
            best[piece] = step
    kept = [best[piece] for piece in sorted(best)]
    return kept if kept[-1] == steps[-1] else [*kept, steps[-1]]


def _fold_names(lanes: list[LifeLane], most: int) -> list[LifeLane]:
    """Join the smallest names until every lane can have a row: by model and device, by model, or all."""
    if len(lanes) <= most:
        return lanes
    scopes: tuple[Callable[[LifeLane], tuple[str, ...]], ...] = (
        lambda lane: (lane.model, lane.device),
        lambda lane: (lane.model,),
    )
    for scope in scopes:
        keys = list(dict.fromkeys(map(scope, lanes)))
        if len(keys) <= most // 2:
            break
    else:
        scope, keys = (lambda lane: ()), [()]
    kept = {id(lane) for lane in sorted(lanes, key=_weight, reverse=True)[: most - len(keys)]}
    result = [lane for lane in lanes if id(lane) in kept]
    for key in keys:
        rest = [lane for lane in lanes if id(lane) not in kept and scope(lane) == key]
        if rest:
            result.append(rest[0] if len(rest) == 1 else _joined(key[0] if key else "\0", rest))
    models = list(dict.fromkeys(lane.model for lane in lanes))
    return sorted(result, key=lambda lane: models.index(lane.model) if lane.model in models else len(models))


def _joined(model: str, lanes: Sequence[LifeLane]) -> LifeLane:
    lives = tuple(sorted((life for lane in lanes for life in lane.lives), key=lambda each: (each.born, each.id)))
    devices = {lane.device for lane in lanes}
    return LifeLane(
        model,
        f"+{count(len({(lane.model, lane.label) for lane in lanes}), 'name')}",
        devices.pop() if len(devices) == 1 else "",
        [[]] * (len(lives) + 2),  # more than there ever is room for, so that it is folded
        lives,
    )


def heaviest_first(lanes: Sequence[LifeLane]) -> list[LifeLane]:
    """Order lanes by what their models, then they themselves, left behind and had at most."""
    weights = {id(lane): _weight(lane) for lane in lanes}
    models: dict[str, tuple[int, int]] = {}
    for lane in lanes:
        left, peak = models.get(lane.model, (0, 0))
        models[lane.model] = (left + weights[id(lane)][0], peak + weights[id(lane)][1])
    order = sorted(models, key=lambda model: (model != "\0", models[model]), reverse=True)
    return sorted(lanes, key=lambda lane: (order.index(lane.model), -weights[id(lane)][0], -weights[id(lane)][1]))


def _weight(lane: LifeLane) -> tuple[int, int]:
    """Return the bytes that a lane left behind, and had at most."""
    steps = profile(lane.lives)
    return steps[-1][2], max(bytes_ for _, bytes_, _ in steps)


def _shares(wanted: list[int], most: int) -> list[int]:
    """Give each lane the rows that it wants, or, where they run short, one."""
    left = most - len(wanted)
    shares = [1] * len(wanted)
    for i in sorted(range(len(wanted)), key=lambda each: wanted[each]):
        if wanted[i] - 1 <= left:
            left -= wanted[i] - 1
            shares[i] = wanted[i]
    return shares


def _groups(lanes: list[LifeLane], shares: list[int]) -> list[LifeGroup]:
    rows: dict[str, list[LifeRow]] = {}
    for lane, share in zip(lanes, shares, strict=True):
        own = rows.setdefault(lane.model, [])
        if len(lane.rows) > share:
            own.append(LifeRow(lane.label, lane.device, lane.lives, folded=True))
        else:
            own += [LifeRow(lane.label, lane.device, tuple(lives), first=not i) for i, lives in enumerate(lane.rows)]
    return [
        LifeGroup(model, "other models" if model == "\0" else owner(found[0].lives[0].maker), tuple(found))
        for model, found in rows.items()
    ]
