"""What is seen of tensors besides their first elements: figures, pictures, sounds, texts."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Record


@dataclass(frozen=True, slots=True, repr=False)
class Figures(Record):
    """Figures of the elements of a numeric tensor; least, greatest and mean are of those that are finite.

    ``every`` is 1 where all elements were looked at, and n where one of n was. ``histogram`` counts them in
    bins of one width from the least to the greatest.
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
    """A picture or a sound: its bytes in base64, and in words what was done to the numbers to make it.

    ``width`` and ``height`` are the tensor's; ``width`` of a sound is its samples a second.
    """

    kind: str
    data: str
    width: int = 0
    height: int = 0
    said: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class TextSeen(Record):
    """An element of a BYTES tensor: ``kind`` is JSON, text, hex or the kind of a file, such as PNG."""

    index: tuple[int, ...]
    kind: str
    bytes: int
    text: str = ""
    media: Media | None = None
