"""A session in figures: a line of them, a row for each model, and what the wall time was spent on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, join, row, table, tag
from bls_notebook.display.session.words import ns, percent, some_ns
from bls_notebook.display.timeline.html import timeline_html
from bls_notebook.display.timeline.text import timeline_lines
from bls_notebook.display.units import count, size
from bls_notebook.observe.analysis.session_statistics import ModelStatistics, SessionStatistics
from bls_notebook.observe.records.session import Session

__all__ = ["session_figures", "session_html", "session_text", "statistics_html", "statistics_text", "tiles"]

_NO_PICTURE = Html()
_ERRORS = 3  # that are told in words
_NONE = "no requests: nothing was sent to a model while the profile was on"

# Heading, what it means.
_COLUMNS = (
    ("requests", "how many were sent to it"),
    ("median", "of a request, from when it was sent until its last answer"),
    ("own", "its own work in execute, all requests together; a batch counts once"),
    ("callees", "in execute while a request that it had sent was under way"),
    ("queued", "its requests waited for an instance, all together"),
    ("busy", "the part of the wall time that its instances were busy, on average"),
    ("critical path", "the part of the wall time that it bounded: with less of it the whole is faster"),
    ("", ""),
)


def session_text(session: Session, *, width: int = 100) -> str:
    """Describe a session as plain text.

    Parameters
    ----------
    session : Session
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        A line of figures, a row for each model, and notes on what needs attention.
    """
    lines = timeline_lines([session], width=width) if session.spans else ()
    said = statistics_text(session.statistics(), name=session.name, width=width, picture=lines)
    errors = [line for error in _errors(session) for line in text.note("error", error, width)]
    return "\n".join([said, *errors])


def session_html(session: Session, *, widget: Any = None) -> str:
    """Describe a session as HTML.

    Parameters
    ----------
    session : Session
    widget : Timeline, optional
        What covers the picture of the timeline while a kernel is there.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    picture = timeline_html(session, widget=widget) if session.spans else Html()
    return statistics_html(session.statistics(), name=session.name, picture=picture, errors=_errors(session))


def statistics_text(
    figures: SessionStatistics, *, name: str = "", width: int = 100, picture: Sequence[str] = ()
) -> str:
    """Describe a session's figures as plain text, the lines of a picture among them; as `session_text`."""
    title = text.head(name or "session", ns(figures.wall))
    if not figures.requests:
        return f"{title}\n  {_NONE}"
    lines = [title, "  " + text.facts(*(f"{label} {value}" for label, value, _ in session_figures(figures)))]
    lines += picture
    rows = [[model, *(cell for cell in cells)] for model, cells in _rows(figures)]
    heads = ["model", *(head for head, _ in _COLUMNS)]
    lines += text.table(rows, heads=heads, right=" rttttrr", width=width, last="wrap")
    for note in _notes(figures):
        lines += text.note("note", note, width)
    return "\n".join(lines)


def statistics_html(
    figures: SessionStatistics, *, name: str = "", picture: Html = _NO_PICTURE, errors: Sequence[str] = ()
) -> str:
    """Describe a session's figures as HTML, a picture and what requests failed with among them."""
    top = parts.line(parts.name(name or "session"))
    if not figures.requests:
        return parts.output(top, parts.line(parts.quiet(_NONE)), styles="session")
    heads = [("model", ""), *((head, "num" if head else "") for head, _ in _COLUMNS)]
    body = (
        row([
            tag("th", parts.name(model), scope="row"),
            *(
                tag("td", cell, cls="num" if head else "session-remarks", title=what or None)
                for cell, (head, what) in zip(cells, _COLUMNS, strict=True)
            ),
        ])
        for model, cells in _rows(figures)
    )  # fmt: skip
    whole = table("Models of the session", heads, body)
    return parts.output(
        top,
        tiles(session_figures(figures)),
        picture,
        whole,
        _error_list(errors),
        _note_list(figures),
        styles="session figure",
    )


