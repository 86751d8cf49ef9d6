"""Reachability: can code outside some sleeping tasks still reach an object, such as a future or a response sender?

As Python's garbage collector does, count the references among the sleeping tasks. An object with more references
than these is reachable from outside, and so is everything it refers to. Guarantee: a reference of unknown
origin (a running thread, a module's global, an extension) counts as outside, so the result "unreachable" is certain.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Iterable
from contextvars import Context
from types import FrameType, FunctionType, ModuleType
from typing import Any

MOST = 50_000
_BORDERS = (ModuleType, type, Context, asyncio.AbstractEventLoop)
_ENGINE = __name__.rsplit(".", 2)[0]


def can_be_reached(targets: Iterable[int], inside: list[Any], holders: Iterable[Any]) -> bool:
    """Return whether code outside the tasks `inside` may reach one of the objects with the IDs `targets`.

    The list must be the only new reference to its elements; this function appends everything that they refer to.
    `holders` are the engine's own objects that refer to elements and never act on them.
    """
    inside.append([])  # the list has the only reference to this one: the count to compare with
    known = len(inside)
    counts: Counter[int] = Counter()
    for holder in holders:
        counts.update(map(id, gc.get_referents(holder)))
    places = {id(one): place for place, one in enumerate(inside)}
    _fill(inside, places, counts)
    if len(inside) > MOST:
        return True
    counted = _references(inside)
    spare = counted[known - 1]
    todo = [place for place, count in enumerate(counted) if count - spare > counts[id(inside[place])]]
    wanted = {places[target] for target in targets if target in places}
    seen = set(todo)
    while todo and not wanted & seen:
        for referent in _referents(inside[todo.pop()]):
            place = places.get(id(referent))
            if place is not None and place not in seen:
                seen.add(place)
                todo.append(place)
    return bool(wanted & seen)


def _fill(inside: list[Any], places: dict[int, int], counts: Counter[int]) -> None:
    for one in inside:  # grows meanwhile
        for referent in _referents(one):
            counts[id(referent)] += 1
            if id(referent) not in places and gc.is_tracked(referent) and not _is_border(referent):
                places[id(referent)] = len(inside)
                inside.append(referent)
        if len(inside) > MOST:
            return


def _references(objects: list[Any]) -> list[int]:
    return [sys.getrefcount(one) for one in objects]


def _is_border(one: Any) -> bool:
    if isinstance(one, _BORDERS):
        return True
    return str(getattr(type(one), "__module__", "")).startswith(_ENGINE) and not isinstance(one, asyncio.Future)


def _referents(one: Any) -> list[Any]:
    if type(one) is FunctionType:  # without its module's globals
        return [part for part in (one.__closure__, one.__defaults__, one.__kwdefaults__) if part is not None]
    if type(one) is FrameType:  # a coroutine refers to its frame until Python 3.11
        return [part for part in gc.get_referents(one) if part is not one.f_globals and part is not one.f_builtins]
    return gc.get_referents(one)
