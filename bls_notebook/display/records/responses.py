"""Displays of one response, of many responses (-n or a stream) with a histogram of latencies, and of many streams.

A long list shows the first and last rows, and always the first errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log
from typing import TypeVar

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.as_text import clip, wrap
from bls_notebook.display.document import Block, Both, Tiles
from bls_notebook.display.html import Html, join, prose, tag, text
from bls_notebook.display.parts import figures_piece, media_html
from bls_notebook.display.svg import LINE, Look, Pen, picture_html
from bls_notebook.records.measurements import Latency, grouped, latency, quartiles
from bls_notebook.records.responses import ResponseRecord, StreamRecord, TensorRecord
from bls_notebook.records.units import count, duration, shape
from bls_notebook.records.visible_text import first_line, spoken, visible

from .errors import error_box

_COLUMNS = doc.columns("name | datatype | shape | device | size:r")
_FIGURES = doc.Column("range and mean", in_html=False)
_VALUES = doc.Column("values")
_SIDE = 56  # pixels of a picture
warning_folds: list[Callable[[str], bool]] = []
"""Functions that say whether the warnings of a model's responses are folded: a reader should find their cause."""


def response_document(record: ResponseRecord) -> doc.Document:
    """Show one response: its model and time, its tensors or error, parameters and warnings."""
    seen = any(tensor.pictures or tensor.figures for tensor in record.tensors)
    return doc.Document(
        list(_response_blocks(record)), styles=("error" if record.error is not None else "") + (" seen" if seen else "")
    )


def response_head(record: ResponseRecord) -> Iterator[doc.Block]:
    """Yield the blocks above a response's tensors: its model and time, stubs, and its error."""
    facts = (
        f"version {record.version}" if record.version > 0 else "",
        f"request {record.request_id}" if record.request_id else "",
        parts.time(record.seconds),
    )
    top = parts.quiet(parts.dots(*facts, by="  "))
    yield doc.Line([parts.name(record.model), top], mark="✗" if record.error else "✓")
    yield parts.stubs_warning(record.stubs)
    if record.error:
        yield error_box(record.error)


def _response_blocks(record: ResponseRecord) -> Iterator[doc.Block]:
    yield from response_head(record)
    if record.tensors:
        yield _tensors_table(f"Response of {record.model}", record.tensors)
    elif not record.error:
        only = "; only the final flag" if record.final and not record.warnings else ""  # else outputs are missing
        yield doc.Words(parts.quiet(f"no tensors{only}"), indent="  ")
    if record.parameters:
        words = ", ".join(f"{key}={value!r}" for key, value in record.parameters)
        shown = tag("div", join(parts.quiet("parameters").html, tag("code", words), by=" "), cls="head")
        yield doc.Note("parameters", words, shown)
    yield _warnings(record.model, record.warnings)


def _warnings(model: str, words: Sequence[str]) -> doc.Block:
    block = doc.Warnings(words)
    is_folded = words and any(folds(model) for folds in warning_folds)
    return doc.Forms([], [doc.Fold(count(len(words), "warning"), [block])]) if is_folded else block


def _tensors_table(caption: str, tensors: tuple[TensorRecord, ...]) -> doc.Table:
    seen = [_FIGURES] if any(tensor.figures for tensor in tensors) else []
    rows = [
        doc.Row([
            parts.name(tensor.name),
            parts.datatype(tensor.datatype),
            parts.code(shape(tensor.shape)),
            parts.device(tensor.device),
            parts.memory(tensor.bytes),
            *(figures_piece(tensor.figures) for _ in seen),
            _values(tensor),
        ])
        for tensor in tensors
    ]  # fmt: skip
    return doc.Table(caption, [*_COLUMNS, *seen, _VALUES], rows)


def _values(tensor: TensorRecord) -> doc.Piece:
    """Return the first elements; in HTML with pictures and statistics of the whole tensor."""
    values = parts.values(tensor.preview)
    pictures = [media_html(media, _SIDE, tensor.name) for media in tensor.pictures]
    caption = parts.quiet(tensor.pictures[0].said).html if any(pictures) else ""
    figures = figures_piece(tensor.figures).html
    above = tag("div", *pictures, caption, cls="seen-row") if any(pictures) else ""
    below = tag("div", figures, cls="seen-row") if figures else ""
    return doc.Piece(values.text, join(above, values.html, below)) if above or below else values


