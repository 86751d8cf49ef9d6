"""Safe HTML: every text is escaped unless it is already `Html`."""

from __future__ import annotations

from html import escape as _escape

from bls_notebook.records.visible_text import visible


class Html(str):
    """Markup that needs no escaping."""

    __slots__ = ()


def text(value: str) -> Html:
    """Escape `value` for one line; return `Html` unchanged."""
    return value if isinstance(value, Html) else Html(_escape(visible(value)))


def prose(value: str) -> Html:
    """Escape text of several lines, such as a message; line breaks stay."""
    return Html(_escape(visible(value.expandtabs(4), lines=True)))


def join(*children: str, by: str = "") -> Html:
    return Html(text(by).join(text(child) for child in children if child))


def tag(name: str, *children: str, cls: str = "", **attributes: str | int | None) -> Html:
    """Make an element.

    Children that are not `Html` are escaped. `cls` are class names without the prefix ``bls-``. An attribute is left
    out if its value is None, and has no value if it is ``""``.
    """
    if name in ("td", "th") and cls != "num":
        # Inline, because an untrusted notebook has no stylesheet.
        attributes["style"] = "text-align:left"
    if cls:
        attributes = {"class": " ".join(f"bls-{c}" for c in cls.split()), **attributes}
    written = "".join(
        f" {key}" if value == "" else f' {key}="{_escape(visible(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{join(*children)}</{name}>")
