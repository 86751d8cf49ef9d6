"""Contents of a tensor for display: statistics, pictures, a sound, text, and the values of a corner.

Slices are parsed from text such as ``[0, :, :, 1]``; nothing is evaluated.
"""

from __future__ import annotations

import ast
import io
import json
import wave
from base64 import b64encode
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from bls_notebook.devices import device_of
from bls_notebook.engine import BLSError
from bls_notebook.pb_utils.dtypes import DATATYPE_OF_DTYPE
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU
from bls_notebook.records import Figures, Media, TextSeen, tensor_record
from bls_notebook.repository import (
    GLANCE,
    LARGEST,
    figures,
    layout_of,
    media_of,
    numbers,
    pictures,
    to_host,
    working_on,
)

from .records import TensorView

LOOK = 1 << 26  # the most elements for statistics on the CPU: a third of a second
LOOK_ON_GPU = 1 << 30
_PICTURES, _PIXELS = 16, 384  # the most pictures, and the pixels along the side of a single one
_CORNER = 8  # rows and columns of the shown values


def tensor_view(tensor: Tensor, at: str = "", rate: int | None = None) -> TensorView:
    """Return a view of a tensor or a slice of it; `rate` is the sample rate of a sound."""
    array: Any = tensor._array
    if isinstance(array, TextOnGPU):
        array = array.on_cpu()
    view = array_view(tensor._name, tensor._datatype, array, at, rate)
    return replace(view, tensor=replace(view.tensor, device=tensor._device().label))


def array_view(name: str, datatype: str, array: Any, at: str = "", rate: int | None = None) -> TensorView:
    if isinstance(array, np.ndarray):
        array = array.view(np.ndarray)  # a subclass may change indexing
        if array.dtype.kind == "U":
            array = array.astype(object)
    datatype = datatype or datatype_of(array)
    whole = tuple(int(n) for n in array.shape)
    part, index = sliced(array, at)
    label = device_of(part).label
    record = tensor_record(name, datatype, part, label, shape=tuple(part.shape))
    of = {"whole": whole, "index": index}
    if part.dtype.kind in "OS":
        return TensorView(record, texts=texts(part.astype(object, copy=False)), **of)  # type: ignore[arg-type]
    if part.dtype.kind not in "biuf" and part.dtype.name != "bfloat16":
        return TensorView(record, notes=(f"NumPy {part.dtype.name}: no statistics",), **of)  # type: ignore[arg-type]
    part, every = numbers(part, datatype, GLANCE)
    seen = figures(part, LOOK if label == "cpu" else LOOK_ON_GPU, each=every, histogram=part.size > 1)
    way = layout_of(part.shape)
    count = min(part.shape[way.batch], _PICTURES) if way is not None and way.batch >= 0 else 1
    pixels = int(_PIXELS / max(1, count) ** 0.5)
    shown = pictures(part, seen, _PICTURES, pixels) if every == 1 else ()
    values, note = _values(part)
    if label != "cpu" and values:
        record = replace(record, preview="")
    return TensorView(
        replace(record, figures=seen, pictures=shown),
        whole,
        index,
        sound_of(part, seen, rate),
        values=values,
        notes=(note,) if note else (),
    )


def datatype_of(array: Any) -> str:
    """Return Triton's name of an array's data type, else NumPy's."""
    return "BYTES" if array.dtype.kind in "OSU" else DATATYPE_OF_DTYPE.get(array.dtype) or f"NumPy {array.dtype.name}"


def _values(array: Any) -> tuple[str, str]:
    """Return the numbers of a corner, and its indices."""
    if not array.size:
        return "", ""
    corner: tuple[Any, ...] = (0,) * (array.ndim - 2) + (slice(_CORNER),) * min(array.ndim, 2)
    with working_on(array):
        part = to_host(array[(*corner, Ellipsis)])
    said = np.array2string(part, precision=5, threshold=1000, max_line_width=100)
    inside = ", ".join("0" if each == 0 else f":{_CORNER}" for each in corner)
    return said, f"values of [{inside}]" if part.size < array.size else ""


_EXPECTED = "expected numbers, slices and ... in brackets, such as [0, :, 2:10:2]"


