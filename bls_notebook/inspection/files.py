"""Elements of BYTES tensors: files that can be shown, JSON, text, or anything."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import numpy as np

from bls_notebook.records.tensors import Media, TextSeen

ELEMENTS = 20  # that are shown
CHARACTERS = 4_000  # of one
HEX = 256  # bytes of one that is no text
LARGEST = 600_000  # bytes of a file that is shown
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}  # fmt: skip


def media_of(element: object, largest: int = LARGEST) -> Media | None:
    """Return an element that is an encoded picture or a sound as such, None for any other."""
    if not isinstance(element, bytes):
        return None
    kind = next((kind for start, kind in _KINDS.items() if element.startswith(start)), "")
    if element[:4] == b"RIFF":
        kind = {b"WAVE": "audio/wav", b"WEBP": "image/webp"}.get(element[8:12], "")
    if not kind:
        return None
    width = height = 0
    if kind == "image/png" and len(element) >= 24:
        width, height = int.from_bytes(element[16:20], "big"), int.from_bytes(element[20:24], "big")
    if len(element) > largest:
        return Media(kind, "", width, height, f"larger than the {largest:,} bytes that are shown")
    return Media(kind, b64encode(element).decode(), width, height)


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