_NOT_FINAL = "no final flag: reading the stream ended early, so there may be more responses"
_MOST_COLUMNS = 4  # tensor names with separate columns; more share one
_WHOLE, _HEAD, _TAIL, _BAD = 20, 8, 3, 5  # rows: all, or the first, the last, and the first errors
_MOST_TEXT = 20_000  # characters of a text
T = TypeVar("T")
ResponseRecords = Sequence[ResponseRecord]
Texts = Sequence[tuple[str, str]]


def responses_document(
    records: ResponseRecords, *, stream: bool = False, running: bool = False, texts: Texts = ()
) -> doc.Document:
    """Show many responses: a summary, one row each, and the first error in full.

    If they are of one streaming request (`stream`), the seconds count from the request, and `texts` are the joined
    texts of its outputs by name. While more may arrive (`running`), a missing final flag causes no warning.
    """
    if not records:
        return doc.Document([doc.Words(parts.quiet("no responses"))])
    is_open = stream and not records[-1].final
    error = next((r.error for r in records if r.error), None)
    mark = "✗" if error else "✓" if not is_open else "·" if running else "!"
    model, *facts = _summary(records, stream, running and is_open)
    blocks: list[doc.Block] = [doc.Line([parts.name(model), parts.quiet(parts.dots(*facts))], " · ", mark)]
    figures: list[doc.Block] = [] if stream else list(latency_blocks(_seconds(records)))
    styles = LATENCY_STYLES.split() if figures else []
    if texts:
        figures, styles = [_text(*pair) for pair in texts], ["stream"]
    table = _responses_table(records, stream)
    blocks += [*figures, doc.Fold(count(len(records), "response"), [table], error is not None)] if figures else [table]
    blocks.append(parts.stubs_warning(name for record in records for name in record.stubs))
    warnings = counted_warnings(record.warnings for record in records)
    blocks.append(_warnings(records[0].model, [*([_NOT_FINAL] if is_open and not running else []), *warnings]))
    if error:
        blocks.append(error_box(error, gap=True))
    return doc.Document(blocks, styles=" ".join([*styles, *(["error"] if error else [])]))


def _seconds(records: ResponseRecords) -> list[float]:
    """Return the times of the responses without errors: a refused request often fails at once."""
    return [record.seconds for record in records if record.seconds is not None and not record.error]


def _text(name: str, joined: str) -> doc.Block:
    rest = f" … {len(joined) - _MOST_TEXT:,} more characters" if len(joined) > _MOST_TEXT else ""
    shown = f"{joined[:_MOST_TEXT]}{rest}"
    label = tag("div", parts.name(name).html, Html(" "), parts.quiet("as text").html, cls="stream-name")
    html = join(label, tag("div", prose(shown), cls="stream-text"))
    return doc.Both(lambda width: [f"  {visible(name)}:", *wrap(shown, width, "    ")], html)


def _responses_table(records: ResponseRecords, stream: bool) -> doc.Table:
    tensors = _tensor_columns(records)
    columns = [
        doc.Column(doc.Piece("", Html("#")), "r"),
        doc.Column(in_html=False),
        doc.Column("after" if stream else "time", "t", in_html=any(r.seconds is not None for r in records)),
        *(doc.Column(tensor.head) for tensor in tensors),
        doc.Column(),
    ]
    warned = any(r.warnings for r in records)
    rows: list[doc.Row] = []
    for item in with_gaps(records, [i for i, record in enumerate(records) if record.error]):
        if isinstance(item, ResponseRecord):
            rows.append(_response_row(item, tensors, stream, warned))
        else:
            rows += left_out(item, 3, len(columns))
    caption, shared = f"Responses of {records[0].model}", max(len(tensors), 1)
    return doc.Table(caption, columns, rows, headed=False, last="wrap", shared=shared)