def sliced(array: Any, text: str) -> tuple[Any, str]:
    """Return a slice of an array and its normalized text; BLSError if it does not fit."""
    inside = text.strip()
    if inside.startswith("[") and inside.endswith("]"):
        inside = inside[1:-1].strip()
    if not inside:
        return array, ""
    try:
        node = ast.parse(f"_[{inside}]", mode="eval").body
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            raise ValueError
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        index = tuple(_part(part) for part in parts)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        raise BLSError(f"slice: got {text[:80]!r}, {_EXPECTED}") from None
    spelled = f"[{', '.join(map(ast.unparse, parts))}]"
    try:
        whole = index if Ellipsis in index else (*index, Ellipsis)  # keeps a single element an array
        return array[whole], spelled
    except (IndexError, ValueError, TypeError) as error:
        shape = list(array.shape)
        raise BLSError(f"slice {spelled}: the tensor has the shape {shape}: {error}") from None


def _part(node: ast.expr) -> Any:
    if isinstance(node, ast.Slice):
        return slice(*(None if each is None else _number(each) for each in (node.lower, node.upper, node.step)))
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        return Ellipsis
    return _number(node)


def _number(node: ast.expr) -> int:
    value = ast.literal_eval(node)
    if type(value) is int and abs(value) < 1 << 62:
        return value
    raise ValueError


RATE = 16_000  # default samples per second
LEAST = 16  # the fewest numbers that are played
SOUND = 2_000  # the fewest samples of a detected sound
LONGEST = 320_000  # the most samples that are played: 20 s at the default rate, 0.9 MB in a notebook


def sound_of(array: Any, figures: Figures | None, rate: int | None) -> Media | None:
    """Return a row of numbers as a sound if `rate` is given or its values look like a sound; else None."""
    is_row = array.size >= LEAST and array.dtype.kind in "iuf" and max(array.shape) == array.size
    if not is_row or figures is None or figures.least is None or figures.greatest is None:
        return None
    row = array.reshape(-1)
    low, high = figures.least, figures.greatest
    waves = row.dtype == np.int16 or (row.dtype.kind == "f" and -1 <= low < 0 < high <= 1)
    if rate is None and not (waves and row.size >= SOUND and low < 0 < high):
        return None
    with working_on(row):
        samples = to_host(row[:LONGEST]).astype(np.float64)
    loudest = max(abs(low), abs(high))
    full = 32768.0 if row.dtype == np.int16 else 1.0
    facts = [f"at {rate or RATE:,} samples per second" + (" (assumed)" if rate is None else "")]
    if loudest > full:
        full = float(loudest)
        facts.append(f"full volume is {loudest:.4g}")
    if row.size > LONGEST:
        facts.append(f"the first {LONGEST / (rate or RATE):.1f} s of {row.size / (rate or RATE):.1f} s")
    with np.errstate(all="ignore"):
        shorts = np.clip(np.nan_to_num(samples / full) * 32767, -32768, 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate or RATE)
        writer.writeframes(shorts.tobytes())
    return Media("audio/wav", b64encode(file.getvalue()).decode(), rate or RATE, 1, ", ".join(facts))


ELEMENTS = 20  # shown
CHARACTERS = 4_000  # shown per element
HEX = 256  # bytes shown of an element that is not text


def texts(array: np.ndarray[Any, Any]) -> tuple[TextSeen, ...]:
    return tuple(_element(index, array[index]) for index in islice(np.ndindex(array.shape), ELEMENTS))


def _element(index: tuple[int, ...], element: object) -> TextSeen:
    if isinstance(element, str):
        return _text_element(index, element, len(element.encode("utf-8", "surrogatepass")))
    if not isinstance(element, bytes):
        return TextSeen(index, type(element).__name__, -1, "not shown: neither bytes nor text")
    media = media_of(element)
    if media is not None:
        return TextSeen(index, media.kind.partition("/")[2].upper(), len(element), media.said, media)
    try:
        return _text_element(index, element.decode("utf-8"), len(element))
    except UnicodeDecodeError:
        return TextSeen(index, "hex", len(element), _hex(element))


def _text_element(index: tuple[int, ...], text: str, size: int) -> TextSeen:
    if text[:1] in ("{", "[") and size <= LARGEST:
        try:
            return TextSeen(index, "JSON", size, _cut(json.dumps(json.loads(text), indent=2, ensure_ascii=False)))
        except (ValueError, RecursionError):
            pass
    return TextSeen(index, "text", size, _cut(text))


def _cut(text: str) -> str:
    more = len(text) - CHARACTERS
    return text if more <= 0 else f"{text[:CHARACTERS]}\n… {more:,} more characters"


def _hex(data: bytes) -> str:
    rows = []
    for at in range(0, min(len(data), HEX), 16):
        row = data[at : at + 16]
        words = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:04x}  {row.hex(' '):<47}  {words}")
    more = len(data) - HEX
    return "\n".join([*rows, *([f"… {more:,} more bytes"] if more > 0 else [])])
