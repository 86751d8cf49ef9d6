"""Memory that models keep outside of tensors: arrays, texts and containers that their attributes lead to.

A recording compares what each model keeps before and after. It counts objects that a bounded search finds, so the sizes
are lower limits, and calls no code of the models.
"""

from __future__ import annotations

import ast
import io
import os
import sys
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any
from weakref import WeakSet

import numpy as np

from bls_notebook.devices import backend_of, device_of
from bls_notebook.devices.allocation_log import owner_of, text_bytes
from bls_notebook.engine import LoadedModel, label_of, servers, source_of
from bls_notebook.profiling.code_lines import CodeLine
from bls_notebook.records import Remedy

from .allocation_site import lines_and_tree
from .owners import HostSpans, SearchRoot, host_span, is_torch_tensor, roots_of, search_of_memory
from .records import KeptGrowth

LEAST = 4096  # bytes that a model must keep more
_CONTAINERS = (list, dict, set, frozenset, deque, tuple, bytearray, array, io.BytesIO, io.StringIO)
_LEAST_CONTAINER = 1024
_NUMBER = sys.getsizeof(1.0)
_ADDS = frozenset(
    ["append", "appendleft", "add", "extend", "insert", "update", "setdefault", "put", "put_nowait", "push"]
)
_MOST_LINES = 3
_nbytes = np.ndarray.__dict__["nbytes"].__get__
_base = np.ndarray.__dict__["base"].__get__


def array_memory(value: Any) -> tuple[int, str, str] | None:
    """Return the size, the description and the device of an array that is no view of another one; else None."""
    kind = type(value)
    if issubclass(kind, np.ndarray):
        if issubclass(type(_base(value)), np.ndarray):
            return None
        plain = np.ndarray.view(value, np.ndarray)
        return int(_nbytes(value)), f"{plain.dtype.name} {list(plain.shape)}", "cpu"
    if backend_of(value) is not None:
        return int(value.nbytes), f"{value.dtype.name} {list(value.shape)}", device_of(value).label
    if is_torch_tensor(value):
        size = int(value.element_size() * value.nelement())
        return size, f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}", str(value.device)
    return None


def _bytes_of(value: Any) -> int:
    kind = type(value)
    if kind in (bytes, str):
        return len(value)
    if kind in _CONTAINERS:
        size = sys.getsizeof(value)
        if size >= _LEAST_CONTAINER and kind in (list, tuple, deque):  # each number is an object of its own
            size += _NUMBER * len({id(item) for item in tuple(value) if type(item) is float})
        return size if size >= _LEAST_CONTAINER else 0
    if is_torch_tensor(value):  # a view keeps all of its memory
        return host_span(value)[1]
    memory = array_memory(value)
    if memory is None or memory[2] != "cpu":  # a recording has each block of a GPU
        return 0
    return text_bytes(value) if kind is np.ndarray and value.dtype.char == "O" else memory[0]


class MemorySnapshot:
    """What the models in service keep now; `growth` compares it with what they keep later."""

    def __init__(self) -> None:
        self._models = WeakSet(_models())
        self._sizes, self._is_whole = _sizes(self._roots(), [])

    def growth(self, without: Iterable[Any] = ()) -> tuple[KeptGrowth, ...]:
        """Return what the same models keep more, the largest first, except memory that these arrays own."""
        if not self._is_whole:
            return ()
        sizes, _ = _sizes(self._roots(), list(without))  # a part shows at least some of the growth
        more = {owner: size - self._sizes[owner] for owner, size in sizes.items()}
        owners = sorted((o for o in more if more[o] >= LEAST), key=lambda owner: (-more[owner], owner))
        return tuple(self._grown(owner, more[owner]) for owner in owners)

    def _roots(self) -> Iterator[SearchRoot]:
        serving = set(_models())
        for model in sorted(self._models & serving, key=lambda model: (model.name, model.version)):
            yield from roots_of(model)

    def _grown(self, owner: str, size: int) -> KeptGrowth:
        for model in list(self._models):
            labels = (model.name, *(instance.name for instance in model.instances))
            if any(owner.startswith((f"{label}.", f"{label}/")) for label in labels):
                remedy = Remedy(f"repo.reload({model.name!r})", f"%tritonrepo reload {model.name}")
                return KeptGrowth(model.name, owner, size, tuple(_lines(model, owner)), remedy)
        return KeptGrowth("", owner, size)