def _response_row(record: ResponseRecord, columns: Sequence[_Tensors], stream: bool, warned: bool) -> doc.Row:
    note = _note(record, stream)
    sign = "!" if record.warnings else ""
    title = None if any(folds(record.model) for folds in warning_folds) else "; ".join(record.warnings) or None
    number = join(str(record.index), tag("span", sign, cls="warn", title=title) if warned else "", by=" ")
    start: list[doc.Said] = [
        doc.Piece(str(record.index), number),
        "✗" if record.error else sign,
        parts.time(record.seconds),
    ]
    if record.error:
        bad = doc.Piece(note, Html(f"✗ {text(note)}"), "wide", len(columns) + 1, spoken(record.error.message))
        return doc.Row([*start, bad], "bad")
    return doc.Row([*start, *(column.cell(record) for column in columns), parts.quiet(note)])


def with_gaps(records: Sequence[T], bad: Sequence[int]) -> Iterator[T | str]:
    """Yield the records with a row (all of a short list, else its ends and first errors), and a text for each gap."""
    last = len(records)
    shown = {*range(_HEAD), *range(last - _TAIL, last), *bad[:_BAD]} if last > _WHOLE else range(last)
    before = -1
    for i in [*sorted(shown), last]:
        if i - before > 1:
            yield f"… {i - before - 1:,} more"
        if i < last:
            yield records[i]
        before = i


def left_out(words: str, before: int, columns: int) -> list[doc.Row]:
    """Return the rows that say how many are left out: in text after `before` empty cells."""
    whole = doc.Piece("", Html(words), wide=columns)
    return [doc.Row([*[""] * before, words], only="text"), doc.Row([whole], "gap", only="html")]


def _note(record: ResponseRecord, stream: bool) -> str:
    """Return the last cell of a response's row: the first line of its error, or ``final``."""
    if record.error:
        return first_line(spoken(record.error.message), 1000) or "no message"
    return "final" if stream and record.final else ""


def _summary(records: ResponseRecords, stream: bool, running: bool) -> list[str]:
    wrong = sum(r.error is not None for r in records)
    version = records[0].version
    first = [records[0].model, f"version {version}" if version > 0 else ""]
    errors = [count(wrong, "error")] if wrong else []
    times = [r.seconds for r in records if r.seconds is not None]
    if stream:
        sent = sum(bool(r.tensors) for r in records)
        spread = [f"first after {duration(times[0])}", f"last after {duration(times[-1])}"] if times else []
        return [*first, count(sent, "response"), *errors, *spread, *(["running"] if running else [])]
    if len(_seconds(records)) >= LEAST:  # the histogram above the table shows the times
        return [*first, count(len(records), "request"), *errors]
    both = f"{duration(min(times))} to {duration(max(times))}" if times else ""
    spread = [f"median {duration(quartiles(times).median)}", both] if times else []
    return [*first, count(len(records), "request"), *errors, *spread]


def counted_warnings(warnings: Iterable[Iterable[str]]) -> list[str]:
    """Return the warnings of many responses, each once, with its number."""
    totals = Counter(warning for group in warnings for warning in group)
    return [f"{words} ({n:,} times)" if n > 1 else words for words, n in totals.items()]


