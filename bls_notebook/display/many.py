"""Many responses in one compact table: of many requests (-n), or of one request that streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bls_notebook.display import parts, text
from bls_notebook.display.columns import Column, columns, note, shown
from bls_notebook.display.errors import error_block, error_lines
from bls_notebook.display.html import Html, join, row, table, tag
from bls_notebook.display.units import count, duration, median
from bls_notebook.observe.records.repository import ResponseRecord

_LEFT = "no final flag: the stream was left before its end, so there may be more responses"
_NONE = "no responses"
Records = Sequence[ResponseRecord]


class _Kind(NamedTuple):
    """What the responses are of: many requests, or one that streams, and whether it still does."""

    stream: bool = False
    running: bool = False

    @property
    def clock(self) -> str:
        return "after" if self.stream else "time"

    def open(self, records: Records) -> bool:
        """Whether it is a stream whose end has not been seen."""
        return self.stream and not records[-1].final


def many_text(records: Records, *, width: int = 100) -> str:
    """Describe the responses of many requests as plain text.

    Parameters
    ----------
    records : sequence of ResponseRecord
        One for each request, in order.
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        A summary, a row for each response (long runs are thinned out, errors first), the first error whole.
    """
    return _text(records, _Kind(), width)


def stream_text(records: Records, *, width: int = 100, running: bool = False) -> str:
    """Describe the responses of one request that streams as plain text.

    Parameters
    ----------
    records : sequence of ResponseRecord
        The responses in order; ``seconds`` counts from the request.
    width : int
        Terminal cells in a line.
    running : bool
        Whether more may come: then it is no wonder that there was no final flag yet.

    Returns
    -------
    str
        A summary, a row for each response, the first error whole.
    """
    return _text(records, _Kind(stream=True, running=running), width)


def many_html(records: Records) -> str:
    """Describe the responses of many requests as HTML.

    Parameters
    ----------
    records : sequence of ResponseRecord
        One for each request, in order.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    return _html(records, _Kind())


def stream_html(records: Records, *, running: bool = False) -> str:
    """Describe the responses of one request that streams as HTML.

    Parameters
    ----------
    records : sequence of ResponseRecord
        The responses in order; ``seconds`` counts from the request.
    running : bool
        Whether more may come.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    return _html(records, _Kind(stream=True, running=running))


def _text(records: Records, kind: _Kind, width: int) -> str:
    if not records:
        return _NONE
    found = columns(records)
    heads = ["", "", kind.clock, *(column.head for column in found), ""]
    rows = [
        _row_text(item, found, kind.stream) if isinstance(item, ResponseRecord) else ["", "", "", item]
        for item in _rows(records)
    ]
    most = max(16, (width - 24) // max(len(found), 1))
    lines = [f"{_mark(records, kind)} {text.facts(*_summary(records, kind))}"]
    lines += text.table(rows, heads=heads, right="r t", width=width, most=most, last="wrap")
    for warning in _warnings(records, kind):
        lines += text.note("warning", warning, width)
    error = next((r.error for r in records if r.error), None)
    if error:
        lines += ["", *(f"  {line}".rstrip() for line in error_lines(error, width - 2))]
    return "\n".join(lines)


def _row_text(record: ResponseRecord, found: list[Column], stream: bool) -> list[str]:
    took = "" if record.seconds is None else duration(record.seconds)
    start = [str(record.index), "✗" if record.error else "!" if record.warnings else "", took]
    if record.error:
        return [*start, note(record, stream)]
    return [*start, *(column.cell(record) for column in found), note(record, stream)]


def _html(records: Records, kind: _Kind) -> str:
    if not records:
        return parts.output(parts.line(parts.quiet(_NONE)))
    model, *facts = _summary(records, kind)
    top = parts.line(parts.name(model), parts.quiet(parts.dots(*facts)))
    found = columns(records)
    clocked = any(r.seconds is not None for r in records)
    warned = any(r.warnings for r in records)
    heads: list[tuple[str, str]] = [("#", "num"), *([(kind.clock, "num")] if clocked else [])]
    heads += [*((column.head_html, "") for column in found), ("", "")]
    rows = [
        _row_html(item, found, kind.stream, clocked, warned)
        if isinstance(item, ResponseRecord)
        else row([tag("td", item, colspan=len(heads))], "gap")
        for item in _rows(records)
    ]
    body = table(f"Responses of {model}", heads, rows)
    error = next((r.error for r in records if r.error), None)
    last = error_block(error) if error else Html()
    return parts.output(
        top,
        body,
        parts.warnings(_warnings(records, kind)),
        last,
        styles="error" if error else "",
    )


def _row_html(record: ResponseRecord, found: list[Column], stream: bool, clocked: bool, warned: bool) -> Html:
    cells = [tag("td", join(str(record.index), _warned(record) if warned else "", by=" "), cls="num")]
    if clocked:
        cells.append(tag("td", parts.time(record.seconds), cls="num"))
    if record.error:
        wide = len(found) + 1
        cells.append(
            tag("td", f"✗ {note(record, stream)}", cls="wide", colspan=wide, title=record.error.message)
        )
        return row(cells, "bad")
    cells += (tag("td", column.cell_html(record)) for column in found)
    return row([*cells, tag("td", parts.quiet(note(record, stream)))])


def _warned(record: ResponseRecord) -> Html:
    return tag("span", "!" if record.warnings else "", cls="warn", title="; ".join(record.warnings) or None)


def _rows(records: Records) -> Iterator[ResponseRecord | str]:
    """Give the responses to show, and between them how many are left out."""
    before = -1
    for i in [*shown(records), len(records)]:
        if i - before > 1:
            yield f"… {i - before - 1:,} more"
        if i < len(records):
            yield records[i]
        before = i


def _summary(records: Records, kind: _Kind) -> list[str]:
    wrong = sum(r.error is not None for r in records)
    errors = [count(wrong, "error")] if wrong else []
    version = records[0].version
    first = [records[0].model, f"version {version}" if version > 0 else ""]
    times = [r.seconds for r in records if r.seconds is not None]
    if kind.stream:
        sent = sum(bool(r.tensors) for r in records)
        spread = [f"first after {duration(times[0])}", f"last after {duration(times[-1])}"] if times else []
        so_far = ["running"] if kind.running and kind.open(records) else []
        return [*first, count(sent, "response"), *errors, *spread, *so_far]
    spread = [f"median {duration(median(times))}", _range(times)] if times else []
    return [*first, count(len(records), "request"), *errors, *spread]


def _range(times: list[float]) -> str:
    return f"{duration(min(times))} to {duration(max(times))}"


def _mark(records: Records, kind: _Kind) -> str:
    if any(r.error for r in records):
        return "✗"
    return "✓" if not kind.open(records) else "·" if kind.running else "!"


def _warnings(records: Records, kind: _Kind) -> tuple[str, ...]:
    totals: dict[str, int] = {}
    for record in records:
        for warning in record.warnings:
            totals[warning] = totals.get(warning, 0) + 1
    left = [_LEFT] if kind.open(records) and not kind.running else []
    return (*left, *(f"{w} ({n:,} times)" if n > 1 else w for w, n in totals.items()))
