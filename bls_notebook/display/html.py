"""HTML that cannot be broken out of: every child is escaped unless it is `Html` already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as _escape

from bls_notebook.observe.visible import visible


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

    Parameters
    ----------
    name : str
        The element's name.
    *children : str
        `Html` as it stands, any other text escaped.
    cls : str
        Class names without their ``bls-``.
    **attributes
        Attributes; None leaves one out, ``""`` gives one without a value.

    Returns
    -------
    Html
        The element.
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


def image(source: str, alt: str, cls: str = "") -> Html:
    """Make a picture; ``alt`` says what it shows."""
    return Html(tag("img", src=source, alt=alt, cls=cls).removesuffix("</img>"))


def row(cell_tags: Iterable[Html], cls: str = "") -> Html:
    """Make a table row of ready cells."""
    return tag("tr", *cell_tags, cls=cls)


def table(
    caption: str, heads: Iterable[tuple[str, str]], body: Iterable[Html], *, groups: bool = False
) -> Html:
    """Make an accessible table in a box that scrolls sideways by itself.

    Parameters
    ----------
    caption : str
        What the table holds, for screen readers.
    heads : iterable of (text, class)
        The column headings; their classes are those of the columns.
    body : iterable of Html
        Rows; or whole ``tbody`` elements if `groups`.
    groups : bool
        Whether the rows come in groups, each a ``tbody`` with a row heading of its own.

    Returns
    -------
    Html
        The table.
    """
    top = tag("thead", row(tag("th", name, cls=cls, scope="col") for name, cls in heads))
    rows = join(*body) if groups else tag("tbody", *body)
    inner = tag("table", tag("caption", caption), top, rows, cls="groups" if groups else "")
    return tag("div", inner, cls="scroll")
