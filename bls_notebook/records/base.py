"""The base class of records: a short repr, and conversion to JSON and back by type hints."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .visible_text import shortened

R = TypeVar("R", bound="Record")

_LONGEST = 200  # characters of a record's repr
_TEXT, _ITEMS = 40, 4  # characters of a text, and items of a tuple, in a repr


# Functions that return the text that a cell shows for a value, or None if it has no display.
text_renderers: list[Callable[[object], str | None]] = []


class Printable:
    """A value for which `print` shows the same text as a notebook cell."""

    __slots__ = ()

    def __str__(self) -> str:
        texts = (render(self) for render in text_renderers)
        return next((text for text in texts if text is not None), repr(self))


class Record(Printable):
    """A frozen dataclass made of text, numbers, ``None``, tuples and other records.

    Subclasses are dataclasses with ``repr=False``: a session has thousands of spans, so its repr in a list or an error
    message is one line.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        parts: list[str] = []
        room = _LONGEST
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value == field.default:
                continue
            parts.append(f"{field.name}={_short(value)}")
            room -= len(parts[-1]) + 2
            if room < 0:
                parts[-1] = "…"
                break
        return f"{type(self).__name__}({', '.join(parts)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as dicts, lists and plain values for ``json.dumps``."""
        return dict(plain(self))

    @classmethod
    def from_dict(cls: type[R], data: Mapping[str, Any]) -> R:
        """Build a record from the result of `to_dict`, which may have passed through JSON.

        Fields with a default may be missing.

        Raises
        ------
        ValueError
            If a field is unknown, missing or has another type; the message names its path.
        """
        return _record(cls, data, cls.__name__)


_known: dict[type[Any], dict[str, Any]] = {}


def _hints(cls: type[Any]) -> dict[str, Any]:
    if cls not in _known:
        hints = get_type_hints(cls)
        _known[cls] = {field.name: hints[field.name] for field in fields(cls)}
    return _known[cls]


def _short(value: Any) -> str:
    """Return a field's value as short text; records and long tuples as their type and length."""
    if isinstance(value, str):
        return repr(shortened(value, _TEXT))
    if isinstance(value, Record):
        return f"<{type(value).__name__}>"
    if isinstance(value, tuple) and value:
        if isinstance(value[0], Record):
            return f"<{len(value):,} {type(value[0]).__name__}>"
        if len(value) > _ITEMS:
            return f"<{len(value):,} items>"
        return f"({', '.join(map(_short, value))}{',' if len(value) == 1 else ''})"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def plain(value: Any, *, defaults: bool = True) -> Any:
    """Return a record as plain data; without `defaults`, omit the fields with their default value."""
    if isinstance(value, Record):
        every = ((field, getattr(value, field.name)) for field in fields(value))  # type: ignore[arg-type]
        return {
            field.name: plain(found, defaults=defaults) for field, found in every if defaults or found != field.default
        }
    if isinstance(value, tuple):
        return [plain(item, defaults=defaults) for item in value]
    return value


def _record(cls: type[R], data: Any, path: str) -> R:
    if not isinstance(data, Mapping):
        raise ValueError(f"{path}: expected a mapping, got {type(data).__name__}")
    hints = _hints(cls)
    unknown = sorted(str(key) for key in data if key not in hints)
    if unknown:
        raise ValueError(f"{path}: no field {unknown[0]!r}; the fields are {', '.join(hints)}")
    needed = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}  # type: ignore[arg-type]
    missing = [name for name in hints if name in needed and name not in data]
    if missing:
        raise ValueError(f"{path}: field {missing[0]!r} is missing")
    return cls(**{name: _value(hints[name], data[name], f"{path}.{name}") for name in data})


def _value(hint: Any, value: Any, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return _items(arguments, value, path)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        kinds = [kind for kind in arguments if kind is not type(None)]
        if len(kinds) > 1:  # of several kinds, one may be a record
            kinds = [k for k in kinds if issubclass(k, Record) == isinstance(value, Mapping)] or kinds
        return _value(kinds[0], value, path) if len(kinds) == 1 else _scalar(tuple(kinds), value, path)
    if issubclass(hint, Record):
        return _record(hint, value, path)
    return _scalar((hint,), value, path)


def _items(arguments: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{path}: expected a list, got {type(value).__name__}")
    if arguments[-1] is Ellipsis:
        kinds = arguments[:1] * len(value)
    else:
        kinds = arguments
        if len(kinds) != len(value):
            raise ValueError(f"{path}: expected {len(kinds)} items, got {len(value)}")
    return tuple(_value(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _scalar(kinds: tuple[type[Any], ...], value: Any, path: str) -> Any:
    # Exact types: True is not accepted as an int, because JSON distinguishes them.
    if type(value) in kinds:
        return value
    if float in kinds and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{path}: expected float, got a whole number beyond it") from None
    expected = " or ".join(kind.__name__ for kind in kinds)
    raise ValueError(f"{path}: expected {expected}, got {type(value).__name__}")
