"""Changes of a callee's answer: other values, another length, another number of responses, an error. Pure.

A change is numbered; its effect depends on the data type. Integers and texts first stay among the values seen in the
recorded run, because answers are often indices or labels. `salt` varies a change from call to call, so that answers
changed together do not stay equal to one another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bls_notebook.pb_utils.dtypes import Array
from bls_notebook.pb_utils.errors import ErrorCode

from .named_values import NamedValue


@dataclass(frozen=True, eq=False)
class KeptResponse:
    """One response of a callee: its outputs on the CPU, their data types and GPUs; or its error."""

    outputs: Mapping[str, Array]
    error: str | None = None
    types: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)
    parameters: str = "{}"
    code: ErrorCode = ErrorCode.INTERNAL


KeptAnswer = tuple[KeptResponse, ...]
"""The responses of one call; several only if the callee is decoupled."""
Seen = Mapping[str, Sequence[Any]]
"""The values of each output of a callee: its least and greatest integers, or its texts."""


def _shifted(array: Array, salt: int, limits: Sequence[Any]) -> Array:
    span = limits[1] - limits[0] + 1
    if span > 1:
        return limits[0] + (array - limits[0] + 1 + salt % (span - 1)) % span  # type: ignore[no-any-return]
    return array - 1 - salt % 3 if limits[0] > 2 else array + 2 + salt % 3


def _rotated(char: str, by: int) -> str:
    first, length = ("0", 10) if char.isdecimal() else ("a" if char.islower() else "A", 26)
    return chr(ord(first) + (ord(char) - ord(first) + by) % length) if char.isascii() and char.isalnum() else char


_Make = Callable[[Any, int, Any], Any]
# Arguments: array (of objects if integers), salt; its least and greatest value, and the reach.
_NUMBERS: dict[str, _Make] = {
    "mirrored": lambda a, s, v: v[0] + v[1] - a,
    "shifted": lambda a, s, v: _shifted(a, s, v) if a.dtype == object else a * (1.37 + s % 16 / 64) + 0.11,
    "zeros": lambda a, s, v: a * 0,
    "large": lambda a, s, v: a * 1000 + v[2] + s % 16,
    "large negative": lambda a, s, v: -1000 * abs(a) - v[2] - s % 16,
}
_TEXTS: dict[str, _Make] = {  # arguments: one text (or a leaf of JSON), salt, all texts seen
    "other letters": lambda t, s, v: "".join(_rotated(char, 1 + s % 5) for char in t),
    "another number": lambda t, s, v: str(-int(t) - 1 - s % 5 if t.lstrip("-").isdecimal() else 7 + s % 5),
    "another answer": lambda t, s, v: [text for text in (*v, "no", "yes") if text != t][s % max(1, len(v) - 1)],
    "empty": lambda t, s, v: "",
    "doubled": lambda t, s, v: t + t,
}
ERROR = "replaced by an error"
_RESPONSES = (
    "last response dropped", "first response dropped", "all responses dropped", "first response twice",
    "last response changed",
)  # fmt: skip
_LENGTHS = ("longer", "shorter", "without its first row", "emptied", "wider")
_SHAPES = (*_LENGTHS, *_RESPONSES, ERROR)
CHANGES = (*_NUMBERS, *_SHAPES)
SUCCESS = KeptResponse({})
"""An answer made up from the callee's configuration."""


_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d*)?(?:[eE]\d+)?")
_FARTHEST = 10_000_000  # larger numbers, as the size of an array, could exhaust the memory


def reach_of(source: str) -> int:
    """Return a number beyond those in a source, with which answers are compared perhaps; at least 7."""
    numbers = (float(number) for number in _NUMBER.findall(source.replace("_", "")))
    return 7 + int(max((number for number in numbers if number <= _FARTHEST), default=0))


