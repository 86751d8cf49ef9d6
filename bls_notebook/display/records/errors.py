"""Displays of errors (message, fix, chain of models, frames with their source), of messages and of log lines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

from bls_notebook.display import as_text as text
from bls_notebook.display import parts
from bls_notebook.display.document import Block, Both, Box, Document, Line, Note, Piece, Words
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.records.advice import guide_about
from bls_notebook.records.errors import ErrorRecord, FrameRecord
from bls_notebook.records.messages import LogLine, MessageRecord
from bls_notebook.records.remedy_words import remedy
from bls_notebook.records.units import shape
from bls_notebook.records.visible_text import spoken, visible, without_traceback

_AT = "\n\nAt:\n"  # Triton's heading of a model's traceback
_TITLES = {
    "refused": "request to {} refused",
    "returned": "{} returned an error",
    "cancelled": "request to {} cancelled",
}
_LINES = 8  # of a message that HTML shows; the rest is folded
_CHARACTERS = 800  # likewise
_MOST = 50_000  # characters of a message; the rest is cut


def error_document(record: ErrorRecord) -> Document:
    return Document([error_box(record, mark="✗")], styles="error")


def error_box(record: ErrorRecord, *, mark: str = " ", gap: bool = False) -> Box:
    """Return an error as a block of another display."""
    return Box(list(_blocks(record)), "error", mark, gap)


def _blocks(record: ErrorRecord) -> Iterator[Block]:
    kind = "" if record.message.startswith(f"{record.kind}:") else record.kind
    if kind and record.stage == "returned" and (raised := _raised(record)) and raised != record.chain[-1]:
        kind = f"{raised} raised {kind}"  # the code belongs to the exception, too
    title = _TITLES.get(record.stage, "{} failed").format(record.chain[-1]) if record.chain else "error"
    head = Piece(title, tag("b", title, cls="error-title", style="color:#d32f2f"))
    yield Line([head, *(parts.quiet(fact) for fact in (kind, record.code) if fact)], by=" · ")
    message = _message(record)
    first, rest = _split(message)
    yield Both(lambda width: text.wrap(message, width), join(_pre(first), _more(rest)))
    if record.hint:
        advice = parts.coded(str(record.hint))
        hint = tag("div", tag("b", "how to fix"), Html(" "), advice.html, cls="error-hint")
        yield Note("how to fix", advice, hint, indent="")
    if page := guide_about(record.message):
        link = tag("div", tag("b", "guide"), Html(" "), _link(page), cls="error-hint")
        yield Note("guide", page, link, indent="")
    if len(record.chain) > 1:
        *through, last = record.chain
        models = tag("span", join(*through, tag("b", last), by=" → "), cls="error-chain")
        line = [f"through {visible(' → '.join(record.chain))}"]
        yield Both(lambda _: line, tag("div", parts.quiet("through").html, Html(" "), models))
    if record.inputs:
        inputs = ", ".join(
            f"{t.name} {t.datatype} {shape(t.shape)}{'' if t.device == 'cpu' else f' on {t.device}'}"
            for t in record.inputs
        )
        label = visible(f"sent to {record.chain[-1]}") if record.chain else "sent"
        yield Note(
            label, inputs, tag("div", parts.quiet(label).html, Html(" "), tag("code", inputs), cls="error-more"), ""
        )
    yield Both(lambda _: [line for frame in record.frames for line in _frame_lines(frame)], _traceback(record))
    if record.debug:
        yield from _debugger(record)


@cache
def _manual() -> str:
    """Return the address of the manual, if the package declares one (`Project-URL: Documentation`)."""
    try:
        urls = [url.partition(", ") for url in metadata("bls_notebook").get_all("Project-URL", ())]
    except PackageNotFoundError:  # a source tree that is not installed
        urls = []
    return next((url.rstrip("/") for label, _, url in urls if label == "Documentation"), "")


def _link(page: str) -> Html:
    """Link a page of the manual, if its address is known."""
    address, name = _manual(), tag("code", page)
    html = page.removeprefix("docs/").removesuffix(".md")
    return tag("a", name, href=f"{address}/{html}.html", target="_blank", rel="noopener") if address else name


def _debugger(record: ErrorRecord) -> Iterator[Block]:
    """Yield the line that says where ``%debug`` opens: the last frame of the outermost model that raised."""
    frames = list(reversed(list(enumerate(record.frames))))
    raised = _raised(record)
    at = next((i for i, frame in frames if frame.model == raised), None)
    if at is None:
        return
    if record.process:
        said = str(remedy("%debug cannot open in a process of its own: first {in_kernel}", name=raised))
        html = tag("span", parts.coded(said).html, cls="dim")
        yield Words(Piece(said.replace("`", ""), html), "error-more", gap=True)
        return
    frame, last = record.frames[at], not any(frame.model for frame in record.frames[at + 1 :])
    where = "here" if last else f"in {frame.model}, {frame.file} line {frame.line}"
    shown = join(tag("code", "%debug"), f" opens {where}")
    yield Words(Piece(f"%debug opens {where}", tag("span", shown, cls="dim")), "error-more", gap=True)


def _raised(record: ErrorRecord) -> str | None:
    """Return the outermost model whose code raised; None if none did."""
    return next((name for name in record.chain if any(frame.model == name for frame in record.frames)), None)


def _message(record: ErrorRecord) -> str:
    """Return the message, without Triton's traceback if the frames show it with source."""
    message = spoken(record.message)
    if len(message) > _MOST:
        message = f"{message[:_MOST]} … {len(message) - _MOST:,} more characters"
    message = without_traceback(message) if record.frames else message
    return message.strip() or "no message"


