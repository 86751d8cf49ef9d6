"""Find the owners that keep a block of memory alive: search from named objects down to the block.

`providers` yield the named objects: notebook variables, loaded models, running functions. If none of them
leads to a block, the search continues from suspended generators and coroutines and from the user's modules.

Guarantees: the search is bounded in objects and in time, changes nothing, and calls no code of the objects.
A block that it did not reach has no owner in the result.
"""

from __future__ import annotations

import gc
import sys
import sysconfig
import types
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import CO_OPTIMIZED
from itertools import chain
from time import perf_counter
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any

import numpy as np

from bls_notebook.devices import backend_of
from bls_notebook.devices.allocation_log import gpu_block, owner_kinds
from bls_notebook.devices.instance_gpu import foreign_blocks
from bls_notebook.engine import LoadedModel, Ticket, TicketStream, servers, stacks, variables_of
from bls_notebook.lifetimes.records import Holder
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse, ResponseIterator
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records import Remedy, shortened

SECONDS = 0.5  # for each of the two searches
OBJECTS = 300_000
AT_FIRST = 1_000  # objects of each root that are visited first, so that a large root hides no other
MOST = 4  # owners of a block
PARENTS = 6  # referrers of an object that are kept
ELEMENTS = 1000  # the most elements of an object array that are visited
_FRAMES = 20  # of a traceback
_SHORT = 40  # characters of a dict's key in a path
# Modules whose frames and objects lead to every test, by the beginnings of their names.
_TEST_RUNNERS = ("_pytest.", "pluggy.", "xdist.", "execnet.", "__channelexec__")

# Objects that hold no tensor, or lead into all of Python.
ATOMS: tuple[type, ...] = (
    int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, type, np.generic, np.dtype,
    types.ModuleType, types.CodeType, types.MemberDescriptorType, types.GetSetDescriptorType, types.FrameType,
)  # fmt: skip

