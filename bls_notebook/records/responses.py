"""Records of responses, streams and tensors: frozen and JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Record
from .errors import ErrorRecord


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