def name_of(change: int, kept: KeptAnswer, named: Sequence[NamedValue] = ()) -> str:
    """Return the words for a change of an answer."""
    if change >= len(CHANGES):
        return str(named[change - len(CHANGES)])
    if any(response.error is not None for response in kept):
        return "replaced by a success"
    is_text = any(array.dtype.kind in "OS" for response in kept for array in response.outputs.values())
    return (*(_TEXTS if is_text else _NUMBERS), *_SHAPES)[change]


def changed(
    kept: KeptAnswer,
    change: int,
    salt: int,
    seen: Seen,
    free: Mapping[str, Sequence[int]],
    reach: int = 7,
    named: Sequence[NamedValue] = (),
    decoupled: bool = False,
) -> KeptAnswer | None:
    """Return the answer with one change, or None if the change has no effect on it.

    `free` maps outputs to their axes of free length: the first becomes longer or shorter, the others are wider. Large
    numbers differ from the recorded ones by `reach` at least. Changes beyond `CHANGES` are those to a value of `named`.
    """
    value = named[change - len(CHANGES)] if change >= len(CHANGES) else None
    kind = "" if value is not None else CHANGES[change]
    if any(response.error is not None for response in kept):
        return None if change else (SUCCESS,)
    if kind == ERROR:
        return (KeptResponse({}, "an error in place of the recorded answer"),)
    if kind == "all responses dropped":
        return () if decoupled and kept else None
    if "response" in kind and len(kept) < 2:
        return None
    if kind == "last response dropped":
        return kept[:-1]
    if kind == "first response dropped":
        return kept[1:]
    if kind == "first response twice":
        return (kept[0], *kept)

    def output(name: str, array: Array) -> Array:
        if kind in _LENGTHS:
            axes = free.get(name, ())
            for axis in axes[1:] if kind == "wider" else axes[:1]:
                array = _other_length(array, kind, axis)
            return array
        if value is not None:
            return _with_value(array, value)
        return _other_values(array, change if kind in _NUMBERS else 0, salt, seen.get(name, ()), reach)

    made, first = list(kept), len(kept) - 1 if kind == "last response changed" else 0
    for number, response in enumerate(kept[first:], first):
        parameters = response.parameters
        if parameters != "{}" and kind not in _LENGTHS:
            parameters = _other_parameters(parameters, change if kind in _NUMBERS else 0, salt, value)
        outputs = {name: output(name, a) for name, a in response.outputs.items()}
        made[number] = replace(response, outputs=outputs, parameters=parameters)
    pairs = [(a.outputs[name], b.outputs[name]) for a, b in zip(kept, made, strict=True) for name in a.outputs]
    is_same = all(a.parameters == b.parameters for a, b in zip(kept, made, strict=True))
    return None if is_same and all(content(one) == content(other) for one, other in pairs) else tuple(made)


