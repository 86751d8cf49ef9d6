"""The small pieces of displays: names, chips, times, values, figures and pictures of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from bls_notebook.display.document import Block, Both, Fold, Forms, Piece, Said, Warnings, Words, piece
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.display.palette import LINE
from bls_notebook.records.raw_events import went_through
from bls_notebook.records.repository import Figures, Media
from bls_notebook.records.units import duration, size
from bls_notebook.records.visible_text import visible

from .as_text import clip
from .svg import picture_html

LONGEST = 76  # characters of a preview; the whole of it is in the tooltip
_WRAPS = 40  # characters, from where on a list in a table takes several lines
NOTHING = Piece("", Html())


def name(value: str) -> Piece:
    """Show a name as its bearer wrote it."""
    return Piece(value, tag("b", value, cls="name"))


def quiet(*said: Said) -> Piece:
    """Show secondary text."""
    found = [piece(each) for each in said]
    return Piece("".join(each.text for each in found), tag("span", *(each.html for each in found), cls="dim"))


def listed(names: Iterable[str]) -> Piece:
    """Show names in a cell of a table."""
    words = ", ".join(names)
    return Piece(words, prose(words), cls="wrap" if len(words) > _WRAPS else "")


def dots(*said: Said, by: str = " · ") -> Piece:
    """Join facts by middle dots, in text by what is given."""
    found = [piece(each) for each in said]
    words = by.join(visible(each.text) for each in found if each.text)
    return Piece(words, join(*(each.html for each in found), by=" · "))


def time(seconds: float | None) -> Piece:
    """Show a time in an element of its own."""
    if seconds is None:
        return NOTHING
    return Piece(duration(seconds), tag("span", duration(seconds), cls="time"))


def code(value: str) -> Piece:
    """Show what a program would say."""
    return Piece(value, tag("code", value))


def coded(words: str) -> Piece:
    """Show what is between backticks as code; text keeps them. Lines stay."""
    pieces = words.split("`")
    return Piece(words, join(*(tag("code", each) if i % 2 else prose(each) for i, each in enumerate(pieces))))


def lines(value: str) -> Piece:
    """Show text that may have several lines; they stay."""
    return Piece(value, prose(value))


def datatype(value: str) -> Piece:
    """Show an element type."""
    return Piece(value, tag("code", value, cls="chip"))


def device(value: str) -> Piece:
    """Show where a tensor lies; a simulated device has a dashed edge besides the word."""
    kind = "" if value == "cpu" else " gpu"
    if "simulated" in value:
        kind += " simulated"
    return Piece(value, tag("span", value, cls=f"chip{kind}"))


def memory(value: int) -> Piece:
    """Show a size; the exact number is in the tooltip."""
    exact = "not known" if value < 0 else f"{value:,} bytes"
    return Piece(size(value), tag("span", size(value), title=exact))


def known(value: int) -> Piece:
    """Show a size; one that is not known is an empty cell in text."""
    return memory(value) if value >= 0 else Piece("", quiet("not known").html)


def values(value: str, longest: int = LONGEST) -> Piece:
    """Show a preview on one line, cut in HTML by an ellipsis where it is long."""
    short = clip(value, longest)
    shown = tag("code", short, cls="value", title=None if short == value else value)
    return Piece(value, tag("span", shown, cls="fit"))


def stubs_told(stubs: Iterable[str]) -> Warnings:
    """Say which stubs answers went through; nothing where there are none."""
    names = dict.fromkeys(stubs)
    return Warnings([went_through(names)] if names else [], label="stub")


def stub(why: str) -> list[Piece]:
    """Mark what a stub answers for: nothing where there is no reason why."""
    return [Piece("stub", tag("span", "stub", cls="chip stub", title=why))] if why else []


def remote(address: str) -> list[Piece]:
    """Mark what a server elsewhere runs: nothing where there is no address."""
    return [Piece("remote", tag("span", "remote", cls="chip remote", title=address))] if address else []


def equal_how(tolerance: float, ulps: int) -> str:
    """Say how equal answers are: ``equal bit by bit``, or within what floats may be apart."""
    within = [f"{tolerance:g}"] * bool(tolerance) + [f"{ulps} ULP"] * bool(ulps)
    return f"equal within {' or '.join(within)}" if within else "equal bit by bit"


def stated(word: str, kind: str = "") -> Piece:
    """Show a state: that of something that serves (``ready``), or does not any more (``unavailable``)."""
    return Piece(word, tag("span", word, cls=f"state {kind}".strip()))


def pasted(code: str) -> Both:
    """Show lines that a person can copy and run; the stylesheet is ``tried``."""
    told = [f"    {visible(line)}" for line in code.splitlines()]
    return Both(lambda _: told, tag("pre", prose(code), cls="tried-next"))


def opened(title: str, blocks: Sequence[Block], is_open: bool = True) -> Forms:
    """Put blocks under a title; HTML folds them away."""
    return Forms([Words(title, gap=True), *blocks], [Fold(title, blocks, is_open)])


class _HasState(Protocol):
    @property
    def state(self) -> str: ...

    @property
    def reason(self) -> str: ...


def state(record: _HasState) -> Piece:
    """Show a model's state; one that was never loaded, or unloaded on purpose, is not marked as failed."""
    states = ("READY", "LOADING", "UNLOADING", "UNAVAILABLE")
    is_known = record.state in states and record.reason not in ("unloaded", "not loaded")
    return stated(record.state, record.state.lower() if is_known else "")


