"""`OwnerSearch`: everything that named objects lead to, and the paths to it.

A worker runs this module, too, to search a model in a process, so it imports nothing of this package, and its Python
may be 3.8.

Guarantees: the search is bounded in objects and in time, changes nothing, and calls no code of the objects.
"""

from __future__ import annotations

import gc
import sys
import types
from bisect import bisect_right
from collections import Counter, deque
from contextlib import suppress
from inspect import CO_OPTIMIZED
from time import perf_counter
from types import CellType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SECONDS = 0.5  # for each of the two searches
OBJECTS = 300_000
AT_FIRST = 1_000  # objects of each root that are visited first, so that a large root hides no other
MOST = 4  # owners of a block
PARENTS = 6  # referrers of an object that are kept
ELEMENTS = 1000  # the most elements of an object array that are visited
_FRAMES = 20  # of a traceback
_SHORT = 40  # characters of a dict's key in a path
# Modules whose frames and objects lead to every test, by the beginnings of their names.
TEST_RUNNERS = ("_pytest.", "pluggy.", "xdist.", "execnet.", "__channelexec__")


# Objects that hold no tensor, or lead into all of Python.
ATOMS: tuple[type, ...] = (
    int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, type, np.generic, np.dtype,
    types.ModuleType, types.CodeType, types.MemberDescriptorType, types.GetSetDescriptorType, types.FrameType,
)  # fmt: skip


class SearchRoot(NamedTuple):
    """A named object where the search begins.

    ``kind`` and ``name`` have the values of `Holder`. ``remedy`` is what to type to release it; empty for a variable
    means ``del`` and its path.
    """

    kind: str
    name: str
    value: Any
    remedy: Any = ""


device_blocks: list[Callable[[Any], tuple[tuple[str, int], Any] | None]] = []
"""Functions that return the key and the memory of an array's block on a GPU; None for other objects."""

opened: list[Mapping[type, str]] = []
"""Classes of this package whose objects lead to tensors."""


def is_torch_tensor(value: Any) -> bool:
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def host_span(value: Any) -> tuple[int, int]:
    """Return the address and the size of the CPU memory below an array or a PyTorch tensor; zeros if unknown."""
    if issubclass(type(value), np.ndarray):
        return int(_interface(value)["data"][0]), int(_nbytes(value))
    with suppress(Exception):  # sparse tensors and others have no storage
        if is_torch_tensor(value) and value.device.type == "cpu":
            storage = value.untyped_storage()
            return int(storage.data_ptr()), int(storage.nbytes())
    return 0, 0


_interface = np.ndarray.__dict__["__array_interface__"].__get__
_nbytes = np.ndarray.__dict__["nbytes"].__get__


# Objects kept by objects of C, which show them neither to the garbage collector nor as parts.
_HIDDEN: dict[type, Callable[[Any], Any]] = {
    types.BuiltinMethodType: lambda method: method.__self__,  # of `array.sum` the array, of `math.sqrt` the module
    np.flatiter: lambda iterator: iterator.base,
    np.nditer: lambda iterator: iterator.operands,
}
_MOST_NODES = 2_000  # of an autograd graph


def saved_for_backward(tensor: Any, seen: set[Any]) -> list[Any]:
    """Return the tensors that the autograd graph of a PyTorch tensor keeps, and its gradient.

    `seen` are the nodes visited so far: a saved tensor leads to the same graph, each time by a new Python object.
    """
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.requires_grad:
        return []
    found: list[Any] = [] if tensor.grad_fn is not None else [tensor.grad]
    todo = [tensor.grad_fn]
    while todo and len(seen) < _MOST_NODES:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo += [following for following, _ in node.next_functions]
        for name in dir(node):
            if name == "variable" or name.startswith("_saved_"):
                with suppress(Exception):  # freed by `backward`, or changed in place since
                    saved = getattr(node, name)
                    found += saved if isinstance(saved, (list, tuple)) else [saved]
    return [each for each in found if is_torch_tensor(each) and each is not tensor]


class HostSpans:
    """The CPU memory of some objects, to find the object that a PyTorch tensor shares its memory with."""

    def __init__(self, owners: Iterable[Any]) -> None:
        spans = ((*host_span(owner), owner) for owner in owners)
        self._spans = sorted(((start, start + size, owner) for start, size, owner in spans if size), key=lambda s: s[0])
        self._starts = [start for start, _, _ in self._spans]

    def owner(self, address: int) -> Any:
        """Return the object whose memory contains an address; None without one."""
        place = bisect_right(self._starts, address) - 1
        return self._spans[place][2] if place >= 0 and address < self._spans[place][1] else None


