"""Who holds a block that nothing with a name leads to: a search from the block up.

Guarantees: bounded in time and in objects; it changes nothing. Each step looks at every object that Python's
garbage collector knows of, so it is for a few blocks only.
"""

from __future__ import annotations

import gc
import inspect
import sys
import types
from collections.abc import Mapping
from sys import getrefcount
from time import perf_counter
from typing import Any

from bls_notebook.records.seen import Holder

ONLY_HERE = 3  # references, where nobody else has any
STEPS = 7
WIDTH = 40  # objects whose referrers are asked for at a time
_RUNNING = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_OURS: tuple[type, ...] = (type(iter(())), type(iter({}.items())))  # of loops, while the search runs
_VIEW = Holder("view", "an array or a DLPack capsule over it, of which nothing more is known")


def unnamed_holders(
    owners: Mapping[int, Any], kinds: Mapping[type, str], seconds: float
) -> dict[int, tuple[Holder, ...]]:
    """Return who holds blocks, by numbers of the caller's, as far as that can be said of what has no name.

    `kinds` are the types that tensors are in, and the kind of holder that they are.
    """
    deadline = perf_counter() + seconds
    found: dict[int, tuple[Holder, ...]] = {}
    for number, owner in owners.items():
        if perf_counter() > deadline:
            break
        if getrefcount(owner) <= ONLY_HERE:
            continue  # its holder went away while it was looked for
        holder = _search(owner, owners, kinds, deadline)
        if holder is not None:
            found[number] = (holder,)
    return found


def _search(owner: Any, ours: object, kinds: Mapping[type, str], deadline: float) -> Holder | None:
    level: list[Any] = [owner]
    seen = {id(owner): owner}  # kept, so that no number is used again meanwhile
    best: Holder | None = None
    for _ in range(STEPS):
        if perf_counter() > deadline:
            return best
        above = gc.get_referrers(*level)
        passed, level = level, []
        for value in above:
            if value is ours or value is seen or value is passed or id(value) in seen:
                continue
            seen[id(value)] = value
            if isinstance(value, _OURS) or (type(value) is tuple and _same(value, passed)):
                continue
            if isinstance(value, types.FrameType):
                if not str(value.f_globals.get("__name__", "")).startswith("bls_notebook."):
                    return Holder("frame", f"{_name_of(value)}()")
                continue
            if isinstance(value, _RUNNING):
                return Holder("frame", f"{getattr(value, '__qualname__', 'a coroutine')}()")
            if isinstance(value, dict) and isinstance(value.get("__name__"), str) and "__spec__" in value:
                return Holder("unknown", f"module {value['__name__']}")
            kind = kinds.get(type(value), "tensor")
            if kind != "tensor" and best is None:
                best = Holder(kind)
            level.append(value)
        del above, passed
        if not level:
            break
        del level[WIDTH:]
    if best is None and len(seen) == 1:
        return _VIEW
    return best or Holder("unknown")


def _name_of(frame: types.FrameType) -> str:
    """The name of a frame's function; of a generator or coroutine, its own.

    On Python 3.10 the frame holds what they have in their variables, later they do so themselves.
    """
    if sys.version_info < (3, 11) and frame.f_code.co_flags & _SUSPENDED:
        for holder in gc.get_referrers(frame):
            if isinstance(holder, _RUNNING):
                return str(holder.__qualname__)
    return frame.f_code.co_name


def _same(arguments: tuple[Any, ...], level: list[Any]) -> bool:
    """Whether a tuple is the arguments of the question itself."""
    pairs = zip(arguments, level, strict=False)
    return len(arguments) == len(level) and all(mine is its for mine, its in pairs)
