"""Colours of models, the same in every picture; told apart by colour-blind readers and in grey.

The first colours are those of Okabe and Ito, darker or lighter where the background asks for it. Vermilion is
kept for what needs attention: memory left behind, errors. Each colour comes with a hatch for pictures
that are printed without colour.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32


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
_TEAL = ("#0f6f6f", "#4fb3b3")
_BROWN = ("#8a5a2b", "#c79a68")
_PLUM = ("#5b3a8c", "#a58ad6")
_OLIVE = ("#5f7d1f", "#a3c35a")
_COLOURS = (_BLUE, _ORANGE, _GREEN, _PURPLE, _SKY, _YELLOW, _TEAL, _BROWN, _PLUM, _OLIVE)
_FIRST = 6  # colours that are taken first: those that everybody tells apart
_HATCHES = ("", "///", "---", "xxx", "\\\\\\")

ALARM = Ink("#d55e00", "#ff8142")
"""What needs attention."""

NOTEBOOK = Ink("#7a7a7a", "#9a9a9a")
"""The notebook itself, where it stands among models."""

LINE = Ink(*_BLUE)
"""Numbers, where nothing else tells them apart."""


class Inks:
    """Which model has which ink: who comes first chooses, and keeps it in every later picture."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, names: Iterable[str]) -> dict[str, Ink]:
        """Give each model of a picture an ink; the empty name is the notebook.

        Names that come together choose in their order. A name has a colour that it likes best, so that it is
        mostly the same in every notebook, and takes the next where another name has that one. Of more models
        than there are colours, some share one, and differ in hatch as long as there are hatches: such a name
        takes what is the least used in its picture.
        """
        inks: dict[str, Ink] = {}
        known = self._slots
        with self._lock:
            for name in (wanted := sorted(set(names))):
                if not name:
                    inks[name] = NOTEBOOK
                    continue
                if name not in known:
                    here, all_ = [Counter(map(known.get, each)) for each in (wanted, known)]
                    colours = Counter(known[each] % len(_COLOURS) for each in wanted if each in known)
                    likes = crc32(name.encode("utf-8", "surrogatepass"))

                    def worth(slot: int, likes: int = likes) -> tuple[int, ...]:
                        lap, colour = divmod(slot, len(_COLOURS))
                        rare = colour >= _FIRST
                        shift = (colour - likes) % (len(_COLOURS) - _FIRST if rare else _FIRST)
                        return here[slot], all_[slot], colours[colour], lap, rare, shift  # noqa: B023

                    known[name] = min(range(len(_COLOURS) * len(_HATCHES)), key=worth)
                lap, colour = divmod(known[name], len(_COLOURS))
                inks[name] = Ink(*_COLOURS[colour], _HATCHES[lap])
        return inks


_session = Inks()


def model_inks(names: Iterable[str]) -> dict[str, Ink]:
    """Give each model of a picture the ink that it has all through this process; see `Inks.of`."""
    return _session.of(names)
