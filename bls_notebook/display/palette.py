"""Colours of models and devices, the same in every picture; told apart by colour-blind readers and in grey.

The colours are those of Okabe and Ito, darker or lighter where the background asks for it. Vermilion is
kept for what needs attention: memory left behind, errors. Each colour comes with a hatch for pictures
that are printed without colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

__all__ = ["ALARM", "NOTEBOOK", "Ink", "device_ink", "model_inks"]


@dataclass(frozen=True, slots=True)
class Ink:
    """How something is filled.

    ``light`` and ``dark`` are its colours, ``#rrggbb``, on a light and on a dark background; ``hatch`` is a
    pattern of matplotlib's, empty for none.
    """

    light: str
    dark: str
    hatch: str = ""


_BLUE = ("#0072b2", "#3f9ee0")
_ORANGE = ("#e69f00", "#f2b134")
_GREEN = ("#009e73", "#22bf92")
_PURPLE = ("#b9598f", "#de93bd")
_SKY = ("#56b4e9", "#86ccf5")
_YELLOW = ("#b8a200", "#f0e442")
_COLOURS = (_BLUE, _ORANGE, _GREEN, _PURPLE, _SKY, _YELLOW)
_HATCHES = ("", "///", "---", "xxx", "\\\\\\")

ALARM = Ink("#d55e00", "#ff8142")
"""What needs attention."""

NOTEBOOK = Ink("#7a7a7a", "#9a9a9a")
"""The notebook itself, where it stands among models."""

_CPU = Ink("#9aa3ab", "#7f8a93")
_GPUS = tuple(
    Ink(*colour, hatch)
    for colour, hatch in zip(
        (_BLUE, _ORANGE, _GREEN, _PURPLE), ("////", "\\\\\\\\", "xxxx", "----"), strict=True
    )
)


def model_inks(names: Iterable[str]) -> dict[str, Ink]:
    """Give each model of a picture an ink of its own; the empty name is the notebook.

    A name has the same colour in every picture, unless another name of the same picture has taken it. Inks
    differ for up to 30 models; the first six differ in colour, the others in hatch too.
    """
    inks: dict[str, Ink] = {}
    taken: set[int] = set()
    for name in sorted(set(names)):
        if not name:
            inks[name] = NOTEBOOK
            continue
        round_ = len(taken) // len(_COLOURS)
        slot = crc32(name.encode("utf-8", "surrogatepass")) % len(_COLOURS)
        while round_ * len(_COLOURS) + slot in taken:
            slot = (slot + 1) % len(_COLOURS)
        taken.add(round_ * len(_COLOURS) + slot)
        inks[name] = Ink(*_COLOURS[slot], _HATCHES[round_ % len(_HATCHES)])
    return inks


def device_ink(name: str) -> Ink:
    """Return the ink of a device: grey for ``cpu``, a colour and a hatch for each ``gpu:N``."""
    number = re.match(r"gpu:(\d+)", name)
    return _GPUS[int(number[1]) % len(_GPUS)] if number else _CPU
