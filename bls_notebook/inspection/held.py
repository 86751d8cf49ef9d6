"""The memory that a model keeps: arrays that can be reached from its attributes and its files' variables.

Bounded in time and objects; nothing of the model is asked for anything: what C keeps of its objects is read.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

import numpy as np

from bls_notebook.devices.registry import backend_of
from bls_notebook.devices.transfers import device_of
from bls_notebook.engine.description import ModelHome
from bls_notebook.lifetimes.owners import ATOMS, SearchRoot

from .model_view import Held

SECONDS, OBJECTS, ITEMS = 0.25, 50_000, 1_000
LEAST = 1 << 16  # bytes of a text that count as memory
_nbytes = np.ndarray.__dict__["nbytes"].__get__
_base = np.ndarray.__dict__["base"].__get__


def held_by(roots: Iterable[SearchRoot]) -> list[Held]:
    """Return what is held under each name, the largest first; memory that has several counts once."""
    deadline, left = perf_counter() + SECONDS, OBJECTS
    queue = deque((root.name, root.value) for root in roots)
    seen: dict[int, Any] = {}
    found: list[Held] = []
    while queue and left and perf_counter() < deadline:
        name, value = queue.popleft()
        left -= 1
        owner = _owner(value)
        if id(owner) in seen:
            continue
        seen[id(owner)] = owner  # kept, so that no number is used again meanwhile
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


def _memory(name: str, value: Any, owner: Any) -> Held | None:
    """What a value takes, if it is memory."""
    kind = type(value)
    if issubclass(kind, np.ndarray):
        plain = np.ndarray.view(value, np.ndarray)
        return Held(name, int(_nbytes(owner)), f"{plain.dtype.name} {list(plain.shape)}")
    if backend_of(value) is not None:
        return Held(
            name, int(value.nbytes), f"{value.dtype.name} {list(value.shape)}", device_of(value).label
        )
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if isinstance(tensor, type) and issubclass(kind, tensor):
        size = int(value.element_size() * value.nelement())
        return Held(
            name, size, f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}", str(value.device)
        )
    if kind in (bytes, bytearray, str) and len(value) >= LEAST:
        return Held(name, len(value), kind.__name__)
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
