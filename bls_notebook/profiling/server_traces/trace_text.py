"""The text of a tritonserver's trace file (``--trace-config``, mode triton), as rows.

The server writes names, request IDs and tensors into its JSON as they are, without escapes, and ends the
array when it ends itself: a file may be no JSON, and without an end. Guarantees: every row that can be told
is read, in time linear in the text; what cannot is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_LONGEST = 1 << 14  # characters of a row that names a model
_NEXT = re.compile(r",\s*(?=\{\s*\"id\"\s*:)")
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder(strict=False)  # control characters in texts, as the server writes them
_HEAD = re.compile(
    r'\{"id":(\d{1,20}),"model_name":"(.*?)","model_version":(-?\d{1,20})'
    r'(?:,"request_id":"(.*?)")?(?:,"parent_id":(\d{1,20}))?\}\Z',
    re.DOTALL,
)
_TENSOR = re.compile(
    r'\{"id":(\d{1,20}),"activity":"(\w+)","tensor":\{.*"shape":"([\d,]*)","dtype":"(\w+)"\}\}\Z', re.DOTALL
)
_STAMP = re.compile(r'\{"id":(\d{1,20}),"timestamps":\[\{"name":"(.*)","ns":(\d{1,20})\}\]\}\Z', re.DOTALL)

Row = dict[str, Any]


@dataclass
class TraceText:
    """The rows of a file, array by array; an id is a request's within one array.

    ``damaged`` counts the rows that could not be read, ``is_cut`` says that the last array has no end.
    """

    arrays: list[list[Row]] = field(default_factory=list)
    damaged: int = 0
    is_cut: bool = False


def read_trace(text: str) -> TraceText:
    """Return the rows of a trace file's text: an array of objects that have an ``id``; else a ValueError
    says why.
    """
    if not text.strip():
        raise ValueError("it is empty (a server writes when it ends, or as often as log-frequency says)")
    if not text.lstrip().startswith("["):
        raise ValueError(f"it begins with {text.lstrip()[:20]!r}, expected '['")
    found = TraceText()
    try:
        whole = json.loads(text, strict=False)
    except (ValueError, RecursionError):  # cut off, several arrays, or texts with quotes
        _by_pieces(text, found)
    else:
        rows = [row for row in whole if _is_row(row)]
        found.arrays, found.damaged = [rows], len(whole) - len(rows)
    if found.damaged and not any(found.arrays):
        raise ValueError("it is JSON of another kind: no object in it has an 'id' as a trace's have")
    return found


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and type(row.get("id")) is int


def _by_pieces(text: str, found: TraceText) -> None:
    """Read one object after the other."""
    starts = (match.end() for match in _NEXT.finditer(text))
    ahead = next(starts, len(text))
    at = 0
    while at < len(text):
        at = _end(_BETWEEN, text, at)
        mark = text[at : at + 1]
        if mark == "[":
            found.arrays.append([])
            found.is_cut = True
            at += 1
        elif mark == "]":
            found.is_cut = False
            at += 1
        elif mark:
            while ahead <= at:
                ahead = next(starts, len(text))
            row, at = _row(text, at, ahead)
            if row is not None:
                found.arrays[-1].append(row)
            elif at < len(text) or not found.is_cut:
                found.damaged += 1


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _row(text: str, at: int, ahead: int) -> tuple[Row | None, int]:
    """Return the row that begins at a place, and where it ends; the next begins at `ahead` at the latest."""
    try:
        row, end = _DECODER.raw_decode(text[at:ahead])
        if _is_row(row):
            return row, at + end
    except (ValueError, RecursionError):
        pass
    piece = text[at:ahead].rstrip().rstrip(",")
    last = ahead == len(text)
    if last and piece.endswith("]"):
        piece = piece[:-1]
        ahead = at + len(piece)
    return next(_mended(piece), None), ahead


def _mended(piece: str) -> Iterator[Row]:
    """A row of which a text has what JSON would have escaped."""
    if len(piece) <= _LONGEST and (match := _HEAD.match(piece)) is not None:
        number, name, version, request, parent = match.groups()
        yield {
            "id": int(number), "model_name": name, "model_version": int(version),
            "request_id": request or "", "parent_id": int(parent or 0),
        }  # fmt: skip
    elif (match := _STAMP.match(piece)) is not None:
        yield {"id": int(match[1]), "timestamps": [{"name": match[2], "ns": int(match[3])}]}
    elif (match := _TENSOR.match(piece)) is not None:
        tensor = {"shape": match[3], "dtype": match[4]}
        yield {"id": int(match[1]), "activity": match[2], "tensor": tensor}
