"""The small pieces that every display is made of: chips, values, times, the frame around them."""

from __future__ import annotations

from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.display.style import stylesheet
from bls_notebook.display.text import clip
from bls_notebook.display.units import duration, size
from bls_notebook.observe.records.repository import ModelRecord

LONGEST = 76  # characters of a preview; the whole of it is in the tooltip


def output(*children: str, styles: str = "") -> Html:
    """Wrap one display with its stylesheet; notebooks must not typeset its dollars as formulas."""
    style = Html(f"<style>{stylesheet(*styles.split())}</style>")
    return tag("div", style, *children, **{"class": "bls-out mathjax_ignore tex2jax_ignore"})


def line(*children: str, cls: str = "head") -> Html:
    """Make one line; spaces stay between its parts where there is no stylesheet."""
    return tag("div", join(*children, by=" "), cls=cls)


def dots(*children: str) -> Html:
    """Join facts by middle dots."""
    return join(*children, by=" · ")


def name(value: str) -> Html:
    """Show a name as its bearer wrote it."""
    return tag("b", value, cls="name")


def quiet(*children: str) -> Html:
    """Show secondary text."""
    return tag("span", *children, cls="dim")


def time(seconds: float | None) -> Html:
    """Show a time in an element of its own."""
    return Html() if seconds is None else tag("span", duration(seconds), cls="time")


def datatype(value: str) -> Html:
    """Show an element type."""
    return tag("code", value, cls="chip")


def device(value: str) -> Html:
    """Show where a tensor lies; a simulated device has a dashed edge besides the word."""
    kind = "" if value == "cpu" else " gpu"
    if "simulated" in value:
        kind += " simulated"
    return tag("span", value, cls=f"chip{kind}")


def nbytes(value: int) -> Html:
    """Show a size; the exact number is in the tooltip."""
    return tag("span", size(value), title="not known" if value < 0 else f"{value:,} bytes")


def preview(value: str, longest: int = LONGEST) -> Html:
    """Show a preview on one line, cut by an ellipsis where it is long."""
    short = clip(value, longest)
    shown = tag("code", short, cls="value", title=None if short == value else value)
    return tag("span", shown, cls="fit")


def state(record: ModelRecord) -> Html:
    """Show a model's state; a model that was unloaded on purpose is no failure."""
    known = record.state in ("READY", "LOADING", "UNLOADING", "UNAVAILABLE") and record.reason != "unloaded"
    return tag("span", record.state, cls=f"state {record.state.lower()}" if known else "state")


def warnings(values: tuple[str, ...]) -> Html:
    """Show warnings as a list, or nothing."""
    if not values:
        return Html()
    items = (tag("li", tag("b", "warning"), Html(" "), prose(value)) for value in values)
    return tag("ul", *items, cls="warnings")
