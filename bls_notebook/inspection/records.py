"""What the inspector found out: of a tensor, of a response, of two of them. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.lifetimes.records import Life
from bls_notebook.profiling.records.spans import Span
from bls_notebook.records.plain import Record
from bls_notebook.records.repository import ResponseRecord, TensorRecord
from bls_notebook.records.tensors import Media, TextSeen


@dataclass(frozen=True, slots=True, repr=False)
class TensorView(Record):
    """A tensor, or the slice ``index`` of one of the shape ``whole``.

    ``line`` is the least and the greatest of each of many pieces of a row of numbers, ``texts`` are elements
    of BYTES, ``values`` the numbers of a corner.
    """

    tensor: TensorRecord
    whole: tuple[int, ...] = ()
    index: str = ""
    sound: Media | None = None
    line: tuple[tuple[float, float], ...] = ()
    texts: tuple[TextSeen, ...] = ()
    values: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class RequestSeen(Record):
    """What was recorded of a request: its span with those that it led to, and lives of its tensors.

    ``profile`` and ``track`` name where that was recorded; they are empty where nothing was on. A life counts
    if it began, or was handed on, between ``begun`` and ``ended``, in ns since the track began.
    """

    profile: str = ""
    spans: tuple[Span, ...] = ()
    track: str = ""
    lives: tuple[Life, ...] = ()
    begun: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class ResponseView(Record):
    """A response, its outputs each as it wants to be seen."""

    response: ResponseRecord
    tensors: tuple[TensorView, ...] = ()
    request: RequestSeen | None = None
