"""Tables of model statistics (requests, executions, the mean time of a request by phase), devices, and metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bls_notebook.display import Html, clip, join, parts, tag
from bls_notebook.display import document as doc
from bls_notebook.display.document import Block, Box, Column, Document, Forms, Piece, Row, Said, Table, Words, columns
from bls_notebook.records import (
    DeviceRecord,
    DeviceTable,
    FamilyRecord,
    MetricRecord,
    StatisticsRecord,
    Times,
    count,
    duration,
    remedy,
    size,
    visible,
    why_not_batched,
)

_EMPTY = "no models are loaded: load one with {load}, or define one with {define}"
_NOTE = "times are means per request since the model was loaded"
# Phases of a request: heading, character in the bar of the text, meaning.
_PHASES = (
    ("queue", "·", "waiting for an instance"),
    ("input", "-", "passing inputs to the model"),
    ("infer", "=", "execute itself"),
    ("output", "+", "passing outputs to the caller"),
)
# Triton's reasons of failures in plain words.
_REASONS = {"REJECTED": "timed out", "CANCELED": "cancelled", "BACKEND": "in the model", "OTHER": "elsewhere"}
_CELLS = 12  # width of a bar in text
StatisticsRecords = Sequence[StatisticsRecord]


def statistics_document(records: StatisticsRecords) -> Document:
    """Show statistics of models: counts, mean times of a request, batches, cache and failures."""
    if not records:
        return Document([Words(parts.quiet(parts.coded(str(remedy(_EMPTY, name="NAME")))))])
    key = ", ".join(f"{sign} {name}: {meaning}" for name, sign, meaning in _PHASES)
    notes: list[Block] = []
    if any(record.success.count for record in records):
        notes.append(Words(Piece(f"mean times of a request: {key}", parts.quiet(_NOTE).html), gap=True))
    for record in records:
        name = visible(f"{record.name} version {record.version}")
        for line in _notes(record):
            shown = parts.quiet(parts.name(record.name), f" version {record.version}: ", parts.coded(line)).html
            notes.append(Words(Piece(line, shown), indent=f"{name}: ", hang="  "))
    table = _table(records)
    return Document([Forms([table], [Box([table], "stats")]), *notes], styles="stats")


def _table(records: StatisticsRecords) -> Table:
    columns = [
        Column("model"),
        *(Column(head, "r") for head in ("version", "requests", "inferences", "executions")),
        Column("batch", "r", in_html=any(record.batching for record in records)),
        Column("failed", "r"),
        Column("time", "t"),
        Column(),
        *(Column(_phase(name, meaning), "t") for name, _, meaning in _PHASES),
    ]
    return Table("Statistics of models", columns, [Row(list(_cells(r))) for r in records], indent="", most=28)


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
    """Return the times of the phases, divided by all requests: answers from the cache count as 0."""
    of = record.success.count
    phases = (record.queue, record.compute_input, record.compute_infer, record.compute_output)
    return tuple(Times(of, times.ns) for times in phases)


def _bar(record: StatisticsRecord) -> Piece:
    """Return each phase's share of the time as a bar; all bars have equal length."""
    spent = [times.ns for times in _times(record)]
    shares = [ns / sum(spent) if sum(spent) else 0.0 for ns in spent]
    pieces, cells, done = [], "", 0.0
    for (name, sign, _), share, times in zip(_PHASES, shares, _times(record), strict=True):
        done += share
        cells += sign * (round(done * _CELLS) - len(cells))
        if share >= 0.001:
            title = f"{name}: {duration(times.seconds)}, {share:.0%} of the time"
            pieces.append(tag("span", cls=f"stats-{name}", style=f"width:{share:.1%}", title=title))
    return Piece(f"|{cells:{_CELLS}}|", tag("span", *pieces, cls="stats-stack"))


def _phase(name: str, meaning: str) -> Piece:
    """Return a heading with the color of its phase, as a legend."""
    return Piece(name, tag("span", tag("span", cls=f"stats-key stats-{name}"), name, title=meaning))


def _reasons(record: StatisticsRecord) -> str:
    return ", ".join(f"{number:,} {_REASONS.get(reason, reason.lower())}" for reason, number in record.failures)