owner_kinds.update({
    Tensor: "tensor", InferenceRequest: "request", InferenceResponse: "response", ResponseIterator: "iterator",
    TicketStream: "iterator", Ticket: "request",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class SearchRoot:
    """A named object where the search begins.

    ``kind`` and ``name`` have the values of `Holder`. ``remedy`` is what to type to release it; empty for a variable
    means ``del`` and its path.
    """

    kind: str
    name: str
    value: Any
    remedy: str | Remedy = ""


# Each provider is called when a search begins. Names of the first providers are listed first.
providers: list[Callable[[], Iterable[SearchRoot]]] = []


def find_holders(
    owners: Mapping[int, Any], gpu: Mapping[int, tuple[str, int]], roots: Iterable[SearchRoot]
) -> dict[int, tuple[Holder, ...]]:
    """Return the holders of blocks by their numbers; a block without known holders is absent.

    `owners` are the objects that own blocks in host memory, `gpu` the keys of blocks on a GPU. Holders below the
    first roots come first.
    """
    holders = _holders_from(list(roots), owners, gpu)
    rest = {number: owner for number, owner in owners.items() if number not in holders}
    rest_on_gpu = {number: key for number, key in gpu.items() if number not in holders}
    if rest or rest_on_gpu:
        holders |= _holders_from(list(_hidden_roots()), rest, rest_on_gpu)
    return holders


def reachable(roots: Iterable[SearchRoot]) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Yield the objects that named objects lead to, texts included, with a function that returns the shortest name."""
    search = search_of_memory(roots)
    yield from ((value, partial(search.name_of, value)) for value in list(search.seen.values()))


def search_of_memory(roots: Iterable[SearchRoot]) -> OwnerSearch:
    """Search everything that named objects lead to, texts included."""
    search = OwnerSearch(set(), tuple(kind for kind in ATOMS if kind not in (str, bytes)))
    search.walk(list(roots))
    return search


def _holders_from(
    roots: list[SearchRoot], owners: Mapping[int, Any], gpu: Mapping[int, tuple[str, int]]
) -> dict[int, tuple[Holder, ...]]:
    search = OwnerSearch({id(owner) for owner in owners.values()}, spans=HostSpans(owners.values()))
    search.walk(roots)
    memories = {number: search.memories[key] for number, key in gpu.items() if key in search.memories}
    by_block = {number: search.holders(owner) for number, owner in [*owners.items(), *memories.items()]}
    return {number: holders for number, holders in by_block.items() if holders}


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

    def owner(self, address: int) -> Any:
        """Return the object whose memory contains an address; None without one."""
        place = bisect_right(self._spans, address, key=lambda span: span[0]) - 1
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
        self._nodes = set[Any]()  # of autograd graphs
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

    def holders(self, owner: Any) -> tuple[Holder, ...]:
        """Return the named objects that lead to an object, the shortest path first."""
        out: dict[tuple[str, str], Holder] = {}
        queue: deque[tuple[Any, ...]] = deque([(owner,)])
        passed: Counter[int] = Counter((id(owner),))  # paths through an object
        while queue and len(out) < MOST:
            way = queue.popleft()
            for root in self._roots.get(id(way[0]), ()):
                if any(type(value) is dict and "__builtins__" in value for value in way):
                    continue  # the path leads through a module's namespace, whose variables are roots themselves
                holder = _holder(root, way)
                out.setdefault((holder.kind, holder.name), holder)
            for parent in self._parents.get(id(way[0]), ()):
                if passed[id(parent)] < MOST and all(parent is not other for other in way):
                    passed[id(parent)] += 1
                    queue.append((parent, *way))
        return tuple(out.values())[:MOST]

    @property
    def was_cut(self) -> bool:
        """Return whether the search reached its limit."""
        return self._left <= 0

    def parent_of(self, value: Any) -> Any:
        """Return the first object that leads to an object; None for a root."""
        return next(iter(self._parents.get(id(value), ())), None)

    def name_of(self, value: Any) -> str:
        """Return the shortest path to an object, "" if none is known."""
        return next((holder.name for holder in self.holders(value)), "")

    def _inside(self, value: Any) -> Iterable[Any]:
        """Return the objects that an object refers to, except objects that lead into all of Python."""
        if issubclass(type(value), np.ndarray):
            return _of_array(value)
        if issubclass(type(value), types.FunctionType):
            return (*(value.__closure__ or ()), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        if type(value) in _HIDDEN:
            with suppress(Exception):  # a closed iterator
                held = _HIDDEN[type(value)](value)
                return () if issubclass(type(held), self._atoms) else (held,)
            return ()
        if type(value) is types.TracebackType:
            return (*_of_frames(value.tb_frame), value.tb_next)
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


def _is_closed(kind: type) -> bool:
    """Return whether objects of a type contain no tensors, as most of this package, or lead to every test."""
    first, *_ = modules = [str(vars(base).get("__module__", "")) for base in kind.__mro__]
    ours = first.startswith("bls_notebook.") and kind not in owner_kinds
    return ours or any(name.startswith(_TEST_RUNNERS) for name in modules)


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
        yield from (child for _, child in _variables(frame) if not issubclass(type(child), ATOMS))
        frame = frame.f_back


def _holder(root: SearchRoot, way: tuple[Any, ...]) -> Holder:
    path, deletable = text_of_path(way)
    if root.kind == "frame":
        on_way = [owner_kinds[type(value)] for value in way if type(value) in owner_kinds]
        passed = [kind for kind in on_way if kind != "tensor"]
        return Holder(passed[0] if root.name == "" and passed else "frame", root.name)
    name = root.name + path
    remedy = root.remedy
    if error := next((value for value in way if isinstance(value, BaseException)), None):
        name += f" (the traceback of its {type(error).__name__})"
    if not remedy and root.kind == "variable":
        remedy = f"del {name if deletable else root.name}"
    return Holder(root.kind, name, remedy)


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
            variables = zip(parent.__code__.co_freevars, parent.__closure__ or (), strict=False)
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
    return shortened(text, _SHORT)


def frame_roots(asking: str) -> Iterator[SearchRoot]:
    """Yield the variables of the functions that run now, in any thread, except functions of the module `asking`."""
    skipped = (asking, __name__, stacks.__module__)
    running = chain.from_iterable(stacks().values())
    yield from _variables_of_frames(f for f in running if f.f_globals.get("__name__", "") not in skipped)


def _hidden_roots() -> Iterator[SearchRoot]:
    """Yield the variables of suspended generators and coroutines, of the user's own modules, and the last exception."""
    if (error := getattr(sys, "last_value", None)) is not None:
        yield SearchRoot("variable", "sys.last_value", error)
    kinds = {types.GeneratorType: "gi", types.CoroutineType: "cr", types.AsyncGeneratorType: "ag"}
    suspended = [(kinds[type(value)], value) for value in gc.get_objects() if type(value) in kinds]
    frames = [getattr(value, f"{kind}_frame") for kind, value in suspended if not getattr(value, f"{kind}_running")]
    yield from _variables_of_frames(frame for frame in frames if frame is not None)
    libraries = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and not file.startswith(libraries) and not name.startswith("bls_notebook."):
            yield from _attributes(name, vars(module))


def _variables_of_frames(frames: Iterable[types.FrameType]) -> Iterator[SearchRoot]:
    """Yield the variables of functions; module and class bodies are skipped, as other roots lead to their namespaces.

    The search keeps no variable alive and changes none. Before Python 3.13 a frame keeps the dict that
    `f_locals` returns, so it is emptied immediately unless other code refers to it; a frame in a debugger, which
    writes that dict back, is skipped. Coverage only counts lines.
    """
    for frame in frames:
        module = str(frame.f_globals.get("__name__", ""))
        debugged = frame.f_trace is not None and type(frame.f_trace).__module__ != "coverage"
        if frame.f_code.co_flags & CO_OPTIMIZED and not debugged and not module.startswith(_TEST_RUNNERS):
            ours = module.startswith("bls_notebook.")
            for name, value in _variables(frame):
                if not issubclass(type(value), (*ATOMS, types.FunctionType)):
                    yield SearchRoot("frame", "" if ours else f"{name} in {frame.f_code.co_name}()", value)


def _variables(frame: types.FrameType) -> list[tuple[str, Any]]:
    namespace: Any = variables_of(frame)
    variables = list(namespace.items())
    if type(namespace) is dict and sys.getrefcount(namespace) == _OWN:
        namespace.clear()
    return variables


def _count_own() -> int:
    """Return the number of references that `_variables` counts to a frame's dict without other references."""
    namespace: Any = sys._getframe().f_locals
    return sys.getrefcount(namespace) if type(namespace) is dict else 0


_OWN = _count_own()


def _model_roots() -> Iterator[SearchRoot]:
    for server in list(servers):
        if server.last_failure is not None:
            yield SearchRoot("attribute", "repo.last_failure", server.last_failure)
        for name in server.names():
            for loaded in server.serving(name).values():
                yield from roots_of(loaded)


def roots_of(loaded: LoadedModel) -> Iterator[SearchRoot]:
    """Yield the objects of a model version: its instances' models, their classes, globals of its files."""
    remedy = Remedy(f"repo.reload({loaded.name!r})", f"%tritonrepo reload {loaded.name}")
    for instance in loaded.instances:
        model = getattr(instance.backend, "model", None)
        if model is None:
            continue
        label = loaded.name if len(loaded.instances) == 1 else instance.name
        yield SearchRoot("attribute", label, model, remedy)
        for kind in type(model).__mro__[:-1]:
            yield from _attributes(label, vars(kind), remedy)
        home = instance.modules
        for name, module in [] if home is None else list(home.modules.items()):
            file = f"{label}/{name.rpartition('.')[2]}.py: "
            yield from (root for root in _attributes(file, vars(module), remedy, by="") if root.value is not home)


def _attributes(
    label: str, namespace: Mapping[str, Any], remedy: str | Remedy = "", by: str = "."
) -> Iterator[SearchRoot]:
    for name, value in list(namespace.items()):
        if not name.startswith("__") and not issubclass(type(value), ATOMS):
            yield SearchRoot("attribute", f"{label}{by}{name}", value, remedy)


providers.append(_model_roots)
