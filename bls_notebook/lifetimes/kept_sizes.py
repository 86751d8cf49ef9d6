"""The bytes of memory that named objects lead to: arrays, texts and containers.

A worker runs this module, too (`memory_of`), so it imports only `owner_search`, and its Python may be 3.8.
"""

from __future__ import annotations

import io
import sys
from array import array
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.lifetimes.owner_search import (
    HostSpans,
    OwnerSearch,
    SearchRoot,
    attributes,
    host_span,
    is_torch_tensor,
    opened,
    search_of_memory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CONTAINERS = (list, dict, set, frozenset, deque, tuple, bytearray, array, io.BytesIO, io.StringIO)
_LEAST_CONTAINER = 1024
_NUMBER = sys.getsizeof(1.0)
_nbytes = np.ndarray.__dict__["nbytes"].__get__
_base = np.ndarray.__dict__["base"].__get__


LEAST_TEXT = 1 << 16  # bytes; smaller texts have no name in `named_memory`

device_arrays: list[Callable[[Any], tuple[int, str, str] | None]] = []
"""Functions that return the size, the description and the device of an array on a GPU; None for other objects."""


def array_memory(value: Any) -> tuple[int, str, str] | None:
    """Return the size, the description and the device of an array that is no view of another one; else None."""
    kind = type(value)
    if issubclass(kind, np.ndarray):
        if issubclass(type(_base(value)), np.ndarray):
            return None
        return int(_nbytes(value)), _text(value), "cpu"
    for describe in device_arrays:
        described = describe(value)
        if described is not None:
            return described
    if is_torch_tensor(value):
        size = int(value.element_size() * value.nelement())
        return size, f"{str(value.dtype).replace('torch.', '')} {list(value.shape)}", str(value.device)
    return None


def _text(array: Any) -> str:
    plain = np.ndarray.view(array, np.ndarray)
    return f"{plain.dtype.name} {list(plain.shape)}"


def _bytes_of(value: Any) -> int:
    kind = type(value)
    if kind in (bytes, str):
        return len(value)
    if kind in _CONTAINERS:
        size = sys.getsizeof(value)
        if size >= _LEAST_CONTAINER and kind in (list, tuple, deque):  # each number is an object of its own
            size += _NUMBER * len({id(item) for item in tuple(value) if type(item) in (float, int)})
        return size
    if is_torch_tensor(value):  # a view keeps all of its memory
        return host_span(value)[1]
    memory = array_memory(value)
    if memory is None or memory[2] != "cpu":  # a recording has each block of a GPU
        return 0
    if kind is not np.ndarray or value.dtype.char != "O":
        return memory[0]
    elements = value.reshape(-1).tolist()
    return 4 * len(elements) + sum(len(e) for e in elements if type(e) in (bytes, str))


def sizes_by_owner(
    search: OwnerSearch, others: Sequence[Any] = (), owner_of: Callable[[Any], Any] = lambda array: array
) -> Counter[str]:
    """Return the bytes of memory that a search found by owner: a path up to its first index.

    Memory that `others` own does not count, nor does any memory twice.
    """
    without, spans = set(map(id, others)), HostSpans(others)
    counted: set[int] = set()
    sizes: Counter[str] = Counter()
    names: dict[int, str] = {}  # of containers, by ID
    for value in list(search.seen.values()):
        size = _bytes_of(value)
        is_array = issubclass(type(value), np.ndarray)
        if size == 0 or id(value) in without or (is_array and id(owner_of(value)) in without):
            continue
        address = host_span(value)[0]
        if address:
            if address in counted or spans.owner(address) is not None:
                continue
            counted.add(address)
        around = id(search.parent_of(value))
        if around not in names:
            name = search.name_of(value)
            owner = _owner(name)
            if owner == name:
                sizes[owner] += size
                continue
            names[around] = owner
        sizes[names[around]] += size
    return sizes


def _owner(name: str) -> str:
    return name.partition("[")[0].partition(" (")[0]


def named_memory(search: OwnerSearch, most: int) -> tuple[list[tuple[str, int, str, str]], int]:
    """Return the name, bytes, description and device of the largest arrays and texts, and the bytes of all of them."""
    every = ((_described(value, search.parent_of(value)), value) for value in list(search.seen.values()))
    found = [(memory, value) for memory, value in every if memory]
    found.sort(key=lambda pair: -pair[0][0])
    return [(search.name_of(value), *memory) for memory, value in found[:most]], sum(each[0] for each, _ in found)


def _described(value: Any, parent: Any) -> tuple[int, str, str] | None:
    """Return the memory of a value if it is an array, not a view of another one, or a large text.

    The bytes of a message are described as the array that a model sees in them.
    """
    memory = array_memory(value)
    if memory is not None and issubclass(type(parent), np.ndarray) and int(_nbytes(parent)) == memory[0]:
        return memory[0], _text(parent), memory[2]
    if memory is None and type(value) in (bytes, bytearray, str) and len(value) >= LEAST_TEXT:
        return len(value), type(value).__name__, "cpu"
    return memory


def memory_of(worker: Any, label: str, most: int) -> dict[str, Any]:
    """Return the memory that a worker's model keeps, as plain data: bytes, tensors, requests and responses by owner.

    Called in the worker.
    """
    api: Any = sys.modules["triton_python_backend_utils"]
    names = ("Tensor", "InferenceRequest", "InferenceResponse")
    opened[:] = [{vars(api)[name]: name for name in names if name in vars(api)}]
    search = search_of_memory(_roots_in_worker(worker, label))
    held = (value for value in list(search.seen.values()) if type(value) in opened[0])
    objects = Counter(_owner(search.name_of(value)) for value in held)
    named, total = named_memory(search, most)
    sizes = sizes_by_owner(search)
    return {"sizes": sizes, "objects": objects, "whole": not search.was_cut, "named": named, "bytes": total}


def _roots_in_worker(worker: Any, label: str) -> Iterator[SearchRoot]:
    yield SearchRoot("attribute", label, worker.model)
    for kind in type(worker.model).__mro__[:-1]:
        yield from attributes(label, vars(kind))
    for name, module in list(sys.modules.items()):
        variables = vars(module) if type(module) is type(sys) else {}
        if str(variables.get("__file__")).startswith(tuple(worker.folders)):
            file = f"{label}/{name.rpartition('.')[2]}.py: "
            yield from attributes(file, variables, by="", without=type(worker.model).__mro__)
