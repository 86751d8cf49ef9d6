"""How the way from a named object to one inside it is written: ``.kept[3]``."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any

_SHORT = 40  # characters of a key that is shown


def text_of_path(way: tuple[Any, ...]) -> tuple[str, bool]:
    """Return how to write the way from a named object to one inside, and whether ``del`` may stand before."""
    text, deletable, index = "", True, 0
    while index + 1 < len(way):
        parent, child = way[index], way[index + 1]
        after = way[index + 2] if index + 2 < len(way) else None
        if (
            isinstance(child, dict)
            and after is not None
            and _dict_of(parent) is child
            and not _is_of_a_library(parent)
        ):
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