@dataclass(frozen=True)
class _Tensors:
    """A column of tensors with one name; the heading has the facts that all of them share."""

    name: str
    datatype: str = ""
    shape: str = ""
    device: str = ""

    @property
    def head(self) -> doc.Piece:
        device = "" if self.device == "cpu" else self.device
        words = " ".join(part for part in (self.name, self.datatype, self.shape, device) if part)
        chip = parts.datatype(self.datatype).html if self.datatype else ""
        dims = parts.quiet(self.shape).html if self.shape else ""
        place = parts.device(device).html if device else ""
        return doc.Piece(words, join(parts.name(self.name).html, chip, dims, place, by=" "))

    def cell(self, record: ResponseRecord) -> doc.Piece:
        tensors = [t for t in record.tensors if self.name in ("", t.name)]
        pieces = [
            join(
                *(parts.quiet(fact).html for fact in self._rest(t)),
                parts.values(t.preview, 2 * parts.LONGEST // 3).html,
                by=" ",
            )
            for t in tensors
        ]
        words = "; ".join(" ".join([*self._rest(t), t.preview]) for t in tensors)
        return doc.Piece(words, join(*(tag("div", piece) for piece in pieces)) if len(pieces) > 1 else join(*pieces))

    def _rest(self, tensor: TensorRecord) -> list[str]:
        """Return the facts of a tensor that the heading lacks."""
        facts = [] if self.name else [tensor.name]
        facts += [] if self.datatype else [tensor.datatype]
        facts += [] if self.shape else [shape(tensor.shape)]
        return facts if self.device or tensor.device == "cpu" else [*facts, tensor.device]


def _tensor_columns(records: ResponseRecords) -> list[_Tensors]:
    """Return a column for each tensor name, or a single one if there are many names."""
    tensors = grouped((tensor.name, tensor) for record in records for tensor in record.tensors)
    if len(tensors) > _MOST_COLUMNS:
        return [_Tensors("")]
    return [
        _Tensors(
            name,
            _shared({t.datatype for t in group}),
            _shared({shape(t.shape) for t in group}),
            _shared({t.device for t in group}),
        )
        for name, group in tensors.items()
    ]


def _shared(values: set[str]) -> str:
    return values.pop() if len(values) == 1 else ""


def streams_document(records: Sequence[StreamRecord]) -> doc.Document:
    """Show many streams: a summary, the times of first and last responses, and one row each."""
    if not records:
        return doc.Document([doc.Words(parts.quiet("no streams"))])
    errors = [record.error for record in records if record.error]
    firsts = [record.first for record in records if record.first is not None]
    lasts = [record.last for record in records if record.last is not None]
    facts = [
        f"version {records[0].version}" if records[0].version > 0 else "",
        count(len(records), "stream"),
        count(sum(record.responses for record in records), "response"),
        count(len(errors), "error") if errors else "",
        f"first after {duration(quartiles(firsts).median)} (median)" if firsts else "",
        f"last after {duration(quartiles(lasts).median)} (median)" if lasts else "",
    ]
    head = [parts.name(records[0].model), parts.quiet(parts.dots(*facts))]
    blocks: list[doc.Block] = [doc.Line(head, " · ", "✗" if errors else "✓")]
    figures = [*latency_blocks(firsts, "first response"), *latency_blocks(lasts, "last response")]
    table = _streams_table(records)
    blocks += [*figures, doc.Fold(count(len(records), "stream"), [table], bool(errors))] if figures else [table]
    blocks.append(parts.stubs_warning(name for record in records for name in record.stubs))
    blocks.append(_warnings(records[0].model, counted_warnings(record.warnings for record in records)))
    if errors:
        blocks.append(error_box(errors[0], gap=True))
    return doc.Document(blocks, styles=f"{LATENCY_STYLES} error" if errors else LATENCY_STYLES)


def _streams_table(records: Sequence[StreamRecord]) -> doc.Table:
    columns = [
        doc.Column("#", "r"), doc.Column(in_html=False), doc.Column("first", "t"), doc.Column("last", "t"),
        doc.Column("responses", "r"), doc.Column(),
    ]  # fmt: skip
    rows: list[doc.Row] = []
    for item in with_gaps(records, [i for i, record in enumerate(records) if record.error]):
        rows += left_out(item, 5, len(columns)) if isinstance(item, str) else [_stream_row(item)]
    return doc.Table(f"Streams of {records[0].model}", columns, rows, headed=False, last="wrap")


def _stream_row(record: StreamRecord) -> doc.Row:
    start: list[doc.Said] = [
        str(record.index),
        "✗" if record.error else "!" if record.warnings else "",
        parts.time(record.first),
        parts.time(record.last),
        f"{record.responses:,}",
    ]
    if record.error:
        message = first_line(spoken(record.error.message), 1000) or "no message"
        return doc.Row([*start, doc.Piece(message, Html(f"✗ {text(message)}"), "wide")], "bad")
    clipped = clip(record.text, 2 * parts.LONGEST // 3)
    return doc.Row([*start, parts.values(clipped) if clipped else parts.NOTHING])


_BLOCKS = " ▁▂▃▄▅▆▇█"
_TOP, _HEIGHT = 18.0, 64.0
_TICKS = 6
TAIL = 100  # requests that p99 needs; with fewer it is almost the slowest


def histogram_line(latency: Latency) -> str:
    """Return a histogram as one line: fastest, blocks, slowest."""
    most = max(latency.counts)
    blocks = "".join(_BLOCKS[ceil(8 * n / most)] for n in latency.counts)
    return f"{duration(latency.least)} {blocks} {duration(latency.most)}"


def histogram_html(latency: Latency, alt: str) -> Html:
    pen = Pen(1.0, 8, 16)
    pen.ticks = [(_at(latency, time), duration(time)) for time in _ticks(latency)]
    bottom, most = _TOP + _HEIGHT, max(latency.counts)
    places = [_at(latency, edge) for edge in latency.edges]
    bars = [
        (places[i], bottom - max(_HEIGHT * n / most, 1.5), places[i + 1] - places[i], max(_HEIGHT * n / most, 1.5))
        for i, n in enumerate(latency.counts)
        if n
    ]
    pen.boxes(bars, Look(LINE.light, 0.85))
    after = -1.0
    tail = [("p99", latency.p99)] if latency.count >= TAIL else []
    for name, time in (("median", latency.median), ("p90", latency.p90), *tail):
        x = _at(latency, time)
        pen.stems([(x, _TOP - 6, bottom)], Look("#333333"), 1.4)
        if x - after > 0.09:  # otherwise it would overlap the label before
            align = "start" if x < 0.06 else "end" if x > 0.94 else "middle"
            pen.words(name, x, 6, align=align, size=10.5, colour="#333333")
            after = x
    for x, words in pen.ticks:
        pen.words(words, x, bottom + 9, align="middle", size=10, colour="#555555")
    return tag("div", picture_html(pen.document(bottom + 18, bottom), alt), cls="latency-histogram")


def _at(latency: Latency, time: float) -> float:
    """Return the position of a time on an axis from 0 to 1."""
    low, high = latency.edges[0], latency.edges[-1]
    if high <= low:
        return 0.5
    if latency.log:
        return log(time / low) / log(high / low)
    return (time - low) / (high - low)


def _ticks(latency: Latency) -> list[float]:
    """Return round times between the fastest and the slowest."""
    low, high = latency.edges[0], latency.edges[-1]
    if high <= low:
        return [low]
    if latency.log:
        steps = (1, 2, 5) if high / low < 100 else (1,)
        ticks = [s * 10.0**e for e in range(-10, 8) for s in steps]
    else:
        step = next(s * 10.0**e for e in range(-12, 300) for s in (1, 2, 5) if (high - low) / (s * 10.0**e) <= _TICKS)
        first = ceil(low / step)
        ticks = [(first + i) * step for i in range(_TICKS + 1)]
    return [time for time in ticks if low <= time <= high]


LATENCY_STYLES = "latency figure session"
LEAST = 21  # requests that a histogram needs


def latency_blocks(seconds: Iterable[float], what: str = "") -> Iterator[Block]:
    """Yield the percentiles and the histogram of durations (s), or nothing if there are only a few."""
    record = latency(seconds)
    if record is None or record.count < LEAST:
        return
    label = f"{what}: " if what else ""
    tail = [("p99", duration(record.p99), "99 of 100 took no longer")] if record.count >= TAIL else []
    yield Tiles([
        (f"{label}median", duration(record.median), "half of them took no longer"),
        ("p90", duration(record.p90), "9 of 10 took no longer"),
        *tail,
        ("fastest", duration(record.least), ""),
        ("slowest", duration(record.most), ""),
    ])  # fmt: skip
    yield Both(
        lambda _: [f"  {histogram_line(record)}"],
        histogram_html(record, f"Histogram of {record.count:,} times: {histogram_line(record)}"),
    )
