"""What models have done: a row for each version, with where the time of a request went."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, join, row, table, tag
from bls_notebook.display.units import count, duration
from bls_notebook.observe.records.statistics import StatisticsRecord, Times

_EMPTY = "no models are loaded: load one with %tritonrepo load NAME, or define one with %%tritonmodel NAME"
_IDLE = "no requests yet"
_NONE_GOOD = "no request has succeeded"
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
_BARS = 24  # batch sizes that get a bar each
Records = Sequence[StatisticsRecord]


def statistics_text(records: Records, *, width: int = 100) -> str:
    """Show what models have done as plain text.

    Parameters
    ----------
    records : sequence of StatisticsRecord
        A row each.
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        A table with the mean times of a request, then the batches, the cache and the failures, where
        there are any.
    """
    if not records:
        return _EMPTY
    heads = ["model", "version", "requests", "inferences", "executions", "batch", "failed", "time"]
    heads += ["", *(name for name, _, _ in _PHASES)]
    rows = []
    for record in records:
        start = [record.name, record.version, *_counts(record), _failed(record)]
        if not record.success.count:
            rows.append([*start, _without_times(record)])
            continue
        times = [duration(times.seconds) for times in _times(record)]
        rows.append([*start, duration(record.success.seconds), _bar(record), *times])
    lines = text.table(rows, heads=heads, right=" rrrrrrt tttt", width=width, indent="", most=28)
    key = ", ".join(f"{sign} {name}: {what}" for name, sign, what in _PHASES)
    if any(record.success.count for record in records):
        lines += ["", *text.wrap(f"mean times of a request: {key}", width)]
    for record in records:
        for what in _more(record):
            lines += text.wrap(what, width, f"{_name(record)}: ", "  ")
    return "\n".join(lines)


def statistics_html(records: Records) -> str:
    """Show what models have done as HTML.

    Parameters
    ----------
    records : sequence of StatisticsRecord
        A row each.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    if not records:
        return parts.output(parts.line(parts.quiet(_EMPTY)))
    cached, batching = any(r.cached for r in records), any(r.batching for r in records)
    cancelled = any(_cancelled(r) for r in records)
    heads: list[tuple[str, str]] = [("model", ""), ("version", "num")]
    heads += [(head, "num") for head in ("requests", "inferences", "executions")]
    heads += [("batch", "num")] * batching + [("failed", "num")] + [("cancelled", "num")] * cancelled
    heads += [("time", "num"), ("", "")]
    heads += [(_phase(name, what), "num") for name, _, what in _PHASES]
    heads += [("cache hits", "num")] * cached
    rows = [_row(record, batching, cancelled, cached) for record in records]
    note = parts.line(parts.quiet("times are means of one request; they begin anew when a model is loaded"))
    body = tag("div", table("What the models have done", heads, rows), cls="stats")
    return parts.output(body, note, styles="stats")


def _row(record: StatisticsRecord, batching: bool, cancelled: bool, cached: bool) -> Html:
    requests, inferences, executions, batch = _counts(record)
    cells = [tag("th", parts.name(record.name), scope="row"), _number(record.version)]
    cells += map(_number, (requests, inferences, executions))
    if batching:
        cells.append(tag("td", join(_histogram(record), batch, by=" "), cls="num"))
    wrong = record.fail.count - _cancelled(record) * cancelled
    figure = tag("span", f"{wrong:,}", cls="stats-wrong" if wrong else "")
    cells.append(tag("td", figure, cls="num", title=_reasons(record) or None))
    if cancelled:
        cells.append(_number(f"{_cancelled(record):,}"))
    if record.success.count:
        cells.append(tag("td", parts.time(record.success.seconds), cls="num"))
        cells.append(tag("td", _stack(record)))
        cells += (tag("td", parts.time(times.seconds), cls="num") for times in _times(record))
    else:
        cells.append(tag("td", parts.quiet(_without_times(record)), colspan=2 + len(_PHASES)))
    if cached:
        cells.append(tag("td", *_hits(record), cls="num", title=_cache(record) or None))
    return row(cells)


# -- pieces ------------------------------------------------------------------------------------------


def _counts(record: StatisticsRecord) -> list[str]:
    batch = f"{record.batch:.3g}" if record.executions and record.batching else ""
    return [f"{record.success.count:,}", f"{record.inferences:,}", f"{record.executions:,}", batch]


