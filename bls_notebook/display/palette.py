"""Colors of models: constant in all pictures, distinct for color-blind readers.

The first colors are Okabe and Ito's, adjusted to light and dark backgrounds. Vermilion means leaks and errors.
Models that share a color differ in hatch.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Ink:
    """A fill: colors ``#rrggbb`` for light and dark backgrounds, and the name of a hatch or ``""``."""

    light: str
    dark: str
    hatch: str = ""


_COLOURS = (
    ("#0072b2", "#3f9ee0"), ("#e69f00", "#f2b134"), ("#009e73", "#22bf92"), ("#b9598f", "#de93bd"),
    ("#56b4e9", "#86ccf5"), ("#b8a200", "#f0e442"), ("#0f6f6f", "#4fb3b3"), ("#8a5a2b", "#c79a68"),
    ("#5b3a8c", "#a58ad6"), ("#5f7d1f", "#a3c35a"),
)  # fmt: skip
_FIRST = 6  # colors to use first: the most distinct ones
_HATCHES = ("", "///", "---", "xxx", "\\\\\\")

ALARM = Ink("#d55e00", "#ff8142")
"""Leaks and errors."""

NOTEBOOK = Ink("#7a7a7a", "#9a9a9a")
"""The notebook, in pictures of models."""

LINE = Ink(*_COLOURS[0])
"""Charts of numbers without models."""


_slots: dict[str, int] = {}  # of all models so far
_lock = threading.Lock()


def release_inks(names: Iterable[str]) -> None:
    """Let other models have the inks of these, which no later picture shows beside them.

    A hatch on a block is easily taken for a queue, so colors without a hatch are worth reusing.
    """
    with _lock:
        for name in names:
            _slots.pop(name, None)


def model_inks(names: Iterable[str], known: dict[str, int] | None = None) -> dict[str, Ink]:
    """Return the ink of each model in a picture; the empty name is the notebook.

    A model keeps its ink in every later picture, until `release_inks`. The name's hash selects a preferred color, so a
    model mostly has one color in all notebooks. If another model has it, the name takes the next one; if all are used,
    the one least used in this picture, with a hatch.
    """
    models = sorted(set(names) - {""})
    known = _slots if known is None else known
    with _lock:
        for name in (model for model in models if model not in known):
            here, all_ = [Counter(map(known.get, some)) for some in (models, known)]
            colours = Counter(known[model] % len(_COLOURS) for model in models if model in known)
            likes = crc32(name.encode("utf-8", "surrogatepass"))

            def worth(slot: int, likes: int = likes) -> tuple[int, ...]:
                lap, colour = divmod(slot, len(_COLOURS))
                rare = colour >= _FIRST
                shift = (colour - likes) % (len(_COLOURS) - _FIRST if rare else _FIRST)
                return here[slot], all_[slot], colours[colour], lap, rare, shift  # noqa: B023

            known[name] = min(range(len(_COLOURS) * len(_HATCHES)), key=worth)
    slots = {name: divmod(known[name], len(_COLOURS)) for name in models}
    return {"": NOTEBOOK} | {name: Ink(*_COLOURS[colour], _HATCHES[lap]) for name, (lap, colour) in slots.items()}