def _split(message: str) -> tuple[str, str]:
    """Split a message into the part to show and the rest: Triton's traceback, or the end of a long message."""
    at = message.find(_AT)
    first, rest = (message, "") if at < 0 else (message[:at], message[at + 2 :])
    lines = first.split("\n")
    cut = min(len("\n".join(lines[:_LINES])), _CHARACTERS)
    if cut == len(first):
        return first, rest
    # The last line of a Python traceback has the exception.
    last = f"\n{lines[-1][:_CHARACTERS]}" if "(most recent call last)" in first else ""
    return f"{first[:cut]}…{last}", message


def _pre(words: str) -> Html:
    return tag("pre", prose(words), cls="error-message")


def _more(rest: str) -> Html:
    if not rest:
        return Html()
    is_traceback = rest.startswith("At:")
    return _fold("traceback" if is_traceback else "whole message", _pre(rest), is_traceback)


def _fold(title: str, inside: Html, is_open: bool) -> Html:
    return tag("details", tag("summary", title), inside, open="" if is_open else None)


def _traceback(record: ErrorRecord) -> Html:
    own = [frame for frame in record.frames if frame.model]
    folds = [_fold("traceback", join(*map(_frame, own)), True)] if own else []
    if len(own) < len(record.frames):
        folds.append(_fold("full traceback", join(*map(_frame, record.frames)), False))
    return join(*folds)


def _where(frame: FrameRecord) -> list[str]:
    version = f"version {frame.version}" if frame.model and frame.version > 0 else ""
    return [version, f"{frame.file or '?'}, line {frame.line}", f"in {frame.function}" if frame.function else ""]


def _numbered(frame: FrameRecord) -> Iterator[tuple[str, str, bool]]:
    """Yield the lines of a frame: mark and number, source, and whether the line failed."""
    width = max((len(str(n)) for n, _ in frame.source), default=0)
    for n, source in frame.source:
        fails = n == frame.line
        yield f"{'→' if fails else ' '} {n:>{width}}", source.expandtabs(4).rstrip(), fails


def _frame_lines(frame: FrameRecord) -> list[str]:
    numbered = (f"{number}  {visible(source)}".rstrip() for number, source, _ in _numbered(frame))
    return ["", "  ".join(filter(None, (visible(frame.model), text.facts(*_where(frame))))), *numbered]


def _frame(frame: FrameRecord) -> Html:
    model = parts.name(frame.model).html if frame.model else Html()
    where = tag("div", join(model, parts.dots(*_where(frame)).html, by=" "), cls="error-where")
    # The newline is for readers without the stylesheet; with it, the line is a block, which ignores the newline.
    lines = (
        tag("span", tag("i", number), f"  {source}", Html("\n"), cls="error-fails" if fails else "")
        for number, source, fails in _numbered(frame)
    )
    return join(where, tag("pre", *lines, cls="error-code") if frame.source else "")


_MARKS = {
    "done": ("✓", "message-done"), "info": ("·", ""), "warning": ("!", "message-warning"),
    "error": ("✗", "message-wrong"),
}  # fmt: skip


def message_document(record: MessageRecord) -> Document:
    """Show a message after its mark, and its hint on a separate line."""
    mark, cls = _MARKS.get(record.kind, _MARKS["info"])
    sign = tag("span", mark, cls=f"message-mark {cls}".strip())
    words = tag("span", parts.coded(record.text).html, cls="message-words")
    time = parts.time(record.seconds)
    line = f"{record.text}  {time.text}" if time.text else record.text
    top = Piece(line, join(sign, words, time.html, by=" "))
    blocks: list[Block] = [Words(top, indent=f"{mark} ", hang="  ")]
    if record.hint:
        blocks.append(Words(parts.quiet(parts.coded(record.hint)), "message-more", indent="  "))
    return Document(blocks, styles="message")


_MOST_OF_LOG = 4000  # characters of a message in the log; the rest is cut
_COLOURS = {"verbose": "2", "info": "34", "warning": "33;1", "error": "31;1"}  # ANSI codes of the levels
# Dim text uses "faint" (2), because bright black is unreadable on a dark page.
_BOLD, _DIM = "1", "2"


def log_line_text(line: LogLine, *, colour: bool = False, cell: str = "") -> str:
    """Return a log message as text; control characters in it are escaped.

    `colour` adds ANSI colors. `cell` names the cell of the message, if it is displayed elsewhere.
    """
    message = line.message
    if len(message) > _MOST_OF_LOG:
        message = f"{message[:_MOST_OF_LOG]} … {len(message) - _MOST_OF_LOG:,} more characters"
    first, *rest = visible(message.rstrip("\n"), lines=True).expandtabs(4).split("\n")
    level = _painted(f"[{visible(line.level)}]", _COLOURS.get(line.level, ""), colour)
    where = "in the background" if line.background else f"by {cell}" if cell else ""
    origin = _painted(f" ({visible(where)})", _DIM, colour) if where else ""
    start = f"{level} {_painted(visible(line.model), _BOLD, colour)}{origin}: "
    return "".join(f"{text}\n" for text in (start + first, *(f"    {text}" for text in rest)))


def left_out_text(logger: str, *, colour: bool = False) -> str:
    """Return the line that replaces further messages: Python's logger `logger` still receives them."""
    return (
        _painted(f"… further messages of models are not shown here; Python's logger {logger!r} has all", _DIM, colour)
        + "\n"
    )


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text
