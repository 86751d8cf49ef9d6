"""How long many requests took: percentiles side by side, and a histogram."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bls_notebook.display.document import Block, Both, Tiles
from bls_notebook.display.pictures.histogram import TAIL, histogram_html, histogram_line
from bls_notebook.display.units import duration
from bls_notebook.records.latency import latency

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
