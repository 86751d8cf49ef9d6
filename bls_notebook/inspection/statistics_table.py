"""Display of model statistics: requests, executions, and the mean time of a request by phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bls_notebook.display import parts, tag
from bls_notebook.display.document import Block, Box, Column, Document, Forms, Piece, Row, Said, Table, Words
from bls_notebook.records import StatisticsRecord, Times, count, duration, visible, why_not_batched

_EMPTY = "no models are loaded: load one with %tritonrepo load NAME, or define one with %%tritonmodel NAME"
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
Records = Sequence[StatisticsRecord]


def statistics_document(records: Records) -> Document:
    """Show statistics of models: counts, mean times of a request, batches, cache and failures."""
    if not records:
        return Document([Words(parts.quiet(_EMPTY))])
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


def _table(records: Records) -> Table:
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
    times = [f"a hit takes {duration(hit.seconds)}"] * (hit.count > 0)
    times += [f"a miss costs {duration(miss.seconds)} more"] * (miss.count > 0)
    misses = f"{miss.count:,} miss" + "es" * (miss.count != 1)
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
