"""An error: its message, the models that it came through, the lines of the model that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.observe.records.repository import ErrorRecord, FrameRecord
from bls_notebook.observe.visible import visible

_AT = "\n\nAt:\n"  # what Triton puts before a model's traceback
_TRACEBACK = re.compile(r"\n\nAt:(?:\n  .*\(\d+\): .*)+\n?")
_LINES = 8  # of a message that are shown at once; the rest folds away
_CHARACTERS = 800
_MOST = 50_000  # characters that are shown at all


def error_text(record: ErrorRecord, *, width: int = 100) -> str:
    """Describe an error as plain text.

    Parameters
    ----------
    record : ErrorRecord
        The error.
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        The whole message, the chain of models, the frames with their source, and the remedy.
    """
    first, *rest = error_lines(record, width - 2)
    return "\n".join([f"✗ {first}", *(f"  {line}".rstrip() for line in rest)])


def error_html(record: ErrorRecord) -> str:
    """Describe an error as HTML.

    Parameters
    ----------
    record : ErrorRecord
        The error.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    return parts.output(error_block(record), styles="error")


def error_lines(record: ErrorRecord, width: int) -> list[str]:
    """Return the lines of `error_text` without its mark and indent."""
    lines = [text.facts(*_title(record))]
    lines += text.wrap(_message(record), width)
    if len(record.chain) > 1:
        lines.append(f"through {visible(' → '.join(record.chain))}")
    for frame in record.frames:
        model, *rest = _where(frame)
        lines += ["", text.head(model, text.facts(*rest))]
        number = max((len(str(n)) for n, _ in frame.source), default=0)
        for n, source in frame.source:
            mark = "→" if n == frame.line else " "
            code = text.head(source.expandtabs(4).rstrip()) if source.strip() else ""
            lines.append(f"{mark} {n:>{number}}  {code}".rstrip())
    if record.hint:
        lines += ["", *text.note("how to fix", record.hint, width, "")]
    return lines


def error_block(record: ErrorRecord) -> Html:
    """Return the body of `error_html`, for use inside another display."""
    title, *facts = _title(record)
    top = parts.line(
        tag("b", title, cls="error-title", style="color:#d64545"),
        *(parts.quiet(fact) for fact in facts if fact),
    )
    message, rest = _split(_message(record))
    return tag(
        "div",
        top,
        tag("pre", prose(message), cls="error-message"),
        _more(rest),
        _chain(record),
        _traceback(record),
        _hint(record),
        cls="error",
    )


def _title(record: ErrorRecord) -> Iterator[str]:
    yield f"{record.chain[-1]} failed" if record.chain else "error"
    yield "" if record.message.startswith(f"{record.kind}:") else record.kind
    yield record.code


def _message(record: ErrorRecord) -> str:
    """Return the message, without Triton's traceback where frames tell the same with their source."""
    message = record.message
    if len(message) > _MOST:
        message = f"{message[:_MOST]} … {len(message) - _MOST:,} more characters"
    message = _TRACEBACK.sub("", message) if record.frames else message
    return message.strip() or "no message"


def _split(message: str) -> tuple[str, str]:
    """Part a message where Triton appends its traceback, or where it gets too long to be read at a glance."""
    at = message.find(_AT)
    first, rest = (message, "") if at < 0 else (message[:at], message[at + 2 :])
    lines = first.split("\n")
    cut = min(len("\n".join(lines[:_LINES])), _CHARACTERS)
    if cut < len(first):
        return f"{first[:cut]}…", message
    return first, rest


def _chain(record: ErrorRecord) -> Html:
    if len(record.chain) < 2:
        return Html()
    *through, last = record.chain
    models = join(*through, tag("b", last), by=" → ")
    return tag("div", parts.quiet("through"), Html(" "), tag("span", models, cls="error-chain"))


def _more(rest: str) -> Html:
    if not rest:
        return Html()
    own = rest.startswith("At:")
    return _fold("traceback" if own else "whole message", tag("pre", prose(rest), cls="error-message"), own)


def _traceback(record: ErrorRecord) -> Html:
    own = [frame for frame in record.frames if frame.model]
    folds = [_fold("traceback", join(*map(_frame, own)), True)] if own else []
    if len(own) < len(record.frames):
        folds.append(_fold("full traceback", join(*map(_frame, record.frames)), False))
    return join(*folds)


def _hint(record: ErrorRecord) -> Html:
    if not record.hint:
        return Html()
    return tag("div", tag("b", "how to fix"), Html(" "), prose(record.hint), cls="error-hint")


def _fold(title: str, inside: Html, is_open: bool) -> Html:
    return tag("details", tag("summary", title), inside, open="" if is_open else None)


def _where(frame: FrameRecord) -> Iterator[str]:
    yield frame.model
    yield f"version {frame.version}" if frame.model and frame.version > 0 else ""
    yield f"{frame.file or '?'}, line {frame.line}"
    yield f"in {frame.function}" if frame.function else ""


def _frame(frame: FrameRecord) -> Html:
    model, *rest = _where(frame)
    where = parts.line(parts.name(model) if model else Html(), parts.dots(*rest), cls="error-where")
    number = max((len(str(n)) for n, _ in frame.source), default=0)
    lines = (_line(n, source, number, n == frame.line) for n, source in frame.source)
    return join(where, tag("pre", *lines, cls="error-code") if frame.source else "")


def _line(number: int, source: str, width: int, fails: bool) -> Html:
    label = tag("i", f"{'→' if fails else ' '} {number:>{width}}")
    # The newline is for readers without the stylesheet; a block swallows it.
    return tag(
        "span", label, f"  {source.expandtabs(4).rstrip()}", Html("\n"), cls="error-fails" if fails else ""
    )
