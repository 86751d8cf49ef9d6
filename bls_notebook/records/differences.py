"""Differences between two tensors of one name, and between two responses. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Record
from .repository import TensorRecord
from .tensors import Media


@dataclass(frozen=True, slots=True, repr=False)
class TensorsCompared(Record):
    """Two tensors of one name; ``reason`` says why they could not be compared.

    ``absolute``, ``relative`` and ``ulps`` are the greatest differences, the last one counted in floats that
    lie between the two; ``where`` is the first element that has the greatest absolute one. NaN equals NaN.
    ``pictures`` are of the first, the second and the difference.
    """

    name: str
    first: TensorRecord | None = None
    second: TensorRecord | None = None
    reason: str = ""
    elements: int = 0
    differing: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    ulps: float | None = None
    where: tuple[int, ...] = ()
    values: tuple[str, str] = ("", "")
    pictures: tuple[Media, ...] = ()
    every: int = 1


@dataclass(frozen=True, slots=True, repr=False)
class Compared(Record):
    """Two responses, or two tensors, side by side."""

    first: str
    second: str
    tensors: tuple[TensorsCompared, ...] = ()
    errors: tuple[str, ...] = ()