def session_figures(figures: SessionStatistics) -> list[tuple[str, str, str]]:
    """Return the figures to show above a picture of a session: label, value, and what it means."""
    out = [
        ("wall", ns(figures.wall), "how long the profile was on"),
        ("requests", f"{figures.requests:,}", "how many were sent, by the notebook and by models"),
        (
            "busy",
            percent(figures.busy, figures.wall),
            f"{ns(figures.busy)}: at least one request was worked on",
        ),
        (
            "overlap",
            percent(figures.overlap, figures.busy),
            f"{ns(figures.overlap)} of the busy time: two or more were worked on at once",
        ),
        (
            "at once",
            f"{figures.concurrency:.1f}",
            f"so many were worked on at once, on average while any was; {figures.peak} at most",
        ),
        (
            "queued",
            ns(figures.queued) if figures.queued else "0",
            f"all waits for an instance together; for {ns(figures.waited)} at least one request waited",
        ),
    ]
    for label, number in (
        ("errors", figures.failed),
        ("cancelled", figures.cancelled),
        ("cached", figures.cached),
        ("unfinished", figures.unfinished),
    ):
        if number:
            out.append((label, f"{number:,}", ""))
    return out


def tiles(figures: Iterable[tuple[str, str, str]]) -> Html:
    """Show figures side by side: label, value, and what it means as a tooltip, where that is given."""
    # With spaces, for a notebook that is not trusted and is shown without the stylesheet.
    each = (
        tag("span", parts.quiet(label), Html(" "), tag("b", value), cls="session-tile", title=what or None)
        for label, value, what in figures
    )
    return tag("div", join(*each, by=" "), cls="session-tiles")


def _rows(figures: SessionStatistics) -> list[tuple[str, list[str]]]:
    """The cells of each model, the one that took most of the wall time first, and of the notebook."""
    versions: dict[str, int] = {}
    for model in figures.models:
        versions[model.name] = versions.get(model.name, 0) + 1
    out = [
        (_name(model, versions), _cells(model, figures))
        for model in sorted(figures.models, key=lambda m: (-m.critical, m.name, m.version))
    ]
    share = percent(figures.notebook, figures.wall)
    notebook = ["", "", some_ns(figures.notebook), "", "", "", share, "no request was under way"]
    return [*out, ("notebook", notebook)]


def _name(model: ModelStatistics, versions: dict[str, int]) -> str:
    return f"{model.name}/{model.version}" if versions[model.name] > 1 else model.name


def _cells(model: ModelStatistics, figures: SessionStatistics) -> list[str]:
    instances = figures.wall * model.instances
    return [
        f"{model.requests:,}",
        ns(model.duration.median),
        some_ns(model.own),
        some_ns(model.waiting),
        some_ns(model.queued),
        percent(model.busy, instances) if model.instances else "",
        percent(model.critical, figures.wall),
        ", ".join(_remarks(model)),
    ]


def _remarks(model: ModelStatistics) -> list[str]:
    out = []
    if model.instances > 1:
        out.append(count(model.instances, "instance"))
    if 0 < model.executions < model.requests - model.cached - model.failed - model.cancelled:
        out.append(f"in {count(model.executions, 'batch').replace('batchs', 'batches')}")
    if model.device_ns >= 0:
        out.append(f"{ns(model.device_ns)} on the GPU")
    for number, noun in (
        (model.failed, "error"),
        (model.cancelled, "cancelled"),
        (model.cached, "from the cache"),
        (model.unfinished, "unfinished"),
    ):
        if number:
            out.append(count(number, noun) if noun == "error" else f"{number:,} {noun}")
    if model.crossings:
        out.append(f"{count(model.crossings, 'tensor')} moved between devices")
    if model.bytes_in + model.bytes_out >= 1 << 20:
        out.append(f"{size(model.bytes_in)} in, {size(model.bytes_out)} out")
    return out


def _notes(figures: SessionStatistics) -> list[str]:
    if not figures.dropped:
        return []
    return [
        f"{count(figures.dropped, 'request')} did not fit and {'is' if figures.dropped == 1 else 'are'} not "
        "counted here; record more of them with a larger limit"
    ]


def _errors(session: Session) -> list[str]:
    """What requests failed with, each once: the model and the message's first line."""
    found: dict[str, int] = {}
    for span in session.spans:
        if span.state == "error":
            # Without the traceback that Triton puts below a message.
            first = span.error.strip().partition("\n")[0]
            said = f"{span.model}: {text.clip(first, 300)}"
            found[said] = found.get(said, 0) + 1
    told = [f"{said} ({n:,} times)" if n > 1 else said for said, n in found.items()]
    more = len(told) - _ERRORS
    return [*told[:_ERRORS], f"{more:,} more"] if more > 1 else told


def _error_list(errors: Sequence[str]) -> Html:
    items = (tag("li", tag("b", "error"), Html(" "), error) for error in errors)
    return tag("ul", *items, cls="session-errors") if errors else Html()


def _note_list(figures: SessionStatistics) -> Html:
    notes = _notes(figures)
    return join(parts.warnings(tuple(notes))) if notes else Html()
