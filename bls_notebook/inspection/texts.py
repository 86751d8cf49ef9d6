"""Elements of BYTES tensors as text: JSON, UTF-8 or a hex dump; encoded pictures and sounds as media."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from bls_notebook.records.tensors import TextSeen
from bls_notebook.repository.requests.tensor_preview import LARGEST, media_of

ELEMENTS = 20  # that are shown
CHARACTERS = 4_000  # of one
HEX = 256  # bytes of one that is no text


def texts(array: np.ndarray[Any, Any]) -> tuple[TextSeen, ...]:
    return tuple(_text(index, element) for index, element in _first(array))


def _first(array: np.ndarray[Any, Any]) -> Iterator[tuple[tuple[int, ...], object]]:
    for number in range(min(array.size, ELEMENTS)):
        index = tuple(int(i) for i in np.unravel_index(number, array.shape))
        yield index, array[index]


def _text(index: tuple[int, ...], element: object) -> TextSeen:
    if isinstance(element, str):
        return _of_text(index, element, len(element.encode("utf-8", "surrogatepass")))
    if not isinstance(element, bytes):
        return TextSeen(index, type(element).__name__, -1, "not looked at")
    media = media_of(element)
    if media is not None:
        return TextSeen(index, media.kind.partition("/")[2].upper(), len(element), media.said, media)
    try:
        return _of_text(index, element.decode("utf-8"), len(element))
    except UnicodeDecodeError:
        return TextSeen(index, "hex", len(element), _hex(element))


def _of_text(index: tuple[int, ...], text: str, size: int) -> TextSeen:
    if text[:1] in ("{", "[") and size <= LARGEST:
        try:
            return TextSeen(
                index, "JSON", size, _cut(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
            )
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
