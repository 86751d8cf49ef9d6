"""Building blocks of displays: names, chips, times, values, statistics and pictures of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from bls_notebook.display.document import Block, Both, Fold, Forms, Piece, Said, Warnings, Words, piece
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.records.models import went_through
from bls_notebook.records.responses import Figures, Media
from bls_notebook.records.units import duration, size
from bls_notebook.records.visible_text import visible

from .as_text import clip

LONGEST = 76  # characters of a preview; the tooltip has all of it
_WRAPS = 40  # characters; a longer list in a table is wrapped
NOTHING = Piece("", Html())


def name(value: str) -> Piece:
    """Show a name exactly as it is written."""
    return Piece(value, tag("b", value, cls="name"))


def quiet(*said: Said) -> Piece:
    """Show secondary text."""
    pieces = [piece(part) for part in said]
    return Piece("".join(p.text for p in pieces), tag("span", *(p.html for p in pieces), cls="dim"))


def listed(names: Iterable[str]) -> Piece:
    """Show names in a cell of a table."""
    words = ", ".join(names)
    return Piece(words, prose(words), cls="wrap" if len(words) > _WRAPS else "")


def dots(*said: Said, by: str = " · ") -> Piece:
    """Join facts: in HTML by middle dots, in text by `by`."""
    pieces = [piece(part) for part in said]
    words = by.join(visible(p.text) for p in pieces if p.text)
    return Piece(words, join(*(p.html for p in pieces), by=" · "))


def spaced(*pieces: Piece) -> Piece:
    """Show pieces side by side."""
    return Piece(" ".join(p.text for p in pieces), join(*(p.html for p in pieces), by=" "))


def time(seconds: float | None) -> Piece:
    """Show a time (s)."""
    return NOTHING if seconds is None else Piece(duration(seconds), tag("span", duration(seconds), cls="time"))


def code(value: str) -> Piece:
    return Piece(value, tag("code", value))


def coded(words: str) -> Piece:
    """Show text between backticks as code; plain text keeps the backticks. Line breaks stay."""
    pieces = words.split("`")
    return Piece(words, join(*(tag("code", part) if i % 2 else prose(part) for i, part in enumerate(pieces))))


def lines(value: str) -> Piece:
    """Show text of several lines; line breaks stay."""
    return Piece(value, prose(value))


def datatype(value: str) -> Piece:
    """Show an element type."""
    return Piece(value, tag("code", value, cls="chip"))


def device(value: str) -> Piece:
    """Show a tensor's device; a simulated one also has a dashed edge."""
    kind = "" if value == "cpu" else " gpu"
    if "simulated" in value:
        kind += " simulated"
    return Piece(value, tag("span", value, cls=f"chip{kind}"))


def memory(value: int) -> Piece:
    """Show a number of bytes; the tooltip has the exact number."""
    exact = "unknown" if value < 0 else f"{value:,} bytes"
    return Piece(size(value), tag("span", size(value), title=exact))


def known(value: int) -> Piece:
    """Show a number of bytes; an unknown one is an empty cell in text."""
    return memory(value) if value >= 0 else Piece("", quiet("unknown").html)


def values(value: str, longest: int = LONGEST) -> Piece:
    """Show a preview on one line; HTML cuts a long one."""
    short = clip(value, longest)
    shown = tag("code", short, cls="value", title=None if short == value else value)
    return Piece(value, tag("span", shown, cls="fit"))


def stubs_warning(stubs: Iterable[str]) -> Warnings:
    """Return the warning that stubs took part in a response; an empty one without stubs."""
    names = dict.fromkeys(stubs)
    return Warnings([went_through(names)] if names else [], label="stub")


def stub(why: str) -> list[Piece]:
    """Return the mark of a model for which a stub answers, if there is a reason `why`."""
    return [Piece("stub", tag("span", "stub", cls="chip stub", title=why))] if why else []


def remote(address: str) -> list[Piece]:
    """Return the mark of a model on a remote server, if there is an address."""
    return [Piece("remote", tag("span", "remote", cls="chip remote", title=address))] if address else []


def equal_how(tolerance: float, ulps: int) -> str:
    """Return how equal two responses are: ``equal bit by bit``, or within a tolerance."""
    within = ([f"{tolerance:g}"] if tolerance else []) + ([f"{ulps} ULP"] if ulps else [])
    return f"equal within {' or '.join(within)}" if within else "equal bit by bit"


def stated(word: str, kind: str = "") -> Piece:
    """Show a state; `kind` is its style, such as ``ready`` or ``unavailable``."""
    return Piece(word, tag("span", word, cls=f"state {kind}".strip()))


def pasted(code: str) -> Both:
    """Show code for the user to copy and run; the stylesheet is ``tried``."""
    indented = [f"    {visible(line)}" for line in code.splitlines()]
    return Both(lambda _: indented, tag("pre", prose(code), cls="tried-next"))


def opened(title: str, blocks: Sequence[Block], is_open: bool = True) -> Forms:
    """Put blocks under a title; HTML folds them."""
    return Forms([Words(title, gap=True), *blocks], [Fold(title, blocks, is_open)])


class _HasState(Protocol):
    @property
    def state(self) -> str: ...

    @property
    def reason(self) -> str: ...


def state(record: _HasState) -> Piece:
    """Show a model's state; a model that was never loaded, or was unloaded on request, is not marked as failed."""
    states = ("READY", "LOADING", "UNLOADING", "UNAVAILABLE")
    is_known = record.state in states and record.reason not in ("unloaded", "not loaded")
    return stated(record.state, record.state.lower() if is_known else "")


_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def number(value: float | None) -> str:
    """Format a number in about six characters; whole numbers in full."""
    if value is None:
        return "none"
    return f"{value:d}" if isinstance(value, int) else f"{value:.4g}"


def figures_piece(figures: Figures | None) -> Piece:
    """Show the statistics of a tensor: least to greatest, mean, and the numbers of NaN and Inf."""
    if figures is None:
        return Piece("", Html())
    range_ = f"{number(figures.least)} to {number(figures.greatest)}, mean {number(figures.mean)}"
    range_ = range_ if figures.least is not None else "no finite number"
    bad = [f"{n:,} {name}" for n, name in ((figures.nans, "NaN"), (figures.infinities, "Inf")) if n]
    sample = f"1/{figures.every:,} read" if figures.every > 1 else ""
    marked = [tag("span", words, cls="seen-bad") for words in bad]
    inside = join(range_, *marked, tag("span", sample, cls="dim") if sample else "", by=" ")
    return Piece(" ".join(filter(None, [range_, *bad, sample])), tag("span", inside, cls="seen-figures"))


def media_html(media: Media, side: int, name: str) -> Html:
    """Show a picture, whose longer side has `side` pixels, or a sound; return nothing for other media."""
    if not _BASE64.fullmatch(media.data):
        return Html()
    source = f"data:{media.kind};base64,{media.data}"
    if media.kind == "audio/wav":
        return tag("audio", controls="", preload="metadata", src=source, cls="seen-sound", **{"aria-label": name})
    if media.kind not in _PICTURES:
        return Html()
    scale = side / max(media.width, media.height, 1)
    known = media.width > 0 and media.height > 0
    wide, high = (max(1, round(media.width * scale)), max(1, round(media.height * scale))) if known else (None, side)
    words = f"{name}: {media.width}×{media.height}, {media.said}" if known else name
    pixels = "seen-pixels" if known and scale >= 2 else ""
    shown = tag(
        "img", src=source, alt=words, title=words, width=wide, height=high, cls=f"seen-picture {pixels}".strip()
    )
    return Html(shown.removesuffix("</img>"))
