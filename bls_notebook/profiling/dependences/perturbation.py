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


@dataclass(frozen=True, eq=False)
class KeptResponse:
    """One response of a callee: its outputs on the CPU, their data types and GPUs; or its error."""

    outputs: Mapping[str, Array]
    error: str | None = None
    types: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)
    parameters: str = "{}"


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
_RESPONSES = ("last response dropped", "first response twice", "last response changed")
_SHAPES = ("longer", "shorter", "wider", *_RESPONSES, ERROR)
CHANGES = (*_NUMBERS, *_SHAPES)
SUCCESS = KeptResponse({})
"""An answer made up from the callee's configuration."""


_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d*)?(?:[eE]\d+)?")
_FARTHEST = 10_000_000  # larger numbers, as the size of an array, could exhaust the memory


def reach_of(source: str) -> int:
    """Return a number beyond those in a source, with which answers are compared perhaps; at least 7."""
    numbers = (float(number) for number in _NUMBER.findall(source.replace("_", "")))
    return 7 + int(max((number for number in numbers if number <= _FARTHEST), default=0))


def name_of(change: int, kept: KeptAnswer) -> str:
    """Return the words for a change of an answer."""
    if any(response.error is not None for response in kept):
        return "replaced by a success"
    is_text = any(array.dtype.kind in "OS" for response in kept for array in response.outputs.values())
    return (*(_TEXTS if is_text else _NUMBERS), *_SHAPES)[change]


def changed(
    kept: KeptAnswer, change: int, salt: int, seen: Seen, free: Mapping[str, Sequence[int]], reach: int = 7
) -> KeptAnswer | None:
    """Return the answer with one change, or None if the change has no effect on it.

    `free` maps outputs to their axes of free length: the first becomes longer or shorter, the others are wider. Large
    numbers differ from the recorded ones by `reach` at least.
    """
    kind = CHANGES[change]
    if any(response.error is not None for response in kept):
        return None if change else (SUCCESS,)
    if kind == ERROR:
        return (KeptResponse({}, "an error in place of the recorded answer"),)
    if "response" in kind and len(kept) < 2:
        return None
    if kind == "last response dropped":
        return kept[:-1]
    if kind == "first response twice":
        return (kept[0], *kept)

    def output(name: str, array: Array) -> Array:
        if kind in ("longer", "shorter", "wider"):
            axes = free.get(name, ())
            for axis in axes[1:] if kind == "wider" else axes[:1]:
                array = _other_length(array, kind != "shorter", axis)
            return array
        return _other_values(array, change if kind in _NUMBERS else 0, salt, seen.get(name, ()), reach)

    made, first = list(kept), len(kept) - 1 if kind == "last response changed" else 0
    for number, response in enumerate(kept[first:], first):
        made[number] = replace(response, outputs={name: output(name, a) for name, a in response.outputs.items()})
    pairs = [(a.outputs[name], b.outputs[name]) for a, b in zip(kept, made, strict=True) for name in a.outputs]
    return None if all(content(one) == content(other) for one, other in pairs) else tuple(made)


def content(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    """Return the dtype, shape and bits of an array, to compare it with others."""
    return array.dtype.str, array.shape, repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


def _other_length(array: Array, longer: bool, free: int) -> Array:
    if not 0 <= free < array.ndim or array.shape[free] < 2 - longer:
        return array
    return np.concatenate([array, np.take(array, [-1], free)], free) if longer else np.delete(array, -1, free)


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
