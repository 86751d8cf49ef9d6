"""Metrics by families: those of models first, histograms with their buckets drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, join, prose, row, table, tag
from bls_notebook.display.units import count
from bls_notebook.observe.records.metrics import BucketSeen, FamilyRecord, MetricRecord

_NONE = "no metrics"
_OWN = "Triton's own metrics"
_MOST = 50  # metrics of a family that are shown
_CELLS = 20  # of a bar in the text
_BAR = "#"
Families = Sequence[FamilyRecord]


def metrics_text(families: Families, *, width: int = 100) -> str:
    """Show metrics as plain text.

    Parameters
    ----------
    families : sequence of FamilyRecord
        In the order in which they are shown.
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        A heading for each family, and a row for each metric; histograms with a bar for each bucket.
    """
    if not families:
        return _NONE
    lines: list[str] = []
    for family in families:
        lines += ["", text.head(family.name, family.kind)] if lines else [text.head(family.name, family.kind)]
        if family.help:
            lines += text.wrap(family.help, width, "  ")
        rows = [[_labels(metric), _summary(metric)] for metric in family.metrics[:_MOST]]
        if family.kind != "histogram":
            lines += text.table(rows, right=" r", width=width, most=60)
        else:
            for metric in family.metrics[:_MOST]:
                lines += text.wrap(f"{_labels(metric)}  {_summary(metric)}".strip(), width, "  ")
                if metric.count:
                    lines += text.table(_buckets_text(metric), right="rr", width=width, indent="    ")
        if len(family.metrics) > _MOST:
            lines.append(f"  … {len(family.metrics) - _MOST:,} more")
    return "\n".join(lines)


def metrics_html(families: Families) -> str:
    """Show metrics as HTML.

    Parameters
    ----------
    families : sequence of FamilyRecord
        In the order in which they are shown.

    Returns
    -------
    str
        One ``div`` with its stylesheet; Triton's own metrics are folded away where there are others.
    """
    if not families:
        return parts.output(parts.line(parts.quiet(_NONE)))
    custom = [family for family in families if not family.own]
    own = [family for family in families if family.own]
    shown = [_table("Metrics of the models", custom)] if custom else []
    if own and custom:
        title = f"{_OWN}: {len(own):,} famil{'y' if len(own) == 1 else 'ies'}"
        shown.append(tag("details", tag("summary", title), _table(_OWN, own)))
    elif own:
        shown.append(_table(_OWN, own))
    return parts.output(*shown, styles="metrics")


def _table(caption: str, families: Families) -> Html:
    heads = [("labels", ""), ("value", "num"), ("", "")]
    return table(caption, heads, (tag("tbody", *_rows(family)) for family in families), groups=True)


def _rows(family: FamilyRecord) -> Iterator[Html]:
    metrics = family.metrics[:_MOST]
    head = join(parts.name(family.name), tag("span", family.kind, cls="chip"), prose(family.help), by=" ")
    yield row([tag("th", head, cls="metrics-family", scope="rowgroup", colspan=3)])
    for metric in metrics:
        cells = [tag("td", *_label_tags(metric))]
        if family.kind == "histogram":
            cells.append(tag("td", count(metric.count, "observation"), cls="num"))
            cells.append(tag("td", _buckets_html(metric) if metric.count else ""))
        else:
            cells += [tag("td", number(metric.value), cls="num"), tag("td")]
        yield row(cells)
    if len(family.metrics) > len(metrics):
        yield row([tag("td", f"… {len(family.metrics) - len(metrics):,} more", colspan=3)], "gap")


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


def _label_tags(metric: MetricRecord) -> list[Html]:
    return [
        tag("span", parts.quiet(f"{name}="), tag("code", _clipped(value)), cls="metrics-label")
        for name, value in metric.labels
    ]


def _clipped(value: str) -> str:
    """Cut a label's value to what fits."""
    return text.clip(value, 40)


def _summary(metric: MetricRecord) -> str:
    if not metric.buckets:
        return number(metric.value)
    mean = f", mean {number(metric.value / metric.count)}" if metric.count else ""
    return f"{count(metric.count, 'observation')}, sum {number(metric.value)}{mean}"


def _range(metric: MetricRecord, index: int) -> str:
    """What falls into a bucket, in words."""
    bound = metric.buckets[index].bound
    if bound == "+Inf":
        return f"> {metric.buckets[index - 1].bound}" if index else "all"
    return f"≤ {bound}"


def _most(buckets: Sequence[BucketSeen]) -> int:
    return max((bucket.count for bucket in buckets), default=0) or 1


def _buckets_text(metric: MetricRecord) -> list[list[str]]:
    most = _most(metric.buckets)
    return [
        [
            _range(metric, index),
            f"{bucket.count:,}",
            _BAR * math.ceil(bucket.count / most * _CELLS),
        ]
        for index, bucket in enumerate(metric.buckets)
    ]


def _filled(share: float) -> Html:
    return tag("span", style=f"width:{share:.1%}") if share else Html()


def _buckets_html(metric: MetricRecord) -> Html:
    most = _most(metric.buckets)
    lines = [
        tag(
            "div",
            tag("span", _range(metric, index), cls="metrics-bound"),
            tag("span", _filled(bucket.count / most), cls="metrics-bar"),
            tag("span", f"{bucket.count:,}", cls="dim"),
            cls="metrics-bucket",
        )
        for index, bucket in enumerate(metric.buckets)
    ]
    mean = f", mean {number(metric.value / metric.count)}" if metric.count else ""
    return join(*lines, tag("div", parts.quiet(f"sum {number(metric.value)}{mean}")))
