"""Records of responses, streams and tensors, with previews of values: frozen and JSON-able.

The work of a preview is bounded for any size of tensor: it reads a few elements, without reductions or a copy of the
whole tensor, and reads nothing from an array on a GPU.
"""

from __future__ import annotations

import codecs
import math
import sys
from dataclasses import dataclass
from typing import Any

from .base import Record
from .errors import ErrorRecord
from .visible_text import visible


@dataclass(frozen=True, slots=True, repr=False)
class Figures(Record):
    """Statistics of a numeric tensor's elements; least, greatest and mean ignore NaN and infinities.

    `every` is 1 if all elements were read, or n if every n-th was. `histogram` counts the elements in bins of equal
    width from the least to the greatest.
    """

    least: int | float | None = None
    greatest: int | float | None = None
    mean: float | None = None
    nans: int = 0
    infinities: int = 0
    every: int = 1
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Media(Record):
    """A picture or a sound: its bytes in base64; `said` describes how the numbers were converted.

    `width` and `height` are the tensor's; the `width` of a sound is its sample rate (samples per second).
    """

    kind: str
    data: str
    width: int = 0
    height: int = 0
    said: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class TextSeen(Record):
    """An element of a BYTES tensor; `kind` is JSON, text, hex or a type of file, such as PNG."""

    index: tuple[int, ...]
    kind: str
    bytes: int
    text: str = ""
    media: Media | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TensorRecord(Record):
    """One tensor: data type, shape, device, size, and its first few elements as text.

    `device` is ``cpu``, ``gpu:0`` or ``gpu:0 (simulated)``; `bytes` is -1 if the size is unknown. `figures` and
    `pictures` exist only if the whole tensor was inspected.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    bytes: int = -1
    preview: str = ""
    figures: Figures | None = None
    pictures: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ResponseRecord(Record):
    """One response; `seconds` is the time since the request was sent.

    `index` counts the responses of a stream, or the requests of a run, from 0. `final` is true for the last response.
    `stubs` are the models for which stubs answered on the way.
    """

    model: str
    version: int = 0
    request_id: str = ""
    tensors: tuple[TensorRecord, ...] = ()
    error: ErrorRecord | None = None
    warnings: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str | int | bool], ...] = ()
    seconds: float | None = None
    final: bool = True
    index: int = 0
    stubs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class StreamRecord(Record):
    """One streaming request: the times of its first and last response, in seconds since it was sent.

    `responses` counts the responses with outputs; `text` is the joined text of the responses.
    """

    model: str
    version: int = 0
    index: int = 0
    responses: int = 0
    first: float | None = None
    last: float | None = None
    text: str = ""
    error: ErrorRecord | None = None
    warnings: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()


WHOLE = 12  # largest number of elements of a tensor that is shown whole
HEAD = 4  # elements shown at the start of a longer row, besides its last one
CHARACTERS = 40  # of one BYTES element
COUNTED = 1000  # largest number of BYTES elements whose lengths are added up

ITEM_BYTES = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2, "INT32": 4,
    "INT64": 8, "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8,
}  # fmt: skip


def tensor_record(
    name: str, datatype: str, array: Any, device: str = "cpu", *, shape: tuple[int, ...] | None = None
) -> TensorRecord:
    """Describe one tensor without copying it.

    `array` is a NumPy array, or any object with ``shape`` and ``nbytes`` (its elements are not read), or None if there
    is nothing to show. Elements are read only if `device` is ``cpu``. `shape` is for callers that know it. The record's
    ``bytes`` is -1 if the size is unknown without reading everything.
    """
    dims = tuple(int(n) for n in (getattr(array, "shape", ()) if shape is None else shape))
    text = preview(array, datatype) if device == "cpu" else f"on {device}, not copied"
    return TensorRecord(name, datatype, dims, device, _size(datatype, array, dims, device), text)


def preview(array: Any, datatype: str) -> str:
    """Return the first few elements of a NumPy array as text, or the reason if that is impossible."""
    if datatype == "BF16" and getattr(getattr(array, "dtype", None), "name", "") != "bfloat16":
        return "… (NumPy has no BF16)"
    # Without an import: if NumPy is not loaded, there is no NumPy array.
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.ndarray):
        return "… (no data)" if array is None else f"… ({type(array).__name__} is not a NumPy array)"
    plain = array.view(numpy.ndarray)  # a subclass may redefine indexing
    if plain.dtype.kind not in "biufcOSU" and plain.dtype.name != "bfloat16":
        return f"… (NumPy {plain.dtype.name})"
    return "empty" if plain.size == 0 else _nested(plain, plain.size <= WHOLE)


def _nested(array: Any, whole: bool) -> str:
    if array.ndim == 0:
        return _element(array[()])
    count = array.shape[0]
    if whole or count == 1:
        parts = [_nested(array[i, ...], whole) for i in range(count)]
    elif array.ndim == 1:
        short = count <= HEAD + 2
        parts = [_nested(array[i, ...], whole) for i in range(count if short else HEAD)]
        parts += [] if short else ["…", _nested(array[-1, ...], whole)]
    else:
        parts = [_nested(array[0, ...], whole), "…"]
    return f"[{', '.join(parts)}]"


def _element(value: Any) -> str:
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, str):
        return _quoted(value[: CHARACTERS + 1])
    kind = type(value)
    if value is None or kind is bool or kind is int or getattr(kind, "__module__", "") == "numpy":
        return _float(value) if getattr(getattr(value, "dtype", None), "kind", "") == "f" else str(value)
    if kind.__name__ == "bfloat16" or kind is float:
        return _float(value)
    return f"<{visible(kind.__name__)}>"  # the repr of an unknown object could run any code


def _float(value: Any) -> str:
    """Return a float as about seven characters: exact if short, else rounded (``0.5000`` is not exactly 0.5)."""
    exact = str(value)
    number = float(value)
    if len(exact) <= 6 or not math.isfinite(number):
        return exact
    if 1e3 <= abs(number) < 1e6:
        return f"{number:.1f}"
    return f"{number:#.4g}"


def _bytes(value: bytes) -> str:
    head = value[: CHARACTERS * 4 + 4]
    try:
        # Incremental, because the cut may be within a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) == len(value))
    except UnicodeDecodeError:
        ellipsis = "…" if len(value) > CHARACTERS // 2 else ""
        return f"{value[: CHARACTERS // 2]!r}{ellipsis}"
    return _quoted(text[: CHARACTERS + 1])


def _quoted(text: str) -> str:
    ellipsis = "…" if len(text) > CHARACTERS else ""
    inside = text[:CHARACTERS].replace("\\", "\\\\").replace('"', '\\"')
    return f'"{visible(inside)}{ellipsis}"'


def _size(datatype: str, array: Any, dims: tuple[int, ...], device: str) -> int:
    count = math.prod(dims)
    if datatype != "BYTES":
        size = getattr(array, "nbytes", None)
        if size is not None:
            return int(size)
        return count * ITEM_BYTES[datatype] if datatype in ITEM_BYTES else -1
    if count == 0:
        return 0
    if array is None or device != "cpu" or count > COUNTED or not hasattr(array, "flat"):
        return -1
    lengths = [_length(item) for item in array.flat]
    return -1 if -1 in lengths else sum(lengths)


def _length(item: Any) -> int:
    """Return the serialized size of a BYTES element: four bytes for its length, then its content."""
    if isinstance(item, str):
        return 4 + len(item.encode("utf-8", "surrogatepass"))
    return 4 + len(item) if isinstance(item, bytes) else -1
