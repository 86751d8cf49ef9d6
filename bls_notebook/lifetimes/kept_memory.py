"""Memory that models keep outside of tensors: arrays, texts and containers that their attributes lead to.

A recording compares what each model keeps before and after. It counts objects that a bounded search finds, so the sizes
are lower limits, and calls no code of the models.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any
from weakref import WeakSet

from bls_notebook.backends import ask, results
from bls_notebook.devices import backend_of, device_of, resident_bytes
from bls_notebook.devices.allocation_log import owner_of
from bls_notebook.engine import LoadedModel, label_of, servers, source_of
from bls_notebook.profiling.code_lines import CodeLine
from bls_notebook.records import Remedy

from .allocation_site import lines_and_tree
from .kept_sizes import device_arrays, sizes_by_owner
from .owner_search import SearchRoot, search_of_memory
from .owners import roots_of
from .records import KeptGrowth

LEAST = 4096  # bytes that a model must keep more
_ADDS = frozenset(
    ["append", "appendleft", "add", "extend", "insert", "update", "setdefault", "put", "put_nowait", "push"]
)
_MOST_LINES = 3
SEARCH = "bls_notebook.lifetimes.owner_search", "bls_notebook.lifetimes.kept_sizes"  # the code of a worker


def _gpu_array(value: Any) -> tuple[int, str, str] | None:
    if backend_of(value) is None:
        return None
    return int(value.nbytes), f"{value.dtype.name} {list(value.shape)}", device_of(value).label


device_arrays.append(_gpu_array)


class MemorySnapshot:
    """What the models in service keep now; `growth` compares it with what they keep later."""

    def __init__(self) -> None:
        self._models = WeakSet(_models())
        search = search_of_memory(self._roots())
        self._sizes, self._is_whole = sizes_by_owner(search), not search.was_cut
        self._workers = memory_of_workers(self._models)

    def growth(self, without: Iterable[Any] = ()) -> tuple[KeptGrowth, ...]:
        """Return what the same models keep more, the largest first, except memory that these arrays own."""
        grown: list[tuple[str, int, str]] = []  # owner, bytes, instance
        if self._is_whole:  # afterwards, a part shows at least some of the growth
            sizes = sizes_by_owner(search_of_memory(self._roots()), list(without), owner_of)
            more = {owner: size - self._sizes[owner] for owner, size in sizes.items()}
            grown += [(owner, size, "") for owner, size in more.items() if size >= LEAST]
        for (instance, pid), now in memory_of_workers(self._models).items():
            before = self._workers.get((instance, pid))
            if now is not None and before is not None and before["whole"]:
                more = Counter(now["sizes"]) - Counter(before["sizes"])
                # Tensors and requests that a process keeps are no blocks of the kernel, so a single one counts.
                objects = Counter(now["objects"]) - Counter(before["objects"])
                owners = dict.fromkeys([*objects, *(owner for owner, size in more.items() if size >= LEAST)])
                grown += [(owner, more[owner], instance) for owner in owners]
        grown.sort(key=lambda each: (-each[1], each[0]))
        return tuple(self._grown(*each) for each in grown)

    def unknown(self) -> tuple[str, ...]:
        """Return the instances whose processes did not say what they keep."""
        return tuple(instance for (instance, _), memory in self._workers.items() if memory is None)

    def _roots(self) -> Iterator[SearchRoot]:
        serving = set(_models())
        for model in sorted(self._models & serving, key=lambda model: (model.name, model.version)):
            yield from roots_of(model)

    def _grown(self, owner: str, size: int, instance: str) -> KeptGrowth:
        for model in list(self._models):
            labels = (model.name, *(instance.name for instance in model.instances))
            if any(owner.startswith((f"{label}.", f"{label}/")) for label in labels):
                remedy = Remedy(f"repo.reload({model.name!r})", f"%tritonrepo reload {model.name}")
                return KeptGrowth(model.name, owner, size, tuple(_lines(model, owner)), remedy, instance)
        return KeptGrowth("", owner, size, instance=instance)


def _models() -> Iterator[LoadedModel]:
    for server in list(servers):
        for name in server.names():
            yield from server.serving(name).values()


def memory_of_workers(models: Iterable[LoadedModel], most: int = 0) -> dict[tuple[str, int], Any]:
    """Return what the models in processes keep, by instance and process; None for one that does not answer.

    `most` is the number of the largest arrays and texts to name.
    """
    asked = {}
    for model in models:
        for instance, process in model.processes.items():
            if pid := process.pid:
                label = model.name if len(model.instances) == 1 else instance
                asked[instance, pid] = ask(process, SEARCH, "memory_of", label, most)
    return dict(zip(asked, results(asked.values()), strict=True))


def process_bytes(pid: int = 0) -> int:
    """Return the bytes of memory that a process has, by default this one; 0 if the platform does not say."""
    return max(0, resident_bytes(pid))


def private_bytes(pid: int) -> int:
    """Return the bytes that a process shares with no other one; all of its bytes if the platform does not say.

    A forked process shares memory with its fork server, and at first each page that it reads counts in `process_bytes`.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))
    except (OSError, ValueError, IndexError):
        return process_bytes(pid)


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
    files: dict[str, None] = dict.fromkeys(file for process in model.processes.values() for file in process.code_files)
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
