"""Who holds a block that nothing with a name leads to: a search from the block up.

Guarantees: bounded in time and in objects; it changes nothing. Each step looks at every object that Python's
garbage collector knows of, so it is for a few blocks only.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from bls_notebook.observe.lifetimes import Holder

__all__ = ["unnamed_holders"]

STEPS = 5
WIDTH = 40  # objects whose referrers are asked for at a time
_RUNNING = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_VIEW = Holder("view", "an array or a DLPack capsule over it, of which nothing more is known")


def unnamed_holders(
    owners: Mapping[int, Any], kinds: Mapping[type, str], seconds: float
) -> dict[int, tuple[Holder, ...]]:
    """Return who holds blocks, as far as that can be said of what has no name.

    Parameters
    ----------
    owners : mapping of int to object
        What owns the memory of each block, by a number of the caller's.
    kinds : mapping of type to str
        Types that tensors are in, and the kind of holder that they are.
    seconds : float
        When to give up.
    """
    deadline = perf_counter() + seconds
    found: dict[int, tuple[Holder, ...]] = {}
    for number, owner in owners.items():
        if perf_counter() > deadline:
            break
        holder = _search(owner, owners, kinds, deadline)
        if holder is not None:
            found[number] = (holder,)
    return found


def _search(owner: Any, ours: object, kinds: Mapping[type, str], deadline: float) -> Holder | None:
    level: list[Any] = [owner]
    seen = {id(owner), id(ours), id(level)}
    for step in range(STEPS):
        above = gc.get_referrers(*level)
        level = []
        seen.update((id(above), id(level)))
        for value in above:
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, types.FrameType):
                if str(value.f_globals.get("__name__", "")).startswith("bls_notebook."):
                    continue
                return Holder("frame", f"{value.f_code.co_name}()")
            if isinstance(value, _RUNNING):
                return Holder("frame", f"{getattr(value, '__qualname__', 'a coroutine')}()")
            kind = kinds.get(type(value), "tensor")
            if kind != "tensor":
                return Holder(kind)
            if isinstance(value, dict) and isinstance(value.get("__name__"), str) and "__spec__" in value:
                return Holder("unknown", f"module {value['__name__']}")
            level.append(value)
        del above, value
        if not level:
            return _VIEW if step == 0 else Holder("unknown")
        if perf_counter() > deadline:
            return None
        del level[WIDTH:]
    names = {type(value).__name__ for value in level[:3]}
    return Holder("unknown", f"in a {' or '.join(sorted(names))}")
