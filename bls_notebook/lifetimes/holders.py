"""Who holds a block of memory: a search from what has a name down to the block, when somebody asks.

Guarantees: the search is bounded in objects and in time, changes nothing that it looks at, and calls no code
of those objects. What it did not get to has no holder in its answer.
"""

from __future__ import annotations

import gc
import sys
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from itertools import chain
from time import perf_counter
from typing import Any

import numpy as np

from bls_notebook.devices.allocation_log import gpu_block, owner_kinds
from bls_notebook.devices.model_code import foreign_blocks
from bls_notebook.devices.registry import backend_of
from bls_notebook.engine.waiting.stacks import stacks, variables_of
from bls_notebook.records.seen import Holder

from .paths import text_of_path
from .referrers import unnamed_holders

SECONDS = 0.5  # for the search from names
UNNAMED_SECONDS = 0.5  # for the one from blocks
OBJECTS = 300_000
AT_FIRST = 1_000  # objects of each root
MOST = 4  # holders that are named of one block
UNNAMED = 20  # blocks without a holder that are looked at more closely
PARENTS = 6  # ways to an object that are remembered
ELEMENTS = 1000  # of an array of objects that are looked at

# What holds no tensor, or leads into all of Python.
ATOMS: tuple[type, ...] = (
    int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, slice, type, np.generic,
    np.dtype, types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.MemberDescriptorType,
    types.GetSetDescriptorType, types.FrameType,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SearchRoot:
    """Something that has a name of its own.

    ``kind`` is one of those of `Holder`; ``name`` is what it is called, and ``remedy`` what to type to let
    it go (``del`` and the path, where it is empty and the kind is variable).
    """

    kind: str
    name: str
    value: Any
    remedy: str = ""


# Who knows roots; each is called when somebody asks. What has the nearest names comes first.
providers: list[Callable[[], Iterable[SearchRoot]]] = []


def find_holders(
    owners: dict[int, Any],
    gpu: Mapping[int, tuple[str, int]],
    roots: Iterable[SearchRoot],
) -> dict[int, tuple[Holder, ...]]:
    """Return who holds blocks of memory, by numbers of the caller's, as far as that is found.

    `owners` own blocks in host memory, and are used up; of blocks on a GPU it is their keys. Names of the
    first roots are given first.
    """
    search = _Search({id(owner) for owner in owners.values()}, perf_counter() + SECONDS, OBJECTS)
    search.walk(list(roots))
    found = {number: search.holders(owner) for number, owner in owners.items()}
    for number, key in gpu.items():
        memory = search.memories.get(key)
        if memory is not None:
            found[number] = search.holders(memory)
    del search  # it refers to all that it has seen
    unnamed = {number: owner for number, owner in owners.items() if not found[number]}
    if unnamed:
        few = {number: owners.pop(number) for number in list(unnamed)[:UNNAMED]}
        del unnamed
        found |= unnamed_holders(few, owner_kinds, UNNAMED_SECONDS)
    return {number: holders for number, holders in found.items() if holders}


class _Search:
    def __init__(self, wanted: set[int], deadline: float, objects: int) -> None:
        self.memories: dict[tuple[str, int], Any] = {}  # of GPUs, that were come across
        self._wanted = wanted
        self._deadline = deadline
        self._left = objects
        self._seen: dict[int, Any] = {}
        self._parents: dict[int, list[Any]] = {}
        self._roots: dict[int, list[SearchRoot]] = {}

    def walk(self, roots: list[SearchRoot]) -> None:
        """Visit what can be reached: first a little of each root, so that a large one hides no other."""
        rest: deque[Any] = deque()
        for root in roots:
            if issubclass(type(root.value), ATOMS):
                continue
            self._roots.setdefault(id(root.value), []).append(root)
            if id(root.value) not in self._seen:
                self._seen[id(root.value)] = root.value
                queue = deque((root.value,))
                self._visit(queue, AT_FIRST)
                rest += queue
        self._visit(rest, self._left)

    def _visit(self, queue: deque[Any], most: int) -> None:
        """Visit objects and what they refer to, nearest first; what is left stays in the queue."""
        seen, parents = self._seen, self._parents
        while queue and most > 0 and self._left > 0:
            value = queue.popleft()
            most -= 1
            self._left -= 1
            if not self._left % 512 and perf_counter() > self._deadline:
                self._left = 0
            for child in self._inside(value):
                number = id(child)
                known = parents.get(number)
                if known is None:
                    parents[number] = [value]
                elif len(known) < PARENTS:
                    known.append(value)
                if number not in seen:
                    seen[number] = child
                    if number not in self._wanted:
                        queue.append(child)

    def holders(self, owner: Any) -> tuple[Holder, ...]:
        """The ways to an object from what has a name, the shortest first."""
        out: dict[tuple[str, str], Holder] = {}
        queue: deque[tuple[Any, ...]] = deque([(owner,)])
        passed: Counter[int] = Counter((id(owner),))  # how many of the ways go through an object
        while queue and len(out) < MOST:
            way = queue.popleft()
            for root in self._roots.get(id(way[0]), ()):
                if any(map(_is_namespace, way)):
                    continue  # it leads to variables that have names of their own
                holder = _holder(root, way)
                out.setdefault((holder.kind, holder.name), holder)
            for parent in self._parents.get(id(way[0]), ()):
                if passed[id(parent)] < MOST and all(parent is not other for other in way):
                    passed[id(parent)] += 1
                    queue.append((parent, *way))
        return tuple(out.values())[:MOST]

    def _inside(self, value: Any) -> Iterable[Any]:
        """What an object refers to, without what would lead into all of Python."""
        if issubclass(type(value), np.ndarray):
            return _of_array(value)
        if issubclass(type(value), types.FunctionType):
            return (
                *(value.__closure__ or ()),
                *(value.__defaults__ or ()),
                *(value.__kwdefaults__ or {}).values(),
            )
        if backend_of(value) is not None:
            key, _ = gpu_block(value)
            memory = value.data.mem
            self.memories[key] = memory
            return (memory,)
        for find in foreign_blocks:
            block = find(value)
            if block is not None:
                self.memories[block.device.name, block.key] = block
                return (block,)
        if _is_closed(value):
            return ()
        return [child for child in gc.get_referents(value) if not issubclass(type(child), ATOMS)]


def _of_array(array: np.ndarray[Any, Any]) -> Iterator[Any]:
    if array.base is not None:
        yield array.base
    if array.dtype == object and array.size <= ELEMENTS:
        yield from (e for e in array.reshape(-1).tolist() if not issubclass(type(e), ATOMS))


def _is_namespace(value: Any) -> bool:
    return type(value) is dict and "__builtins__" in value


def _is_closed(value: Any) -> bool:
    """Whether an object is the package's own, and no container of tensors."""
    kind = type(value)
    return str(getattr(kind, "__module__", "")).startswith("bls_notebook.") and kind not in owner_kinds


def _holder(root: SearchRoot, way: tuple[Any, ...]) -> Holder:
    path, deletable = text_of_path(way)
    if root.kind == "frame":
        on_way = [owner_kinds[type(value)] for value in way if type(value) in owner_kinds]
        passed = [kind for kind in on_way if kind != "tensor"]
        return Holder(passed[0] if root.name == "" and passed else "frame", root.name)
    name = root.name + path
    remedy = root.remedy
    if not remedy and root.kind == "variable":
        remedy = f"del {name if deletable else root.name}"
    return Holder(root.kind, name, remedy)


def frame_roots(asking: str) -> Iterator[SearchRoot]:
    """Yield the variables of every function that runs now, in any thread, but those of the module `asking`.

    No variable is kept alive by having been looked at, and none is changed. Before Python 3.13 a frame that
    is asked for its variables keeps them in a dict of its own, which is emptied at once unless somebody else
    has it; a frame that is being debugged is not asked.
    """
    skipped = (asking, __name__, stacks.__module__)
    for frame in chain.from_iterable(stacks().values()):
        # Of a module or a class the variables are its namespace itself, which others lead to.
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_flags & CO_OPTIMIZED and frame.f_trace is None and module not in skipped:
            ours = str(module).startswith("bls_notebook.")
            for name, value in _variables(frame):
                if not issubclass(type(value), (*ATOMS, types.FunctionType)):
                    yield SearchRoot("frame", "" if ours else f"{name} in {frame.f_code.co_name}()", value)


def _variables(frame: types.FrameType) -> list[tuple[str, Any]]:
    found: Any = variables_of(frame)
    variables = list(found.items())
    if type(found) is dict and sys.getrefcount(found) == _OWN:
        found.clear()
    return variables


def _count_own() -> int:
    """How many references `_variables` sees to the dict of a frame that nobody else has."""
    found: Any = sys._getframe().f_locals
    return sys.getrefcount(found) if type(found) is dict else 0


_OWN = _count_own()