def _cache(record: StatisticsRecord) -> str:
    hit, miss = record.cache_hit, record.cache_miss
    if not record.cached or not hit.count + miss.count:
        return ""
    times = [f"a hit takes {duration(hit.seconds)}"] if hit.count > 0 else []
    times += [f"a miss costs {duration(miss.seconds)} more"] if miss.count > 0 else []
    misses = f"{miss.count:,} miss" + ("es" if miss.count != 1 else "")
    return "; ".join([f"cache: {count(hit.count, 'hit')}, {misses}", *times])


def _notes(record: StatisticsRecord) -> Iterator[str]:
    """Yield lines about batches, cache, failures and missing batching."""
    if record.batching and record.batches:
        sizes = ", ".join(f"{batch.executions:,} of {batch.rows}" for batch in record.batches)
        yield f"batches: {sizes}"
    if _cache(record):
        yield _cache(record)
    if _reasons(record):
        yield f"failed: {_reasons(record)}"
    if why := why_not_batched(record):
        yield f"not batched: {why.sentence}"


_BAR = 10  # cells of a bar of text
_NONE = "no GPU on this machine; simulate one with {simulate}"


def devices_document(record: DeviceTable) -> Document:
    heads = columns("device | hardware | this process:r | others:r | total:r |")
    table = Table("Devices and their memory", heads, list(map(_row, record.devices)), indent="", most=34)
    none = [Words(parts.quiet(parts.coded(str(remedy(_NONE)))), gap=True)] if len(record.devices) < 2 else []
    return Document([table, *none], styles="devices")


def _row(record: DeviceRecord) -> Row:
    label = f"{record.name} (simulated)" if record.simulated else record.name
    cached = f" + {size(record.cached)} cached" if record.cached > 0 else ""
    ours = parts.known(record.ours)
    return Row([
        parts.device(label),
        Piece(record.hardware, parts.quiet(record.hardware).html, cls="devices-hardware"),
        Piece(ours.text + cached, Html(ours.html + parts.quiet(cached).html) if cached else ours.html),
        parts.known(record.others),
        parts.known(record.total),
        _device_bar(record),
    ])  # fmt: skip


def _shares(record: DeviceRecord) -> tuple[float, float, float]:
    """Return the fractions of the memory: used by this process, cached in its pool, used by others."""
    ours, cached, others = (max(0, n) / record.total for n in (record.ours, record.cached, record.others))
    return min(ours, 1.0), min(cached, 1.0 - min(ours, 1.0)), max(0.0, min(others, 1.0 - ours - cached))


def _device_bar(record: DeviceRecord) -> Piece:
    if record.total <= 0:
        return parts.NOTHING
    ours, cached, others = _shares(record)
    used = ours + cached + others
    pieces = [
        tag("span", cls=f"devices-{cls}", style=f"width:{share * 100:.2f}%")
        for cls, share in (("ours", ours), ("kept", cached), ("others", others))
        if share > 0
    ]
    title = f"{used:.0%} in use: {ours + cached:.0%} by this process, {others:.0%} by others"
    bar = tag("div", *pieces, cls="devices-usage", role="img", title=title, **{"aria-label": title})
    mine, all_used = round((ours + cached) * _BAR), round(used * _BAR)
    return Piece(f"{'█' * mine}{'▒' * (all_used - mine)}{'·' * (_BAR - all_used)} {used:.0%}", bar)


_OWN = "Triton's own metrics"
_MOST = 50  # metrics that are shown of a family
_METRIC_CELLS = 20  # width of a bar in text


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
        rows = [doc.Row([words, times, _metric_bar(share)]) for words, times, share in _buckets(metric)]
        yield doc.Table("Buckets", doc.columns(":r | :r |"), rows, headed=False, heads=False, indent="    ")


def _metric_bar(share: float) -> doc.Piece:
    filled = tag("span", style=f"width:{share:.1%}") if share else Html()
    return doc.Piece("#" * math.ceil(share * _METRIC_CELLS), tag("span", filled, cls="metrics-bar"))


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
