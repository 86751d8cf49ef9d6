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
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from inspect import CO_OPTIMIZED
from itertools import chain
from typing import Any

from bls_notebook.devices import backend_of
from bls_notebook.devices.allocation_log import gpu_block, owner_kinds
from bls_notebook.devices.instance_gpu import foreign_blocks
from bls_notebook.engine import LoadedModel, Ticket, TicketStream, no_collection, servers, stacks
from bls_notebook.lifetimes.records import Holder
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse, ResponseIterator
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records import Remedy

from .owner_search import (
    ATOMS,
    MOST,
    TEST_RUNNERS,
    HostSpans,
    OwnerSearch,
    SearchRoot,
    attributes,
    device_blocks,
    frame_variables,
    name_at,
    opened,
    search_of_memory,
    text_of_path,
)

owner_kinds.update({
    Tensor: "tensor", InferenceRequest: "request", InferenceResponse: "response", ResponseIterator: "iterator",
    TicketStream: "iterator", Ticket: "request",
})  # fmt: skip


def _device_block(value: Any) -> tuple[tuple[str, int], Any] | None:
    if backend_of(value) is not None:
        return gpu_block(value)[0], value.data.mem
    blocks = (block for find in foreign_blocks if (block := find(value)) is not None)
    return next((((block.device.name, block.key), block) for block in blocks), None)


device_blocks.append(_device_block)
opened.append(owner_kinds)

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


def _holders_from(
    roots: list[SearchRoot], owners: Mapping[int, Any], gpu: Mapping[int, tuple[str, int]]
) -> dict[int, tuple[Holder, ...]]:
    search = OwnerSearch({id(owner) for owner in owners.values()}, spans=HostSpans(owners.values()))
    search.walk(roots)
    memories = {number: search.memories[key] for number, key in gpu.items() if key in search.memories}
    by_block = {number: _holders(search, owner) for number, owner in [*owners.items(), *memories.items()]}
    return {number: holders for number, holders in by_block.items() if holders}


def _holders(search: OwnerSearch, owner: Any) -> tuple[Holder, ...]:
    """Return the named objects that lead to an object, the shortest path first."""
    out: dict[tuple[str, str], Holder] = {}
    for root, way in search.ways(owner):
        holder = _holder(root, way)
        out.setdefault((holder.kind, holder.name), holder)
        if len(out) == MOST:
            break
    return tuple(out.values())


def _holder(root: SearchRoot, way: tuple[Any, ...]) -> Holder:
    if root.kind == "frame":
        on_way = [owner_kinds[type(value)] for value in way if type(value) in owner_kinds]
        passed = [kind for kind in on_way if kind != "tensor"]
        return Holder(passed[0] if root.name == "" and passed else "frame", root.name)
    name, deletable = name_at(root, way)
    remedy = root.remedy
    if not remedy and root.kind == "variable":
        remedy = f"del {root.name}{text_of_path(way)[0] if deletable else ''}"
    return Holder(root.kind, name, remedy)


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
            yield from attributes(name, vars(module))


def _variables_of_frames(frames: Iterable[types.FrameType]) -> Iterator[SearchRoot]:
    """Yield the variables of functions; module and class bodies are skipped, as other roots lead to their namespaces.

    The search keeps no variable alive and changes none. Before Python 3.13 a frame keeps the dict that
    `f_locals` returns, so it is emptied immediately unless other code refers to it; a frame in a debugger, which
    writes that dict back, is skipped. Coverage only counts lines.
    """
    for frame in frames:
        module = str(frame.f_globals.get("__name__", ""))
        debugged = frame.f_trace is not None and type(frame.f_trace).__module__ != "coverage"
        if frame.f_code.co_flags & CO_OPTIMIZED and not debugged and not module.startswith(TEST_RUNNERS):
            ours = module.startswith("bls_notebook.")
            with no_collection():
                variables = frame_variables(frame)
            for name, value in variables:
                if not issubclass(type(value), (*ATOMS, types.FunctionType)):
                    yield SearchRoot("frame", "" if ours else f"{name} in {frame.f_code.co_name}()", value)


def _model_roots() -> Iterator[SearchRoot]:
    for server in list(servers):
        if server.last_failure is not None:
            yield SearchRoot("attribute", "repo.last_failure", server.last_failure)
        for name in server.names():
            for loaded in server.serving(name).values():
                yield from roots_of(loaded)
                for instance, process in loaded.processes.items():
                    kept = f"a request in the process of {instance}"
                    yield from (
                        SearchRoot("attribute", kept, each, _reload(loaded)) for each in process.upcalls.requests()
                    )


def _reload(loaded: LoadedModel) -> Remedy:
    return Remedy(f"repo.reload({loaded.name!r})", f"%tritonrepo reload {loaded.name}")


def roots_of(loaded: LoadedModel) -> Iterator[SearchRoot]:
    """Yield the objects of a model version: its instances' models, their classes, globals of its files."""
    remedy = _reload(loaded)
    for instance in loaded.instances:
        model = getattr(instance.backend, "model", None)
        if model is None:
            continue
        label = loaded.name if len(loaded.instances) == 1 else instance.name
        yield SearchRoot("attribute", label, model, remedy)
        for kind in type(model).__mro__[:-1]:
            yield from attributes(label, vars(kind), remedy)
        home = instance.modules
        for name, module in [] if home is None else list(home.modules.items()):
            file = f"{label}/{name.rpartition('.')[2]}.py: "
            values = attributes(file, vars(module), remedy, by="", without=type(model).__mro__)
            yield from (root for root in values if root.value is not home)


providers.append(_model_roots)
