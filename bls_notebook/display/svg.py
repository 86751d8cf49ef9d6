"""SVG pictures with a time axis, as wide as the page, and the palette of models.

x is in nanoseconds, y in pixels from the top. Shapes stretch along the time axis; text and chips keep their size and
have an offset in pixels. HTML contains the picture as an image, which notebooks show even if they are not trusted. Its
ground is white, because an untrusted notebook has no stylesheet and may be dark; the stylesheet inverts the picture on
a dark page. Equal pictures have equal text.

The first colors are Okabe and Ito's, adjusted to light and dark backgrounds. Vermilion means leaks and errors.
Models that share a color differ in hatch.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from zlib import crc32

from bls_notebook.records.visible_text import visible

from .html import Html, tag

INK, DIM, LEFT_BEHIND = "#222222", "#666666", "#b34700"

_UNITS = 1000  # units of the stretched axis, about one per pixel
_NARROWEST = 690.0  # px: width of the page for which text is laid out
_LINES = {
    "/": "M-1 7L7 -1", "\\": "M-1 -1L7 7", "-": "M0 3H6", "x": "M-1 7L7 -1M-1 -1L7 7", ".": "M0 1h2M0 2h2M3 4h2M3 5h2",
}  # fmt: skip
FONT = "system-ui,-apple-system,Roboto,Helvetica,Arial,sans-serif"
_CODES: dict[str, str | int | None] = {
    "%": "%25", "#": "%23", "<": "%3C", ">": "%3E", "&": "%26", '"': "'", "\n": "%0A",
}  # fmt: skip

Rectangle = tuple[float, float, float, float]  # left, top, width, height
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Look:
    """A fill: a color, lines or dots in this color (`hatch`), or white lines on it (`over`)."""

    colour: str
    alpha: float = 1.0
    hatch: str = ""
    over: str = ""
    edge: bool = False  # the outline alone


class Pen:
    """An SVG picture with an x axis from 0 to `end`; `left` and `right` are margins in pixels."""

    def __init__(self, end: float, left: float, right: float) -> None:
        self.ticks = list(times(end))
        self.end, self.plot = end, _NARROWEST - left - right
        self._left = 100 * left / _NARROWEST
        self._width = 100 * self.plot / _NARROWEST
        self._shapes: list[str] = []
        self._words: list[str] = []
        self._patterns: dict[tuple[str, str], str] = {}

    def boxes(self, boxes: Iterable[Rectangle], look: Look) -> None:
        """Fill boxes; boxes of equal height become one path with thick strokes, which is short."""
        rows: dict[float, list[str]] = {}
        for x, y, width, height in boxes:
            left, wide = self._x(x), self._x(x + width) - self._x(x)
            # Leave a small gap between neighbors.
            wide = wide - 0.8 if wide > 3 else max(wide, 0.8)
            if look.edge:
                rows.setdefault(0, []).append(f"M{_n(left)} {_n(y)}h{_n(wide)}v{_n(height)}h{_n(-wide)}z")
            else:
                rows.setdefault(height, []).append(f"M{_n(left)} {_n(y + height / 2)}h{_n(wide)}")
        for height, path in rows.items():
            self._stroke("".join(path), height or 1.2, look)
            if look.over:
                self._stroke("".join(path), height, Look("#ffffff", look.alpha, look.over))

    def area(self, points: Points, look: Look) -> None:
        """Fill the inside of a closed line."""
        path = "".join(f"{'L' if i else 'M'}{_n(self._x(x))} {_n(y)}" for i, (x, y) in enumerate(points))
        self._shapes.append(f'<path d="{path}" fill="{self._paint(look)}"{_alpha(look)}/>')
        if look.over:
            self.area(points, Look("#ffffff", look.alpha, look.over))

    def stems(self, stems: Iterable[tuple[float, float, float]], look: Look, width: float = 0.8) -> None:
        """Draw vertical lines: (x, top, bottom)."""
        self._stroke("".join(f"M{_n(self._x(x))} {_n(top)}V{_n(bottom)}" for x, top, bottom in stems), width, look)

    def line(self, points: Points, look: Look, width: float = 1.2) -> None:
        path = "".join(f"{'L' if i else 'M'}{_n(self._x(x))} {_n(y)}" for i, (x, y) in enumerate(points))
        self._stroke(path, width, look)

    def marks(self, points: Points, shape: str, look: Look, size: float = 6) -> None:
        """Draw triangles that point down (``v``), up (``^``) or right (``>``)."""
        half = _n(size / 2)
        turn = {
            "v": f"l-{half} -{_n(size * 0.8)}h{_n(size)}z",
            "^": f"l-{half} {_n(size * 0.8)}h{_n(size)}z",
            ">": f"l-{_n(size * 0.8)} -{half}v{_n(size)}z",
        }[shape]
        path = "".join(f"M{_n(self._x(x))} {_n(y)}{turn}" for x, y in points)
        self._shapes.append(f'<path d="{path}" fill="{look.colour}"{_alpha(look)}/>')

    def chip(self, right: float, top: float, width: float, height: float, look: Look) -> None:
        """Fill a box of fixed size, `right` pixels from the start of the time axis."""
        fill = f'fill="none" stroke="{look.colour}"' if look.edge else f'fill="{self._paint(look)}"'
        place = f'x="{_n(right)}" y="{_n(top)}" width="{_n(width)}" height="{_n(height)}"'
        self._words.append(f"<rect {place} {fill}{_alpha(look)}/>")
        if look.over:
            self.chip(right, top, width, height, Look("#ffffff", look.alpha, look.over))

    def words(
        self, text: str, x: float, y: float, *, right: float = 0, align: str = "start", size: float = 11,
        colour: str = INK, bold: bool = False, halo: bool = False,
    ) -> None:  # fmt: skip
        """Write text centered at the height `y`, `right` pixels from `x`; `halo` adds a white outline."""
        look = "" if align == "start" else f' text-anchor="{align}"'
        look += "" if size == 11 else f' font-size="{_n(size)}"'
        look += "" if colour == INK else f' fill="{colour}"'
        look += ' font-weight="600"' if bold else ""
        look += ' stroke="#fff" stroke-width="4" paint-order="stroke"' if halo else ""
        place = f' x="{_n(100 * x / self.end)}%"' if x else ""
        place += f' dx="{_n(right)}"' if right else ""
        said = escape(visible(text))
        self._words.append(f'<text{place} y="{_n(y + size * 0.36)}"{look}>{said}</text>')

    def document(self, height: float, bottom: float) -> str:
        """Return the picture as an SVG document of the page's width; vertical grid lines end at `bottom`."""
        self._stroke("".join(f"M{_n(self._x(x))} 0V{_n(bottom)}" for x, _ in self.ticks), 1, Look("#e6e8eb"))
        grid = self._shapes.pop()
        place = f'x="{_n(self._left)}%" width="{_n(self._width)}%" height="{_n(height)}" overflow="visible"'
        patterns = "".join(
            f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<path d="{_LINES[hatch]}" stroke="{colour}" stroke-width="1.2"/></pattern>'
            for (colour, hatch), name in self._patterns.items()
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{_n(height)}" font-size="11" '
            f'font-family="{FONT}" fill="{INK}" style="background:#fff">'
            f"<style>path{{vector-effect:non-scaling-stroke}}</style>"
            f"<defs>{patterns}</defs>"
            f'<svg {place} viewBox="0 0 {_UNITS} {_n(height)}" preserveAspectRatio="none">'
            f"{grid}{''.join(self._shapes)}</svg><svg {place}>{''.join(self._words)}</svg></svg>"
        )

    def _x(self, x: float) -> float:
        return x / self.end * _UNITS

    def _stroke(self, path: str, width: float, look: Look) -> None:
        if path:
            paint = f'stroke="{self._paint(look)}" stroke-width="{_n(width)}"'
            self._shapes.append(f'<path d="{path}" fill="none" {paint}{_alpha(look)}/>')

    def _paint(self, look: Look) -> str:
        if not look.hatch:
            return look.colour
        name = self._patterns.setdefault((look.colour, look.hatch[0]), f"h{len(self._patterns)}")
        return f"url(#{name})"