def _number(value: str) -> Html:
    return tag("td", value, cls="num")


def _name(record: StatisticsRecord) -> str:
    return f"{text.head(record.name)} version {text.head(record.version)}"


def _times(record: StatisticsRecord) -> tuple[Times, ...]:
    """The phases, each as the mean of all requests: what the cache answered was not computed."""
    of = record.success.count
    phases = (record.queue, record.compute_input, record.compute_infer, record.compute_output)
    return tuple(Times(of, times.ns) for times in phases)


def _shares(record: StatisticsRecord) -> list[float]:
    """Which part of the time went to each phase; they make up 1, unless there was no time."""
    spent = [times.ns for times in _times(record)]
    return [ns / sum(spent) if sum(spent) else 0.0 for ns in spent]


def _bar(record: StatisticsRecord) -> str:
    ends, done = [], 0.0
    for share in _shares(record):
        done += share
        ends.append(round(done * _CELLS))
    cells = (
        sign * (end - start) for (_, sign, _), start, end in zip(_PHASES, [0, *ends], ends, strict=False)
    )
    return f"|{''.join(cells):{_CELLS}}|"


def _stack(record: StatisticsRecord) -> Html:
    """The bar: as long for every model, so that it says which phase it is, and the figures how long."""
    pieces = []
    for (name, _, _), share, times in zip(_PHASES, _shares(record), _times(record), strict=True):
        if share >= 0.001:
            told = f"{name}: {duration(times.seconds)}, {share:.0%} of the time"
            pieces.append(tag("span", cls=f"stats-{name}", style=f"width:{share:.1%}", title=told))
    return tag("span", *pieces, cls="stats-stack")


def _phase(name: str, what: str) -> Html:
    """A heading that is its own key: with the colour of the phase."""
    return tag("span", tag("span", cls=f"stats-key stats-{name}"), name, title=what)


def _histogram(record: StatisticsRecord) -> Html:
    """A bar for each size of a batch, as high as it was frequent."""
    if not record.batching or not record.batches:
        return Html()
    most = max(batch.executions for batch in record.batches) or 1
    shown = sorted(sorted(record.batches, key=lambda b: -b.executions)[:_BARS], key=lambda b: b.rows)
    bars = (
        tag(
            "span",
            style=f"height:{max(0.08, batch.executions / most):.1%}",
            title=f"{count(batch.executions, 'execution')} of {count(batch.rows, 'row')}",
        )
        for batch in shown
    )
    return tag("span", *bars, cls="stats-histogram")


def _without_times(record: StatisticsRecord) -> str:
    return _NONE_GOOD if record.fail.count else _IDLE


def _failed(record: StatisticsRecord) -> str:
    return f"{record.fail.count:,}"


def _cancelled(record: StatisticsRecord) -> int:
    return dict(record.failures).get("CANCELED", 0)


def _reasons(record: StatisticsRecord) -> str:
    return ", ".join(f"{number:,} {_TOLD.get(reason, reason.lower())}" for reason, number in record.failures)


def _hits(record: StatisticsRecord) -> list[Html]:
    if not record.cached:
        return []
    asked = record.cache_hit.count + record.cache_miss.count
    share = f" of {asked:,}" if asked else ""
    return [Html(f"{record.cache_hit.count:,}"), parts.quiet(share)]


def _cache(record: StatisticsRecord) -> str:
    hit, miss = record.cache_hit, record.cache_miss
    if not record.cached or not hit.count + miss.count:
        return ""
    took = [f"a hit takes {duration(hit.seconds)}"] * (hit.count > 0)
    took += [f"a miss costs {duration(miss.seconds)} more"] * (miss.count > 0)
    misses = f"{miss.count:,} miss" + "es" * (miss.count != 1)
    hits = count(hit.count, "hit")
    return "; ".join([f"cache: {hits}, {misses}", *took])


def _more(record: StatisticsRecord) -> list[str]:
    """What the columns of the text have no room for, a line each."""
    lines = []
    if record.batching and record.batches:
        sizes = ", ".join(f"{batch.executions:,} of {batch.rows}" for batch in record.batches)
        lines.append(f"batches: {sizes}")
    if _cache(record):
        lines.append(_cache(record))
    if _reasons(record):
        lines.append(f"failed: {_reasons(record)}")
    return lines
