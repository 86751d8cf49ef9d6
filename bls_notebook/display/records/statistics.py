"""Statistics of models as a table: requests, executions, and the time of a request by phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bls_notebook.display import as_text as text
from bls_notebook.display import parts
from bls_notebook.display.document import Block, Box, Column, Document, Forms, Piece, Row, Said, Table, Words
from bls_notebook.display.html import tag
from bls_notebook.records.statistics import StatisticsRecord, Times, why_not_batched
from bls_notebook.records.units import count, duration

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
    """Return each phase's share of the time as a bar; all bars have equal length, the columns give the times."""
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