def legend_signs(pen: Pen, top: float, signs: Iterable[tuple[Look | str, str]]) -> float:
    """Draw a legend of colors and signs in as many rows as needed; return the y of its end."""
    x, y = 0.0, top + 10
    for look, text in signs:
        wide = 18 if isinstance(look, Look) else max(12, width_of(look))
        if x + wide + 6 + width_of(text) > pen.plot:
            x, y = 0.0, y + 17
        if isinstance(look, Look):
            pen.chip(x, y - 5, wide, 10, look)
        else:
            pen.words(look, 0, y, right=x, bold=True)
        pen.words(text, 0, y, right=x + wide + 6, colour="#444444")
        x += wide + 6 + width_of(text) + 14
    return y + 12


def steps_area(steps: Iterable[tuple[float, float]], base: float, end: float) -> list[tuple[float, float]]:
    """Return the outline of the area between `base` and steps (start, height), with few points."""
    points = [(0.0, base)]
    height = base
    for x, y in steps:
        if y != height:
            points += [(x, height), (x, y)]
            height = y
    return [*points, (end, height), (end, base)]


def times(end: float) -> Iterator[tuple[float, str]]:
    """Yield the round times of an axis, each in ns and as text."""
    factor, unit = next((f, u) for f, u in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")) if end >= f or f == 1)
    step = next(s * 10**e for e in range(-3, 20) for s in (1, 2, 5) if end / (s * 10**e) <= 8)
    yield from ((number * step, f"{number * step / factor:g} {unit}") for number in range(int(end / step) + 1))


def width_of(text: str, size: float = 11) -> float:
    """Return an estimate of a text's width in pixels, rather too large than too small."""
    return len(text) * size * 0.6


def readable(colour: str) -> str:
    """Return black or white, whichever is more readable on ``#rrggbb``."""
    red, green, blue = ((int(colour[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "#ffffff"  # WCAG 2's luminance


def picture_html(svg: str, alt: str) -> Html:
    """Return an image of an SVG document; the display needs the style ``figure``. Text in it is never markup."""
    height = svg.partition('height="')[2].partition('"')[0]
    shown = tag("img", alt=alt, cls="figure", width="100%", height=height).removesuffix("></img>")
    # Not base64, which is a third longer. Only attributes have quotation marks, so they can be replaced.
    coded = svg.translate(str.maketrans(_CODES))
    return Html(f'{shown} src="data:image/svg+xml;charset=utf-8,{coded}">')


def _alpha(look: Look) -> str:
    return "" if look.alpha >= 1 else f' opacity="{look.alpha:.2g}"'


def _n(number: float) -> str:
    """Return a number with at most one decimal, without a leading zero."""
    return f"{number:.1f}".removesuffix(".0").replace("-0.", "-.").removeprefix("0") or "0"


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
