"""Metrics by families: those of models first, histograms with their buckets drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bls_notebook.display import as_text as text
from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.display.units import count
from bls_notebook.records.metrics import FamilyRecord, MetricRecord

_OWN = "Triton's own metrics"
_MOST = 50  # metrics of a family that are shown
_CELLS = 20  # of a bar in the text
Families = Sequence[FamilyRecord]


def metrics_document(families: Families) -> doc.Document:
    """Show metrics in the order given; Triton's own are folded away where there are others."""
    if not families:
        return doc.Document([doc.Words(parts.quiet("no metrics"))])
    custom = [family for family in families if not family.own]
    own = [family for family in families if family.own]
    shown: list[doc.Block] = [_table("Metrics of the models", custom)] if custom else []
    if own and custom:
        title = f"{_OWN}: {len(own):,} famil{'y' if len(own) == 1 else 'ies'}"
        shown.append(doc.Fold(title, [_table(_OWN, own)]))
    elif own:
        shown.append(_table(_OWN, own))
    return doc.Document([doc.Forms([doc.Both(lambda width: _lines(families, width))], shown)], styles="metrics")


def _lines(families: Families, width: int) -> list[str]:
    lines: list[str] = []
    for family in families:
        lines += ["", text.head(family.name, family.kind)]
        if family.help:
            lines += text.wrap(family.help, width, "  ")
        shown = family.metrics[:_MOST]
        if family.kind != "histogram":
            rows = [[_labels(metric), number(metric.value)] for metric in shown]
            lines += text.table(rows, right=" r", width=width, most=60)
        for metric in shown if family.kind == "histogram" else ():
            lines += text.wrap(f"{_labels(metric)}  {_summary(metric)}".strip(), width, "  ")
            bars = [[*said, "#" * math.ceil(share * _CELLS)] for *said, share in _buckets(metric)]
            lines += text.table(bars, right="rr", width=width, indent="    ")
        lines += [f"  … {len(family.metrics) - _MOST:,} more"] * (len(family.metrics) > _MOST)
    return lines[1:]


def _table(caption: str, families: Families) -> doc.Table:
    return doc.Table(caption, doc.columns("labels | value:r |"), list(map(_group, families)), headed=False)


def _group(family: FamilyRecord) -> doc.Group:
    chip = tag("span", family.kind, cls="chip")
    head = join(parts.name(family.name).html, chip, prose(family.help), by=" ")
    rows = [doc.Row(list(_cells(metric, family.kind))) for metric in family.metrics[:_MOST]]
    if len(family.metrics) > _MOST:
        rows.append(doc.Row([doc.Piece("", Html(f"… {len(family.metrics) - _MOST:,} more"), wide=3)], "gap"))
    return doc.Group(doc.Piece("", head, cls="metrics-family"), rows)


def _cells(metric: MetricRecord, kind: str) -> Iterator[doc.Piece | str]:
    labels = (
        tag("span", parts.quiet(f"{name}=").html, tag("code", text.clip(value, 40)), cls="metrics-label")
        for name, value in metric.labels
    )
    yield doc.Piece("", join(*labels))
    yield count(metric.count, "observation") if kind == "histogram" else number(metric.value)
    yield doc.Piece("", _bars(metric)) if kind == "histogram" and metric.count else ""


# -- pieces ------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Spell a value: whole numbers as such, others with six digits."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value, "NaN")
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.6g}"


def _labels(metric: MetricRecord) -> str:
    return ", ".join(f"{name}={value}" for name, value in metric.labels)


def _sum(metric: MetricRecord) -> str:
    mean = f", mean {number(metric.value / metric.count)}" if metric.count else ""
    return f"sum {number(metric.value)}{mean}"


def _summary(metric: MetricRecord) -> str:
    if not metric.buckets:
        return number(metric.value)
    return f"{count(metric.count, 'observation')}, {_sum(metric)}"


def _buckets(metric: MetricRecord) -> Iterator[tuple[str, str, float]]:
    """What falls into each bucket, in words; how often; and how high that is of the highest."""
    if not metric.count:
        return
    most = max(bucket.count for bucket in metric.buckets) or 1
    for index, bucket in enumerate(metric.buckets):
        words = f"≤ {bucket.bound}"
        if bucket.bound == "+Inf":
            words = f"> {metric.buckets[index - 1].bound}" if index else "all"
        yield words, f"{bucket.count:,}", bucket.count / most


def _bars(metric: MetricRecord) -> Html:
    lines = [
        tag(
            "div",
            tag("span", words, cls="metrics-bound"),
            tag("span", tag("span", style=f"width:{share:.1%}") if share else Html(), cls="metrics-bar"),
            tag("span", times, cls="dim"),
            cls="metrics-bucket",
        )
        for words, times, share in _buckets(metric)
    ]
    return join(*lines, tag("div", parts.quiet(_sum(metric)).html))