class OwnerSearch:
    """One bounded search: the objects that it has `seen`, and the paths to them."""

    def __init__(self, wanted: set[int], atoms: tuple[type, ...] = ATOMS, spans: HostSpans | None = None) -> None:
        self.memories: dict[tuple[str, int], Any] = {}  # blocks of GPUs by key
        self._spans = spans
        self._wanted, self._atoms = wanted, atoms
        self._deadline = perf_counter() + SECONDS
        self._left = OBJECTS
        self.seen: dict[int, Any] = {}
        self._parents: dict[int, list[Any]] = {}
        self._roots: dict[int, list[SearchRoot]] = {}
        self._nodes: set[Any] = set()  # of autograd graphs
        self._closed: dict[type, bool] = {}  # whether objects of a type are not entered

    def walk(self, roots: list[SearchRoot]) -> None:
        """Visit every reachable object: first some of each root, then the rest."""
        rest: deque[Any] = deque()
        for root in roots:
            if issubclass(type(root.value), ATOMS):
                continue
            self._roots.setdefault(id(root.value), []).append(root)
            if id(root.value) not in self.seen:
                self.seen[id(root.value)] = root.value
                queue = deque((root.value,))
                self._visit(queue, AT_FIRST)
                rest += queue
        self._visit(rest, self._left)

    def _visit(self, queue: deque[Any], most: int) -> None:
        """Visit at most `most` objects, nearest first; the rest stays in the queue."""
        seen, parents = self.seen, self._parents
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

    def ways(self, owner: Any) -> Iterator[tuple[SearchRoot, tuple[Any, ...]]]:
        """Yield the named objects that lead to an object, the shortest way first: the objects on it."""
        queue: deque[tuple[Any, ...]] = deque([(owner,)])
        passed: Counter[int] = Counter((id(owner),))  # paths through an object
        while queue:
            way = queue.popleft()
            for root in self._roots.get(id(way[0]), ()):
                if any(type(value) is dict and "__builtins__" in value for value in way):
                    continue  # the path leads through a module's namespace, whose variables are roots themselves
                yield root, way
            for parent in self._parents.get(id(way[0]), ()):
                if passed[id(parent)] < MOST and all(parent is not other for other in way):
                    passed[id(parent)] += 1
                    queue.append((parent, *way))

    @property
    def was_cut(self) -> bool:
        """Return whether the search reached its limit."""
        return self._left <= 0

    def parent_of(self, value: Any) -> Any:
        """Return the first object that leads to an object; None for a root."""
        return next(iter(self._parents.get(id(value), ())), None)

    def name_of(self, value: Any) -> str:
        """Return the shortest path to an object, "" if none is known."""
        return next((name_at(root, way)[0] for root, way in self.ways(value)), "")

    def _inside(self, value: Any) -> Iterable[Any]:
        """Return the objects that an object refers to, except objects that lead into all of Python."""
        if issubclass(type(value), np.ndarray):
            return _of_array(value)
        if type(value) is dict and _is_of_a_module(value):
            return ()  # its variables are roots themselves; frames of a traceback lead to the notebook's
        if issubclass(type(value), types.FunctionType):
            own = (vars(value),) if vars(value) else ()
            defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            return (*(value.__closure__ or ()), *defaults, *own)
        if type(value) in _HIDDEN:
            with suppress(Exception):  # a closed iterator
                held = _HIDDEN[type(value)](value)
                return () if issubclass(type(held), self._atoms) else (held,)
            return ()
        if type(value) is types.TracebackType:
            return (*_of_frames(value.tb_frame), value.tb_next)
        for find in device_blocks:
            block = find(value)
            if block is not None:
                key, memory = block
                self.memories[key] = memory
                return (memory,)
        if self._spans is not None and is_torch_tensor(value):  # the reference to an array is hidden in C++
            owner = self._spans.owner(host_span(value)[0])
            if owner is not None and owner is not value:
                return (owner,)
        if is_torch_tensor(value) and (saved := saved_for_backward(value, self._nodes)):
            return (*saved, *gc.get_referents(value))
        kind = type(value)
        if kind not in self._closed:
            self._closed[kind] = _is_closed(kind)
        return (
            []
            if self._closed[kind]
            else [child for child in gc.get_referents(value) if not issubclass(type(child), self._atoms)]
        )


def _is_of_a_module(namespace: dict[Any, Any]) -> bool:
    name = namespace.get("__name__") if "__builtins__" in namespace else None
    return type(name) is str and getattr(sys.modules.get(name), "__dict__", None) is namespace


def _is_closed(kind: type) -> bool:
    """Return whether objects of a type contain no tensors, as most of this package, or lead to every test."""
    first, *_ = modules = [str(vars(base).get("__module__", "")) for base in kind.__mro__]
    ours = first.startswith("bls_notebook.") and not any(kind in kinds for kinds in opened)
    return ours or any(name.startswith(TEST_RUNNERS) for name in modules)


def _of_array(array: np.ndarray[Any, Any]) -> Iterator[Any]:
    if array.base is not None:
        yield array.base
    if array.dtype == object and array.size <= ELEMENTS:
        yield from (e for e in array.reshape(-1).tolist() if not issubclass(type(e), ATOMS))