def _models() -> Iterator[LoadedModel]:
    for server in list(servers):
        for name in server.names():
            yield from server.serving(name).values()


def _sizes(roots: Iterable[SearchRoot], others: Sequence[Any]) -> tuple[Counter[str], bool]:
    """Return the bytes of memory by owner (a path up to its first index), and whether the search is complete.

    Memory that `others` own does not count, nor does any memory twice.
    """
    search, without, spans, counted = search_of_memory(roots), set(map(id, others)), HostSpans(others), set[int]()
    sizes: Counter[str] = Counter()
    names: dict[int, str] = {}  # of containers, by ID
    for value in list(search.seen.values()):
        size = _bytes_of(value)
        is_array = issubclass(type(value), np.ndarray)
        if size == 0 or id(value) in without or (is_array and id(owner_of(value)) in without):
            continue
        if address := host_span(value)[0]:
            if address in counted or spans.owner(address) is not None:
                continue
            counted.add(address)
        around = id(search.parent_of(value))
        if around not in names:
            name = search.name_of(value)
            owner = name.partition("[")[0].partition(" (")[0]
            if owner == name:
                sizes[owner] += size
                continue
            names[around] = owner
        sizes[names[around]] += size
    return sizes, not search.was_cut


def process_bytes() -> int:
    """Return the bytes of memory that this process has; 0 if the platform does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _lines(model: LoadedModel, owner: str) -> Iterator[CodeLine]:
    """Yield the lines of a model's code that add to an owner: ``model.history``, ``model/model.py: CACHE``."""
    name = owner.replace(": ", ".").rpartition(".")[2]
    found: dict[CodeLine, None] = {}
    for file in _files(model):
        lines, tree = lines_and_tree(file)
        for number, function in sorted(_additions(tree, name)) if tree is not None else ():
            found[CodeLine(label_of(file), number, function, lines[number - 1].strip()[:200])] = None
    yield from list(found)[:_MOST_LINES]


def _files(model: LoadedModel) -> list[str]:
    """Return the files of a model's modules, as its code objects name them: cells have names of their own."""
    files: dict[str, None] = {}
    for instance in model.instances[:1]:
        modules: Mapping[str, Any] = {} if instance.modules is None else instance.modules.modules
        for module in list(modules.values()):
            values = list(vars(module).values())
            values += [member for value in values if isinstance(value, type) for member in vars(value).values()]
            for value in values:
                if isinstance(value, FunctionType) and value.__globals__ is vars(module):
                    files[value.__code__.co_filename] = None
    return [file for file in files if Path(file).suffix == ".py" or source_of(file)]


def _additions(tree: ast.Module, name: str) -> set[tuple[int, str]]:
    """Return the lines that add to a variable or attribute, each with its function."""
    found: dict[int, str] = {}
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for function in sorted(functions, key=lambda each: each.lineno):  # inner functions after the ones around them
        names = {name}
        if function.name == name:  # its default values, or its cache
            arguments = [*function.args.posonlyargs, *function.args.args]
            names = {a.arg for a in arguments[len(arguments) - len(function.args.defaults) :]}
            names |= {a.arg for a in function.args.kwonlyargs}
            if any("cache" in ast.unparse(each) for each in function.decorator_list):
                found[function.lineno] = name
        nodes: Iterable[Any] = ast.walk(function)
        found |= {node.lineno: function.name for node in nodes if any(_adds(node, n) for n in names)}
    return set(found.items())


def _adds(node: Any, name: str) -> bool:
    if isinstance(node, ast.Call):
        function = node.func
        return isinstance(function, ast.Attribute) and function.attr in _ADDS and _is(function.value, name)
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Subscript) and _is(target.value, name) for target in targets):
            return True
        is_target = any(_is(target, name) for target in targets)
        return is_target and (isinstance(node, ast.AugAssign) or any(_is(each, name) for each in ast.walk(node.value)))
    return False


def _is(node: ast.AST, name: str) -> bool:
    """Return whether an expression is a variable or an attribute of this name, or an item of it."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return getattr(node, "attr", None) == name or getattr(node, "id", None) == name
