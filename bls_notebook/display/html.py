"""HTML that cannot be broken out of: every child is escaped unless it is `Html` already."""

from __future__ import annotations

from html import escape as _escape

from bls_notebook.records.visible_text import visible


class Html(str):
    """Markup that is safe as it stands."""

    __slots__ = ()


def text(value: str) -> Html:
    """Escape `value` for one line; what is `Html` already is left alone."""
    return value if isinstance(value, Html) else Html(_escape(visible(value)))


def prose(value: str) -> Html:
    """Escape text that may have several lines, such as a message or a reason; they stay."""
    return Html(_escape(visible(value.expandtabs(4), lines=True)))


def join(*children: str, by: str = "") -> Html:
    """Put the non-empty children together."""
    return Html(text(by).join(text(child) for child in children if child))


def tag(name: str, *children: str, cls: str = "", **attributes: str | int | None) -> Html:
    """Make an element.

    Children are `Html` as it stands, any other text escaped; ``cls`` are class names without their ``bls-``.
    None leaves an attribute out, ``""`` gives one without a value.
    """
    if name in ("td", "th") and cls != "num":
        # Inline, because a notebook that is not trusted yet is shown without the stylesheet.
        attributes["style"] = "text-align:left"
    if cls:
        attributes = {"class": " ".join(f"bls-{c}" for c in cls.split()), **attributes}
    given = "".join(
        f" {key}" if value == "" else f' {key}="{_escape(visible(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{join(*children)}</{name}>")