_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_HEIGHTS = "▁▂▃▄▅▆▇█"


def number(value: float | None) -> str:
    """Spell a number in about six characters; whole ones in full."""
    if value is None:
        return "none"
    return f"{value:d}" if isinstance(value, int) else f"{value:.4g}"


def figures_piece(figures: Figures | None) -> Piece:
    """Say what the figures of a tensor are: least to greatest, the mean, and what needs attention."""
    if figures is None:
        return Piece("", Html())
    said = f"{number(figures.least)} to {number(figures.greatest)}, mean {number(figures.mean)}"
    said = said if figures.least is not None else "no finite number"
    bad = [f"{n:,} {what}" for n, what in ((figures.nans, "NaN"), (figures.infinities, "Inf")) if n]
    of = f"1/{figures.every:,} seen" if figures.every > 1 else ""
    shown = [tag("span", words, cls="seen-bad") for words in bad]
    inside = join(said, *shown, tag("span", of, cls="dim") if of else "", by=" ")
    return Piece(" ".join(filter(None, [said, *bad, of])), tag("span", inside, cls="seen-figures"))


def media_html(media: Media, side: int, name: str) -> Html:
    """Show a picture, its longer side of so many pixels, or a sound; nothing that is neither."""
    if not _BASE64.fullmatch(media.data):
        return Html()
    source = f"data:{media.kind};base64,{media.data}"
    if media.kind == "audio/wav":
        return tag("audio", controls="", preload="metadata", src=source, cls="seen-sound", **{"aria-label": name})
    if media.kind not in _PICTURES:
        return Html()
    longest = max(media.width, media.height, 1)
    scale = side / longest
    known = media.width > 0 and media.height > 0
    wide, high = (max(1, round(media.width * scale)), max(1, round(media.height * scale))) if known else (None, side)
    words = f"{name}: {media.width}×{media.height}, {media.said}" if known else name
    pixels = "seen-pixels" if known and scale >= 2 else ""
    shown = tag(
        "img", src=source, alt=words, title=words, width=wide, height=high, cls=f"seen-picture {pixels}".strip()
    )
    return Html(shown.removesuffix("</img>"))


def sparks(counts: tuple[int, ...]) -> str:
    """Draw counts as a line of blocks."""
    top = max(counts, default=0)
    return "".join(_HEIGHTS[round(7 * n / top)] if n else " " for n in counts) if top > 0 else ""


def bars(counts: tuple[int, ...], titles: tuple[str, ...] = ()) -> Html:
    """Draw counts as bars."""
    top = max(counts, default=0)
    if top <= 0:
        return Html()
    shown = (
        tag("span", style=f"height:{100 * max(n, 0) / top if n <= 0 else max(100 * n / top, 2):.1f}%",
            title=titles[i] if i < len(titles) else None)
        for i, n in enumerate(counts)
    )  # fmt: skip
    return tag("div", *shown, cls="seen-bars")


def line_html(line: tuple[tuple[float, float], ...], height: int = 72) -> Html:
    """Draw a row of numbers by the least and the greatest of its pieces."""
    low, high = min(pair[0] for pair in line), max(pair[1] for pair in line)
    scale = (height - 2) / (high - low) if 0 < high - low < float("inf") else 0.0
    middle = height / 2

    def y(value: float) -> str:
        return f"{height - 1 - (value - low) * scale if scale else middle:.1f}"

    path = "".join(f"{'L' if i else 'M'}{i} {y(top)}L{i} {y(bottom)}" for i, (bottom, top) in enumerate(line))
    wide = max(1, len(line) - 1)
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}">'
        f'<svg width="100%" height="{height}" viewBox="0 0 {wide} {height}" preserveAspectRatio="none">'
        f'<path d="{path}" fill="none" stroke="{LINE.light}" stroke-width="1.2" '
        f'vector-effect="non-scaling-stroke" stroke-linejoin="round"/></svg></svg>'
    )
    return picture_html(picture, f"from {number(low)} to {number(high)}")
