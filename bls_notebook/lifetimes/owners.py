"""Find who keeps a block of memory alive: search from named objects down to it, then from the block up.

`providers` yield the roots of the search: notebook variables, the models in service, running functions. A
block that no named object leads to is searched upwards through the objects that refer to it; each step looks
at every object of Python's garbage collector, so this is done for a few blocks only.

Guarantees: the search is bounded in objects and in time, changes nothing, and calls no code of the objects.
A block that it did not reach has no owner in the answer.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from itertools import chain
from sys import getrefcount
from time import perf_counter
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any

import numpy as np

from bls_notebook.devices.allocation_log import gpu_block, owner_kinds
from bls_notebook.devices.model_code import foreign_blocks
from bls_notebook.devices.registry import backend_of
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server, servers
from bls_notebook.engine.exception_text import ModelHome
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.stack_frames import stacks, variables_of
from bls_notebook.engine.waiting.stream import TicketStream
from bls_notebook.pb_utils.iterator import ResponseIterator
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.raw_events import Holder

_SHORT = 40  # characters of a key that is shown


def text_of_path(way: tuple[Any, ...]) -> tuple[str, bool]:
    """Return how to write the way from a named object to one inside, and whether ``del`` may stand before."""
    text, deletable, index = "", True, 0
    while index + 1 < len(way):
        parent, child = way[index], way[index + 1]
        after = way[index + 2] if index + 2 < len(way) else None
        if isinstance(child, dict) and after is not None and _dict_of(parent) is child and not _is_of_a_library(parent):
            step, last = _attribute(child, after), True
            index += 1
        elif isinstance(child, CellType) and isinstance(parent, FunctionType):
            step, last = _variable(parent, child), False
            index += 1
        else:
            step, last = _step(parent, child)
        if not step and _is_outer(parent):
            break  # inside a tensor, a response or an array: the rest has no name
        text += step
        deletable = deletable and last
        index += 1
    return text, deletable


def _is_outer(value: Any) -> bool:
    return not isinstance(value, (dict, list, tuple, deque, set, frozenset, FunctionType, CellType))


def _is_of_a_library(value: Any) -> bool:
    """Whether what is inside an object is nobody's business: a response, a tensor, an array."""
    return str(type(value).__module__).startswith(("bls_notebook.", "numpy"))


def _dict_of(value: Any) -> Any:
    try:
        return object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None


def _attribute(attributes: dict[Any, Any], child: Any) -> str:
    return next((f".{name}" for name, value in list(attributes.items()) if value is child), "")


def _variable(function: FunctionType, cell: CellType) -> str:
    names = function.__code__.co_freevars
    found = next((n for n, c in zip(names, function.__closure__ or (), strict=False) if c is cell), "")
    return f" (its variable {found!r})" if found else ""


def _step(parent: Any, child: Any) -> tuple[str, bool]:
    if isinstance(parent, dict):
        for key, value in list(parent.items()):
            if value is child:
                return f"[{_key(key)}]", True
        return " (a key)", False
    if isinstance(parent, (list, tuple, deque)):
        for index, value in enumerate(list(parent)):
            if value is child:
                return f"[{index}]", not isinstance(parent, tuple)
        return "", False
    if isinstance(parent, (set, frozenset)):
        return " (in a set)", False
    if _is_of_a_library(parent):
        return "", True
    attributes = _dict_of(parent)
    if isinstance(attributes, dict):
        found = _attribute(attributes, child)
        if found:
            return found, True
    for kind in type(parent).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            member: Any = kind.__dict__.get(name)
            if isinstance(member, MemberDescriptorType):
                with suppress(AttributeError):  # not set
                    if member.__get__(parent) is child:
                        return f".{name}", True
    return "", False


def _key(key: Any) -> str:
    if isinstance(key, (str, bytes, int, float, bool, type(None))):
        text = repr(key)
        return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
    if type(key) is tuple and all(isinstance(k, (str, int)) for k in key):
        return repr(key)[:_SHORT]
    return "…"


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
    owners: dict[int, Any], gpu: Mapping[int, tuple[str, int]], roots: Iterable[SearchRoot]
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
            return (*(value.__closure__ or ()), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
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


DEFAULT_REMEDY = "repo.reload({name!r})"
_remedy = DEFAULT_REMEDY
owner_kinds.update(
    {
        Tensor: "tensor",
        InferenceRequest: "request",
        InferenceResponse: "response",
        ResponseIterator: "iterator",
        TicketStream: "iterator",
        Ticket: "request",
    }
)


def say_how_to_reload(remedy: str) -> None:
    """Set what is to be typed so that a model lets go of what it keeps; ``{name}`` stands for the model."""
    global _remedy
    _remedy = remedy


def model_roots() -> Iterator[SearchRoot]:
    """Yield the models in service: their instances, what their classes have, the globals of their files."""
    for server in list(servers):
        for name in server.names():
            yield from _of_model(server, name)


def _of_model(server: Server, name: str) -> Iterator[SearchRoot]:
    for loaded in server.serving(name).values():
        for instance in loaded.instances:
            loop = instance.event_loop
            if loop is not None:
                for task in asyncio.all_tasks(loop):
                    yield SearchRoot("frame", f"{instance.name}.execute()", task)
        yield from roots_of(loaded)


def roots_of(loaded: LoadedModel) -> Iterator[SearchRoot]:
    """Yield what a version keeps: its instances' models, what their classes have, globals of their files."""
    remedy = _remedy.format(name=loaded.name)
    for instance in loaded.instances:
        model = getattr(instance.backend, "model", None)
        if model is None:
            continue
        label = loaded.name if len(loaded.instances) == 1 else instance.name
        yield SearchRoot("attribute", label, model, remedy)
        for kind in type(model).__mro__[:-1]:
            for attribute, value in list(vars(kind).items()):
                if not attribute.startswith("__") and not issubclass(type(value), ATOMS):
                    yield SearchRoot("attribute", f"{label}.{attribute}", value, remedy)
        yield from _of_files(instance.modules, label, remedy)


def _of_files(home: ModelHome | None, label: str, remedy: str) -> Iterator[SearchRoot]:
    for modname, found in [] if home is None else list(home.modules.items()):
        file = modname.rpartition(".")[2]
        for variable, value in list(vars(found).items()):
            if not variable.startswith("__") and value is not home and not issubclass(type(value), ATOMS):
                yield SearchRoot("attribute", f"{label}/{file}.py: {variable}", value, remedy)


providers.append(model_roots)
