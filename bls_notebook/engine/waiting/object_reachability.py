"""Find out whether an object is still reachable: a future that would wake a task, a response sender.

References are counted as Python's garbage collector does: references among the sleeping tasks are inside; an object
with more references is reachable from outside, and so is everything it refers to. Guarantees: a reference that is not
understood (a running thread, a module's global, an extension) counts as outside, so "unreachable" is certain.
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
    """Whether objects, given by `id`, may be known outside the tasks `inside` and what only those may wake.

    The list must be the only new reference to its elements; it is extended by all that they lead to. `holders` are the
    engine's own objects that refer to what is inside, and never act on it.
    """
    inside.append([])  # whose only reference is the list's, to compare with
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
        for each in _referents(inside[todo.pop()]):
            place = places.get(id(each))
            if place is not None and place not in seen:
                seen.add(place)
                todo.append(place)
    return bool(wanted & seen)


def _fill(inside: list[Any], places: dict[int, int], counts: Counter[int]) -> None:
    for one in inside:  # which grows
        for each in _referents(one):
            counts[id(each)] += 1
            if id(each) not in places and gc.is_tracked(each) and not _is_border(each):
                places[id(each)] = len(inside)
                inside.append(each)
        if len(inside) > MOST:
            return


def _references(objects: list[Any]) -> list[int]:
    return [sys.getrefcount(one) for one in objects]


def _is_border(one: Any) -> bool:
    if isinstance(one, _BORDERS):
        return True
    return str(getattr(type(one), "__module__", "")).startswith(_ENGINE) and not isinstance(one, asyncio.Future)


def _referents(one: Any) -> list[Any]:
    if type(one) is FunctionType:  # and not its module's globals
        return [part for part in (one.__closure__, one.__defaults__, one.__kwdefaults__) if part is not None]
    if type(one) is FrameType:  # of a coroutine, until Python 3.11
        return [part for part in gc.get_referents(one) if part is not one.f_globals and part is not one.f_builtins]
    return gc.get_referents(one)