def _of_frames(frame: types.FrameType | None) -> Iterator[Any]:
    """Yield the variables of a traceback's frame and of the frames that called it, which it keeps alive."""
    for _ in range(_FRAMES):
        if frame is None or not frame.f_code.co_flags & CO_OPTIMIZED:
            break
        yield from (child for _, child in frame_variables(frame) if not issubclass(type(child), ATOMS))
        frame = frame.f_back


def name_at(root: SearchRoot, way: tuple[Any, ...]) -> tuple[str, bool]:
    """Return the name of the object at the end of a way, and whether ``del`` accepts it."""
    path, deletable = text_of_path(way)
    error = next((value for value in way if isinstance(value, BaseException)), None)
    traceback = "" if error is None else f" (the traceback of its {type(error).__name__})"
    return root.name + path + traceback, deletable


def text_of_path(way: tuple[Any, ...]) -> tuple[str, bool]:
    """Return the expression that leads from a named object to one inside it, and whether ``del`` accepts it."""
    text, deletable, index = "", True, 0
    while index + 1 < len(way):
        parent, child = way[index], way[index + 1]
        after = way[index + 2] if index + 2 < len(way) else None
        if isinstance(child, dict) and after is not None and dict_of(parent) is child and not _is_of_a_library(parent):
            step, last = _attribute(child, after), True
            index += 1
        elif isinstance(child, CellType) and isinstance(parent, FunctionType):
            variables = zip(parent.__code__.co_freevars, parent.__closure__ or ())  # noqa: B905 - not in Python 3.8
            name = next((name for name, cell in variables if cell is child), "")
            step, last = f" (its variable {name!r})" if name else "", False
            index += 1
        else:
            step, last = _step(parent, child)
        if not step and not isinstance(parent, (dict, list, tuple, deque, set, frozenset, FunctionType, CellType)):
            break  # inside a tensor, a response or an array
        text += step
        deletable = deletable and last
        index += 1
    return text, deletable


def _is_of_a_library(value: Any) -> bool:
    """Return whether an object's inside is an implementation detail: a response, a tensor, an array."""
    return str(type(value).__module__).startswith(("bls_notebook.", "numpy"))


def dict_of(value: Any) -> Any:
    """Return the attributes of an object without calling its code; None if it has no dict."""
    try:
        return object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None


def _attribute(attributes: dict[Any, Any], child: Any) -> str:
    return next((f".{name}" for name, value in list(attributes.items()) if value is child), "")


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
    attributes = dict_of(parent)
    if isinstance(attributes, dict):
        step = _attribute(attributes, child)
        if step:
            return step, True
    for kind in type(parent).__mro__:
        for name, member in vars(kind).items():
            if type(member) is MemberDescriptorType:
                with suppress(AttributeError):  # not set
                    if member.__get__(parent) is child:
                        return f".{name}", True
    return "", False


def _key(key: Any) -> str:
    parts = key if type(key) is tuple else (key,)
    if not all(isinstance(part, (str, bytes, int, float, bool, type(None))) for part in parts):
        return "…"
    text = repr(key)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def frame_variables(frame: types.FrameType) -> list[tuple[str, Any]]:
    """Return the variables of a function, and keep none alive."""
    namespace: Any = frame.f_locals
    variables = list(namespace.items())
    if type(namespace) is dict and sys.getrefcount(namespace) == _OWN:
        namespace.clear()
    return variables


def _count_own() -> int:
    """Return the number of references that `frame_variables` counts to a frame's dict without other references."""
    namespace: Any = sys._getframe().f_locals
    return sys.getrefcount(namespace) if type(namespace) is dict else 0


_OWN = _count_own()


def search_of_memory(roots: Iterable[SearchRoot]) -> OwnerSearch:
    """Search everything that named objects lead to, texts included."""
    search = OwnerSearch(set(), tuple(kind for kind in ATOMS if kind not in (str, bytes)))
    search.walk(list(roots))
    return search


def attributes(
    label: str, namespace: Mapping[str, Any], remedy: Any = "", by: str = ".", without: tuple[type, ...] = ()
) -> Iterator[SearchRoot]:
    """Yield the values of a class's or a module's namespace that may lead to memory, and of the classes defined in it.

    The classes `without` and inside themselves are skipped.
    """
    home = namespace.get("__module__", namespace.get("__name__"))
    for name, value in list(namespace.items()):
        if name.startswith("__"):
            continue
        if not issubclass(type(value), ATOMS):
            yield SearchRoot("attribute", f"{label}{by}{name}", value, remedy)
        inside = vars(value) if issubclass(type(value), type) else {}
        if inside.get("__module__", 0) == home and not any(value is other for other in without):
            yield from attributes(f"{label}{by}{name}", inside, remedy, without=(*without, value))
