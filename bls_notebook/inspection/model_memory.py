"""Find the arrays that a model keeps: those reachable from its attributes and its modules' variables.

Bounded in time and objects. It reads objects directly and never calls code of the model.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

import numpy as np

from bls_notebook.devices.registry import backend_of, device_of
from bls_notebook.engine.exception_text import ModelHome
from bls_notebook.lifetimes.owners import ATOMS, SearchRoot

from .records import KeptMemory

SECONDS, OBJECTS, ITEMS = 0.25, 50_000, 1_000
LEAST = 1 << 16  # bytes; smaller texts are ignored
_nbytes = np.ndarray.__dict__["nbytes"].__get__
_base = np.ndarray.__dict__["base"].__get__


def kept_memory(roots: Iterable[SearchRoot]) -> list[KeptMemory]:
    """Return the memory that each name refers to, largest first; shared memory counts once."""
    deadline, left = perf_counter() + SECONDS, OBJECTS
    queue = deque((root.name, root.value) for root in roots)
    seen: dict[int, Any] = {}
    found: list[KeptMemory] = []
    while queue and left and perf_counter() < deadline:
        name, value = queue.popleft()
        left -= 1
        owner = _owner(value)
        if id(owner) in seen:
            continue
        seen[id(owner)] = owner  # a reference, so that no `id` is reused
        memory = _memory(name, value, owner)
        if memory is not None:
            found.append(memory)
        else:
            queue.extend(_inside(name, value))
    return sorted(found, key=lambda each: -each.bytes)


def _owner(value: Any) -> Any:
    while issubclass(type(value), np.ndarray) and issubclass(type(_base(value)), np.ndarray):
        value = _base(value)
    return value


def _memory(name: str, value: Any, owner: Any) -> KeptMemory | None:
    """Return a value's memory if it is an array or a large text."""
    kind = type(value)
    if issubclass(kind, np.ndarray):
        plain = np.ndarray.view(value, np.ndarray)
        return KeptMemory(name, int(_nbytes(owner)), f"{plain.dtype.name} {list(plain.shape)}")
    if backend_of(value) is not None:
        return KeptMemory(name, int(value.nbytes), f"{value.dtype.name} {list(value.shape)}", device_of(value).label)
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if isinstance(tensor, type) and issubclass(kind, tensor):
        size = int(value.element_size() * value.nelement())
        return KeptMemory(
            name, size, f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}", str(value.device)
        )
    if kind in (bytes, bytearray, str) and len(value) >= LEAST:
        return KeptMemory(name, len(value), kind.__name__)
    return None


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if issubclass(kind, (*ATOMS, ModelHome)) or str(kind.__module__).startswith("bls_notebook."):
        return
    if issubclass(kind, dict):
        for key, item in list(dict.items(value))[:ITEMS]:
            label = repr(key)[:60] if type(key) in (str, int, bytes) else f"<{type(key).__name__}>"
            yield f"{name}[{label}]", item
    elif issubclass(kind, (list, tuple, set, frozenset, deque)):
        few = list(kind.__iter__(value))[:ITEMS] if kind in (list, tuple, set, frozenset, deque) else []
        for i, item in enumerate(few):
            yield f"{name}[{i}]", item
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return
    if type(attributes) is dict:
        for key, item in list(attributes.items())[:ITEMS]:
            yield f"{name}.{key}", item