def content(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    """Return the dtype, shape and bits of an array, to compare it with others."""
    return array.dtype.str, array.shape, repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


def equal(one: Sequence[KeptAnswer], other: Sequence[KeptAnswer]) -> bool:
    """Return whether answers are equal bit by bit, or both errors."""

    def contents(answers: Sequence[KeptAnswer]) -> list[Any]:
        return [
            [(r.error is None, r.parameters, {name: content(a) for name, a in r.outputs.items()}) for r in kept]
            for kept in answers
        ]

    return contents(one) == contents(other)


def _other_length(array: Array, kind: str, free: int) -> Array:
    is_longer = kind in ("longer", "wider")
    if not 0 <= free < array.ndim or array.shape[free] < (1 if is_longer or kind == "emptied" else 2):
        return array
    if is_longer:
        return np.concatenate([array, np.take(array, [-1], free)], free)
    rows = slice(None) if kind == "emptied" else 0 if kind == "without its first row" else -1
    return np.delete(array, rows, free)


def _with_value(array: Array, named: NamedValue) -> Array:
    """Return an array of one value, or with this sum; unchanged if the data type does not allow it."""
    value = named.value
    if array.dtype.kind in "OS":
        new = np.empty(array.size, object)
        new[:] = [_with_leaves(item, named) for item in array.reshape(-1)]
        return new.astype(array.dtype).reshape(array.shape)
    if isinstance(value, str) or array.dtype.kind not in "iuf" or not array.size:
        return array
    if array.dtype.kind in "iu":
        info = np.iinfo(array.dtype)
        is_allowed = value == int(value) and info.min <= value <= info.max and not named.is_sum
        return np.full_like(array, int(value)) if is_allowed else array
    with np.errstate(all="ignore"):
        total = float(array.sum(dtype=np.float64))
        if not named.is_sum:
            return np.full_like(array, value)
        return (array * (value / total)).astype(array.dtype) if np.isfinite(total) and total else array


def _with_leaves(item: Any, named: NamedValue) -> Any:
    """Return a text, or the leaves of its JSON, with this value."""

    def leaves(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: leaves(each) for key, each in data.items()}
        if isinstance(data, list):
            return list(map(leaves, data))
        is_number = isinstance(data, (int, float)) and not isinstance(data, bool)
        fits = isinstance(data, str) if isinstance(named.value, str) else is_number
        return data if not fits else int(named.value) if isinstance(data, int) else named.value

    text, new = _plain(item), named.value if isinstance(named.value, str) else None
    with suppress(ValueError):
        data = json.loads(text)
        if isinstance(data, (dict, list)):
            new = json.dumps(leaves(data))
        elif new is None:
            new = f"{named.value:g}"
    if new is None or named.is_sum:
        return item
    return new.encode() if isinstance(item, bytes) else new


def _other_parameters(parameters: str, change: int, salt: int, named: NamedValue | None) -> str:
    if named is not None:
        return str(_with_leaves(parameters, named))
    return str(_text(parameters, list(_TEXTS.values())[change], salt, ())) or "{}"


def _other_values(array: Array, change: int, salt: int, values: Sequence[Any], reach: int) -> Array:
    if array.dtype.kind in "OS":
        text, texts = list(_TEXTS.values())[change], list(dict.fromkeys(map(_plain, values)))
        new = np.empty(array.size, object)
        new[:] = [_text(item, text, salt, texts) for item in array.reshape(-1)]
    elif array.dtype.kind == "b":
        new = _other_values(array.astype(np.uint8), change, salt, (0, 1), reach)
    elif not array.size:
        return array
    else:
        with np.errstate(all="ignore"):
            try:
                new = _numbers(array, list(_NUMBERS.values())[change], salt, values, reach)
                if content(new) == content(array):  # zeros of zeros
                    new = array + array.dtype.type(1 + change % 3)
            except (TypeError, ValueError, OverflowError):  # a data type without arithmetic
                new = array[..., ::-1]
    return np.ascontiguousarray(new.astype(array.dtype)).reshape(array.shape)


def _numbers(array: Array, make: _Make, salt: int, values: Sequence[Any], reach: int) -> Array:
    if array.dtype.kind not in "iu":
        wide = array.astype(np.float64)
        return np.asarray(make(wide, salt, (np.nanmin(wide), np.nanmax(wide), reach))).astype(array.dtype)
    info, known = np.iinfo(array.dtype), [int(value) for value in (*values, array.min(), array.max())]
    new = make(array.astype(object), salt, (min(known), max(known), reach))
    return np.asarray(np.clip(new, info.min, info.max), array.dtype)


def _plain(item: Any) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)


def _text(item: Any, make: _Make, salt: int, others: Sequence[str]) -> Any:
    """Return another text; of JSON one with other leaves, whose keys and lengths stay."""

    def leaves(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: leaves(value) for key, value in data.items()}
        if isinstance(data, list):
            return [leaves(value) for value in data]
        if isinstance(data, (bool, int, float)):
            return not data if isinstance(data, bool) else -data - 1 - salt % 5
        return make(data, salt, ()) if isinstance(data, str) else data

    new = text = _plain(item)
    with suppress(ValueError):
        data = json.loads(text)
        if isinstance(data, (dict, list)) and make is not _TEXTS["empty"]:
            new = json.dumps(leaves(data))
    new = new if new != text else make(text, salt, others)
    return new.encode() if isinstance(item, bytes) else new
