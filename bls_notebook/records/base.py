"""One base for every record: frozen, plain, short in a list, and to JSON and back by its type hints alone."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

R = TypeVar("R", bound="Record")

_LONGEST = 200  # characters of what is told of a record
_TEXT, _ITEMS = 40, 4  # characters of a text in it, items of a tuple


class Record:
    """A frozen dataclass made of text, numbers, ``None``, tuples and other records.

    Subclasses are dataclasses with ``repr=False``: a session has thousands of spans, and where it stands in a
    list or in an error message a line about it is enough.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        told: list[str] = []
        room = _LONGEST
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value == field.default:
                continue
            told.append(f"{field.name}={_short(value)}")
            room -= len(told[-1]) + 2
            if room < 0:
                told[-1] = "…"
                break
        return f"{type(self).__name__}({', '.join(told)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as dicts, lists and plain values that ``json.dumps`` takes."""
        return dict(plain(self))

    @classmethod
    def from_dict(cls: type[R], data: Mapping[str, Any]) -> R:
        """Build a record equal to the one that `to_dict` was called on, also after a trip through JSON.

        Fields that have a default may be left out.

        Raises
        ------
        ValueError
            If a field is unknown, missing or of another type; the message gives its path.
        """
        return _record(cls, data, cls.__name__)


_known: dict[type[Any], dict[str, Any]] = {}


def _hints(cls: type[Any]) -> dict[str, Any]:
    if cls not in _known:
        hints = get_type_hints(cls)
        _known[cls] = {field.name: hints[field.name] for field in fields(cls)}
    return _known[cls]


def _short(value: Any) -> str:
    """Spell a field's value: short texts and numbers whole, of records and long tuples what they are."""
    if isinstance(value, str):
        return repr(value if len(value) <= _TEXT else f"{value[: _TEXT - 1]}…")
    if isinstance(value, Record):
        return f"<{type(value).__name__}>"
    if isinstance(value, tuple) and value:
        if isinstance(value[0], Record):
            return f"<{len(value):,} {type(value[0]).__name__}>"
        if len(value) > _ITEMS:
            return f"<{len(value):,} items>"
        return f"({', '.join(map(_short, value))}{',' * (len(value) == 1)})"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def plain(value: Any, *, defaults: bool = True) -> Any:
    """Return a record as plain data; without `defaults` the fields are left out that have theirs."""
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
        plain = [kind for kind in arguments if kind is not type(None)]
        if len(plain) == 1:
            return _value(plain[0], value, path)
        return _scalar(tuple(plain), value, path)
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
    # Exact types: True is not an int here, because JSON tells the two apart.
    if type(value) in kinds:
        return value
    if float in kinds and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{path}: expected float, got a whole number beyond it") from None
    expected = " or ".join(kind.__name__ for kind in kinds)
    raise ValueError(f"{path}: expected {expected}, got {type(value).__name__}")
