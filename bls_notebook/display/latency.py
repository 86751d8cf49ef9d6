"""Percentiles and a histogram of response times, as text and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil, log

from bls_notebook.display.document import Block, Both, Tiles
from bls_notebook.display.html import Html, tag
from bls_notebook.display.palette import LINE
from bls_notebook.display.svg import Look, Pen, picture_html
from bls_notebook.records.measurements import Latency, latency
from bls_notebook.records.units import duration

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
