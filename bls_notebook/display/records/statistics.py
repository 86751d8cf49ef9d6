"""Displays of statistics and of latencies: a row for each model version, percentiles, and a histogram of
many times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, log

from bls_notebook.display import as_text as text
from bls_notebook.display import parts
from bls_notebook.display.document import (
    Block,
    Both,
    Box,
    Column,
    Document,
    Forms,
    Piece,
    Row,
    Said,
    Table,
    Tiles,
    Words,
)
from bls_notebook.display.html import Html, tag
from bls_notebook.display.palette import LINE
from bls_notebook.display.pen import Look, Pen, picture_html
from bls_notebook.display.units import count, duration
from bls_notebook.records.measurements import Latency, latency
from bls_notebook.records.statistics import StatisticsRecord, Times, why_not_batched

_BLOCKS = " ▁▂▃▄▅▆▇█"
_TOP, _HEIGHT = 18.0, 64.0
_TICKS = 6
TAIL = 100  # requests of which one in a hundred is more than the slowest by another name


def histogram_line(latency: Latency) -> str:
    """Return a histogram as one line: quickest, blocks, slowest."""
    most = max(latency.counts)
    blocks = "".join(_BLOCKS[ceil(8 * n / most)] for n in latency.counts)
    return f"{duration(latency.least)} {blocks} {duration(latency.most)}"


def histogram_html(latency: Latency, alt: str) -> Html:
    """Return a histogram as a picture with its percentiles."""
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
        if x - after > 0.09:  # or it would stand on the one before
            align = "start" if x < 0.06 else "end" if x > 0.94 else "middle"
            pen.words(name, x, 6, align=align, size=10.5, colour="#333333")
            after = x
    for x, words in pen.ticks:
        pen.words(words, x, bottom + 9, align="middle", size=10, colour="#555555")
    picture = picture_html(pen.document(bottom + 18, bottom), alt)
    return tag("div", picture, cls="latency-histogram")


def _at(latency: Latency, time: float) -> float:
    """Where a time is on an axis from 0 to 1."""
    low, high = latency.edges[0], latency.edges[-1]
    if high <= low:
        return 0.5
    if latency.log:
        return log(time / low) / log(high / low)
    return (time - low) / (high - low)


def _ticks(latency: Latency) -> list[float]:
    """The round times between the quickest and the slowest."""
    low, high = latency.edges[0], latency.edges[-1]
    if high <= low:
        return [low]
    if latency.log:
        steps = (1, 2, 5) if high / low < 100 else (1,)
        found = [s * 10.0**e for e in range(-10, 8) for s in steps]
    else:
        step = next(s * 10.0**e for e in range(-12, 8) for s in (1, 2, 5) if (high - low) / (s * 10.0**e) <= _TICKS)
        first = ceil(low / step)
        found = [(first + i) * step for i in range(_TICKS + 1)]
    return [time for time in found if low <= time <= high]


LATENCY_STYLES = "latency figure session"
LEAST = 21  # requests that a histogram says something of


def latency_blocks(seconds: Iterable[float], what: str = "") -> Iterator[Block]:
    """Give the figures of times, and their histogram; nothing of a few."""
    found = latency(seconds)
    if found is None or found.count < LEAST:
        return
    before = f"{what}: " if what else ""  # once is enough
    tail = [("p99", duration(found.p99), "99 of 100 took no longer")] if found.count >= TAIL else []
    yield Tiles([
        (f"{before}median", duration(found.median), "half of them took no longer"),
        ("p90", duration(found.p90), "9 of 10 took no longer"),
        *tail,
        ("quickest", duration(found.least), ""),
        ("slowest", duration(found.most), ""),
    ])  # fmt: skip
    yield Both(
        lambda _: [f"  {histogram_line(found)}"],
        histogram_html(found, f"Histogram of {found.count:,} times: {histogram_line(found)}"),
    )


_EMPTY = "no models are loaded: load one with %tritonrepo load NAME, or define one with %%tritonmodel NAME"
_NOTE = "times are means of one request; they begin anew when a model is loaded"
# Phases of a request: what the heading says, its letter in the text's bar, what it is.
_PHASES = (
    ("queue", "·", "waiting for an instance"),
    ("input", "-", "inputs handed over to the model"),
    ("infer", "=", "execute itself"),
    ("output", "+", "outputs handed over to the requester"),
)
# Triton's reasons, as one may say them.
_TOLD = {"REJECTED": "timed out", "CANCELED": "cancelled", "BACKEND": "in the model", "OTHER": "elsewhere"}
_CELLS = 12  # of the text's bar
Records = Sequence[StatisticsRecord]


def statistics_document(records: Records) -> Document:
    """Show what models have done: their counts, the mean times of a request, batches, cache and failures."""
    if not records:
        return Document([Words(parts.quiet(_EMPTY))])
    key = ", ".join(f"{sign} {name}: {what}" for name, sign, what in _PHASES)
    notes: list[Block] = []
    if any(record.success.count for record in records):
        notes.append(Words(Piece(f"mean times of a request: {key}", parts.quiet(_NOTE).html), gap=True))
    for record in records:
        name = f"{text.head(record.name)} version {text.head(record.version)}"
        for what in _more(record):
            shown = parts.quiet(parts.name(record.name), f" version {record.version}: ", parts.coded(what)).html
            notes.append(Words(Piece(what, shown), indent=f"{name}: ", hang="  "))
    table = _table(records)
    return Document([Forms([table], [Box([table], "stats")]), *notes], styles="stats")


def _table(records: Records) -> Table:
    columns = [
        Column("model"),
        *(Column(head, "r") for head in ("version", "requests", "inferences", "executions")),
        Column("batch", "r", in_html=any(record.batching for record in records)),
        Column("failed", "r"),
        Column("time", "t"),
        Column(),
        *(Column(_phase(name, what), "t") for name, _, what in _PHASES),
    ]
    return Table("What the models have done", columns, [Row(list(_cells(r))) for r in records], indent="", most=28)


def _cells(record: StatisticsRecord) -> Iterator[Said]:
    yield from (parts.name(record.name), record.version)
    yield from (f"{record.success.count:,}", f"{record.inferences:,}", f"{record.executions:,}")
    yield f"{record.batch:.3g}" if record.executions and record.batching else ""
    failed = f"{record.fail.count:,}"
    yield Piece(failed, tag("span", failed, cls="stats-wrong" if record.fail.count else ""), title=_reasons(record))
    if record.success.count:
        yield parts.time(record.success.seconds)
        yield _bar(record)
        yield from (parts.time(times.seconds) for times in _times(record))
    else:
        none = "no request has succeeded" if record.fail.count else "no requests yet"
        yield Piece(none, parts.quiet(none).html, wide=2 + len(_PHASES))


def _times(record: StatisticsRecord) -> tuple[Times, ...]:
    """The phases, each as the mean of all requests: what the cache answered was not computed."""
    of = record.success.count
    phases = (record.queue, record.compute_input, record.compute_infer, record.compute_output)
    return tuple(Times(of, times.ns) for times in phases)


def _bar(record: StatisticsRecord) -> Piece:
    """The bar: as long for every model, so that it says which phase it is, and the figures how long."""
    spent = [times.ns for times in _times(record)]
    shares = [ns / sum(spent) if sum(spent) else 0.0 for ns in spent]
    pieces, cells, done = [], "", 0.0
    for (name, sign, _), share, times in zip(_PHASES, shares, _times(record), strict=True):
        done += share
        cells += sign * (round(done * _CELLS) - len(cells))
        if share >= 0.001:
            told = f"{name}: {duration(times.seconds)}, {share:.0%} of the time"
            pieces.append(tag("span", cls=f"stats-{name}", style=f"width:{share:.1%}", title=told))
    return Piece(f"|{cells:{_CELLS}}|", tag("span", *pieces, cls="stats-stack"))


def _phase(name: str, what: str) -> Piece:
    """A heading that is its own key: with the colour of the phase."""
    return Piece(name, tag("span", tag("span", cls=f"stats-key stats-{name}"), name, title=what))


def _reasons(record: StatisticsRecord) -> str:
    return ", ".join(f"{number:,} {_TOLD.get(reason, reason.lower())}" for reason, number in record.failures)


def _cache(record: StatisticsRecord) -> str:
    hit, miss = record.cache_hit, record.cache_miss
    if not record.cached or not hit.count + miss.count:
        return ""
    took = [f"a hit takes {duration(hit.seconds)}"] * (hit.count > 0)
    took += [f"a miss costs {duration(miss.seconds)} more"] * (miss.count > 0)
    misses = f"{miss.count:,} miss" + "es" * (miss.count != 1)
    return "; ".join([f"cache: {count(hit.count, 'hit')}, {misses}", *took])


def _more(record: StatisticsRecord) -> Iterator[str]:
    """What the columns of the text have no room for, a line each."""
    if record.batching and record.batches:
        sizes = ", ".join(f"{batch.executions:,} of {batch.rows}" for batch in record.batches)
        yield f"batches: {sizes}"
    if _cache(record):
        yield _cache(record)
    if _reasons(record):
        yield f"failed: {_reasons(record)}"
    if why := why_not_batched(record):
        yield f"not batched: {why.sentence}"
