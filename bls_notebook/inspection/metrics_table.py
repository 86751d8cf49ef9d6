"""Display of metric families: first those of models; histograms with bars for their buckets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bls_notebook.display import Html, clip, join, parts, tag
from bls_notebook.display import document as doc
from bls_notebook.records import FamilyRecord, MetricRecord, count

_OWN = "Triton's own metrics"
_MOST = 50  # metrics that are shown of a family
_CELLS = 20  # width of a bar in text


def metrics_document(families: Sequence[FamilyRecord]) -> doc.Document:
    """Show families in the given order; Triton's own are folded if there are others."""
    if not families:
        return doc.Document([doc.Words(parts.quiet("no metrics"))])
    custom = [family for family in families if not family.own]
    own = [block for family in families if family.own for block in _family(family, gap=family is not families[0])]
    blocks: list[doc.Block] = [block for family in custom for block in _family(family, gap=family is not families[0])]
    if own and custom:
        number_of_own = len(families) - len(custom)
        title = f"{_OWN}: {number_of_own:,} famil{'y' if number_of_own == 1 else 'ies'}"
        blocks.append(doc.Fold(title, own))
    else:
        blocks += own
    return doc.Document(blocks, styles="metrics")


def _family(family: FamilyRecord, gap: bool) -> Iterator[doc.Block]:
    title = join(parts.name(family.name).html, tag("span", family.kind, cls="chip"), by=" ")
    yield doc.Words(doc.Piece(f"{family.name}  {family.kind}", title), "metrics-family", gap=gap)
    if family.help:
        yield doc.Words(parts.lines(family.help), "facts", indent="  ")
    shown = family.metrics[:_MOST]
    if family.kind == "histogram":
        for metric in shown:
            yield from _histogram(metric)
    else:
        rows = [doc.Row([_labels(metric), number(metric.value)]) for metric in shown]
        columns = doc.columns("labels | value:r")
        yield doc.Table(f"Metrics of {family.name}", columns, rows, headed=False, heads=False, most=60)
    if len(family.metrics) > _MOST:
        yield doc.Words(parts.quiet(f"… {len(family.metrics) - _MOST:,} more"), indent="  ")


def _histogram(metric: MetricRecord) -> Iterator[doc.Block]:
    labels, summary = _labels(metric), number(metric.value)
    if metric.buckets:
        mean = f", mean {number(metric.value / metric.count)}" if metric.count else ""
        summary = f"{count(metric.count, 'observation')}, sum {summary}{mean}"
    line = f"{labels.text}  {summary}".strip()
    yield doc.Words(doc.Piece(line, join(labels.html, parts.quiet(summary).html, by=" ")), indent="  ")
    if metric.count:
        rows = [doc.Row([words, times, _bar(share)]) for words, times, share in _buckets(metric)]
        yield doc.Table("Buckets", doc.columns(":r | :r |"), rows, headed=False, heads=False, indent="    ")


def _bar(share: float) -> doc.Piece:
    filled = tag("span", style=f"width:{share:.1%}") if share else Html()
    return doc.Piece("#" * math.ceil(share * _CELLS), tag("span", filled, cls="metrics-bar"))


def _labels(metric: MetricRecord) -> doc.Piece:
    words = ", ".join(f"{name}={value}" for name, value in metric.labels)
    shown = (
        tag("span", parts.quiet(f"{name}=").html, tag("code", clip(value, 40)), cls="metrics-label")
        for name, value in metric.labels
    )
    return doc.Piece(words, join(*shown))


def number(value: float) -> str:
    """Format a value: whole numbers in full, others with six digits."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value, "NaN")
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.6g}"


def _buckets(metric: MetricRecord) -> Iterator[tuple[str, str, float]]:
    """Yield for each bucket: its range, its count, and its share of the highest count."""
    most = max(bucket.count for bucket in metric.buckets) or 1
    for index, bucket in enumerate(metric.buckets):
        words = f"≤ {bucket.bound}"
        if bucket.bound == "+Inf":
            words = f"> {metric.buckets[index - 1].bound}" if index else "all"
        yield words, f"{bucket.count:,}", bucket.count / most
