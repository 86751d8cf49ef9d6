"""The small pieces that every display is made of: chips, values, times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from bls_notebook.display.document import Block, Both, Fold, Forms, Piece, Said, Warnings, Words, piece
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.display.text import clip
from bls_notebook.display.units import duration, size
from bls_notebook.records.repository import went_through
from bls_notebook.records.visible_text import visible

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
