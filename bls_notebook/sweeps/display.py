"""Display of a sweep: the best point, the curves of latency over throughput, the table, and the resources. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from bls_notebook.display import ALARM, DIM, INK, Html, Look, Pen, legend_signs, model_inks, parts, picture_html
from bls_notebook.display import document as doc
from bls_notebook.records import count, duration, grouped, size

from .records import ModelLoad, Percentiles, ResourceSample, Sweep, SweepPoint
from .resource_watch import LEAST_SAMPLES

_PLACES = {
    "kernel": (
        "Measured in this kernel, whose GIL the models share with each other and with the load generator. For a "
        "server, where each instance is a process, these figures are a guess: models loaded with `--process`, or "
        "`--server`, measure it."
    ),
    "processes": (
        "Measured with each instance in a process, as on a server: what `execute` costs and how instances scale "
        "transfers. The load generator and the queues share this kernel's GIL, which limits models of less than about "
        "a millisecond."
    ),
    "endpoint": (
        "Measured over the network on the endpoint of a kernel, whose models share a GIL. For a tritonserver, these "
        "figures are a guess."
    ),
    "server": "Measured on the server, from this machine: the figures include the network.",
}
_LEFT, _RIGHT, _TOP, _HEIGHT, _PANEL = 74, 30, 24.0, 210, 42  # px; the name of the axis is above the top
_WAITED = 0.25  # fraction of a request's time in one queue, beyond which the queue is named
_OTHERS = 0.2  # fraction of the processors' time of other programs: more makes the figures rough
_WATCHED = 8  # samples from which resources are drawn
_SEVERAL = 12  # curves
_NEAR = 0.04  # fraction of the axis within which labels would cover each other


@doc.document("session figure")
def sweep_document(sweep: Sweep) -> Iterator[doc.Block]:
    """Describe a sweep."""
    done = len(sweep.points)
    facts = [f"{done:,} of {count(sweep.planned, 'point')}" if done < sweep.planned else count(done, "point")]
    yield doc.Line([parts.name(sweep.model), parts.quiet(parts.dots(*facts, *filter(None, [sweep.address])))])
    yield doc.Words(parts.coded(_sentence(sweep)), "session-verdict", "  ")
    if done < sweep.planned:
        yield doc.Warnings(["interrupted: only the finished points are here"])
    if not done:
        return
    yield doc.Words(parts.quiet(parts.coded(_PLACES.get(sweep.place, sweep.place))), indent="  ")
    drawn = [point for point in sweep.points if point.throughput and point.latency.p95]
    if len(drawn) > 1:
        yield doc.Forms([], [doc.Both(lambda width: [], _curves(sweep, drawn))])
    yield _table(sweep)
    failed = dict.fromkeys(message for point in sweep.points for message, _ in point.failed)
    totals = {message: sum(dict(point.failed).get(message, 0) for point in sweep.points) for message in failed}
    yield doc.Warnings([f"{total:,} failed: {message}" for message, total in totals.items()], label="failed")
    busiest = max(sweep.points, key=lambda point: point.others)
    if busiest.others >= _OTHERS:
        setting = _setting(busiest, sweep).replace("`", "")
        busy = f"other programs used up to {busiest.others:.0%} of the processors (with {setting})"
        yield doc.Warnings([f"{busy}: the figures are rough; measure again on a quiet machine"])
    shown = sweep.best or sweep.most(sweep.points)
    if queue := _queue(shown, sweep):
        yield doc.Words(parts.quiet(parts.coded(queue)), indent="  ")
    if len(shown.models) > 1:
        yield doc.Fold(
            parts.coded(f"its models with {_setting(shown, sweep)}"),
            [_models(shown.models, _setting(shown, sweep).replace("`", ""))],
        )
    yield from _resources(sweep)


def _sentence(sweep: Sweep) -> str:
    best = sweep.best
    measured = [point for point in sweep.points if point.throughput]
    if not measured:
        return "No point has figures."
    if best is not None or not sweep.budget:
        most = best or sweep.most(measured)
        within = f"Within {duration(sweep.budget)}, the" if best else "The"
        p95 = f": 95% of the requests take {duration(most.latency.p95)} or less" if most.latency.p95 else ""
        rows = f" ({_number(most.row_rate)} rows/s)" if most.rows > 1 else ""
        others = [point for point in measured if not best or point.keeps(sweep.budget)]
        about = ", within 2%," if most.row_rate < max(point.row_rate for point in others) else ""
        return (
            f"{within} most{about} is {_number(most.throughput)} requests/s{rows}, with {_setting(most, sweep)}{p95}."
        )
    none = f"No point answers 95% of the requests within {duration(sweep.budget)}"
    known = [point for point in measured if point.latency.p95 and not point.failed]
    if not known:
        return f"{none}: measure longer, as p95 needs 20 successful responses."
    fastest = min(known, key=lambda point: point.latency.p95)
    return f"{none}; the lowest p95 is {duration(fastest.latency.p95)}, with {_setting(fastest, sweep)}."


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _queue(point: SweepPoint, sweep: Sweep) -> str:
    """Name the model whose queue took a large part of the time of the point's requests; empty if there is none."""
    whole = sum(each.queued + each.computed for each in point.models if each.name == sweep.model)
    most = max(point.models, key=lambda each: each.queued * each.requests, default=None)
    if most is None or most.queued <= _WAITED * whole:
        return ""
    tried = sweep.most([other for other in sweep.points if _has_more(other, point, most.name)] or [point])
    more = f"more instances of `{most.name}`, or larger batches, may answer more"
    if tried is not point and tried.row_rate <= point.row_rate:
        more = f"more instances of `{most.name}` answered no more"
    return (
        f"With {_setting(point, sweep)}, each request to `{most.name}` spent {duration(most.queued)} in its queue, of "
        f"{duration(whole)} in queue and `execute` of `{sweep.model}`, on average: {more}."
    )


def _has_more(other: SweepPoint, point: SweepPoint, model: str) -> bool:
    """Return whether a point with figures differs in more instances of a model only."""
    here, there = dict(point.instances), dict(other.instances)
    is_same = (other.load, other.rows, {**there, model: 0}) == (point.load, point.rows, {**here, model: 0})
    return is_same and there.get(model, 0) > here.get(model, 0) and other.throughput > 0


def _setting(point: SweepPoint, sweep: Sweep) -> str:
    """Return the load and the setting of a point in words, without what all points share."""
    series = _series(point, sweep)
    return f"{point.load}, {series}" if series else point.load


def _series(point: SweepPoint, sweep: Sweep) -> str:
    rows = count(point.rows, "row") if len({each.rows for each in sweep.points}) > 1 else ""
    instances = [f"`{name}` × {number}" for name, number in point.instances]
    return ", ".join(filter(None, [rows, *instances]))


def _time(seconds: float) -> doc.Said:
    return parts.time(seconds) if seconds else parts.NOTHING


def _times(latency: Percentiles) -> list[doc.Said]:
    return [_time(each) for each in (latency.p50, latency.p95, latency.p99)]


def _table(sweep: Sweep) -> doc.Table:
    names = list(dict.fromkeys(name for point in sweep.points for name, _ in point.instances))
    several = max(point.rows for point in sweep.points) > 1
    failed = ["failed:r"] if any(point.failed for point in sweep.points) else []
    heads = [*(["rows:r"] if several else []), "load:r", "requests/s:r", *(["rows/s:r"] if several else [])]
    columns = [doc.Column(f"{name} ×", "r") for name in names]
    columns += doc.columns("|".join([*heads, "p50:t|p95:t|p99:t", *failed, ""]))
    rows, best = [], sweep.best
    for point in sweep.points:
        cells: list[doc.Said] = [str(dict(point.instances).get(name, "")) for name in names]
        cells += [*([str(point.rows)] if several else []), point.load]
        figures: list[doc.Said] = [_number(point.throughput), *([_number(point.row_rate)] if several else [])]
        figures += _times(point.latency)
        cells += [parts.NOTHING] * len(figures) if point.problem else figures
        cells += [f"{point.failures:,}"] if failed else []
        is_best = point is best
        told: doc.Said = "best" if is_best else parts.listed([point.problem])
        rows.append(doc.Row([*cells, told], "session-advised" if is_best else ""))
    return doc.Table("Throughput and latency of each point", columns, rows, headed=False, last="wrap")


def _amount(quantity: str, amount: float) -> str:
    return f"{amount:,.0f}" if quantity == "open files" else size(round(amount))


def _models(models: Sequence[ModelLoad], setting: str) -> doc.Table:
    heads = f"model, {setting}|requests:r|p50:t|p95:t|p99:t|mean wait:t|mean execute:t"
    rows = [
        doc.Row([each.name, f"{each.requests:,}", *_times(each.latency), _time(each.queued), _time(each.computed)])
        for each in models
    ]
    return doc.Table("The models of one point", doc.columns(heads), rows)


def _ticks(end: float) -> list[float]:
    step = next(s * 10.0**e for e in range(-3, 12) for s in (1, 2, 5) if end / (s * 10.0**e) <= 8)
    return [step * number for number in range(int(end / step) + 1)]


def _curves(sweep: Sweep, points: Sequence[SweepPoint]) -> Html:
    """Draw p95 over throughput, a curve for each setting."""
    end = 1.08 * max(point.row_rate for point in points)
    most = 1.12 * max([*(point.latency.p95 for point in points), min(sweep.budget, 2 * points[0].latency.p95)])
    pen, base = Pen(end, _LEFT, _RIGHT), _TOP + _HEIGHT
    pen.ticks = [(x, f"{x:g}") for x in _ticks(end)]
    small = partial(pen.words, size=10, colour=DIM)
    for ms in _ticks(most * 1e3)[1:]:
        y = base - ms / 1e3 / most * _HEIGHT
        small(f"{ms:g} ms", 0, y, right=-8, align="end")
        pen.line([(0, y), (end, y)], Look("#e6e8eb"), 1)
    pen.line([(0, base), (end, base)], Look("#bbbbbb"), 0.8)
    if 0 < sweep.budget <= most:
        y = base - sweep.budget / most * _HEIGHT
        pen.line([(0, y), (end, y)], Look(ALARM.light), 1.2)
        pen.words(f"budget {duration(sweep.budget)}", 0, y - 8, right=6, size=10, colour=ALARM.light, halo=True)
    series = grouped((_series(point, sweep), point) for point in points)
    inks = model_inks((name or "p95" for name in series), {})
    labels: list[tuple[float, float]] = []
    for name, own in series.items():
        look = Look(inks[name or "p95"].light)
        for sign, same in grouped(("◆" if point.rate else "●", point) for point in own).items():
            places = [(point.row_rate, base - point.latency.p95 / most * _HEIGHT) for point in same]
            pen.line(places, Look(look.colour, 0.6), 1.6)
            for point, (x, y) in zip(same, places, strict=True):
                best = point is sweep.best
                load = f"{point.rate:g}/s" if point.rate else str(point.concurrency)
                pen.words("★" if best else sign, x, y, align="middle", size=15 if best else 10, colour=look.colour)
                labels.append((x, _free_height(x, y, labels, _NEAR * end)))
                pen.words(load, *labels[-1], align="middle", size=10, colour=INK, bold=best, halo=True)
    for x, words in pen.ticks:
        small(words, x, base + 10, align="middle")
    unit = "rows" if max(point.rows for point in points) > 1 else "requests"
    small(f"{unit}/s", end, base + 24, align="end")
    small("p95", 0, 8, right=-8, align="end")
    named = [(Look(inks[name].light), name.replace("`", "")) for name in [*series][:_SEVERAL] if name]
    signs = {bool(p.rate): ("◆", "arrivals per second") if p.rate else ("●", "clients at once") for p in points}
    height = legend_signs(pen, base + 34, [*named, *signs.values(), *([("★", "best")] if sweep.best else [])])
    spoken = f"p95 over {unit} per second of {count(len(points), 'point')}; {_sentence(sweep)}".replace("`", "")
    return picture_html(pen.document(height, base), spoken)


def _free_height(x: float, y: float, labels: Sequence[tuple[float, float]], near: float) -> float:
    """Return where the label of a point at `x` and `y` covers none of the labels before it: above it, if possible."""
    beside = [other for at, other in labels if abs(at - x) < near]
    heights = (y + step * 12 for step in (-1, 1, -2, 2, -3, 3))
    return next((each for each in heights if all(abs(each - other) >= 11 for other in beside)), y - 12)


def _resources(sweep: Sweep) -> Iterator[doc.Block]:
    """Show the resources over time, and name their growth."""
    if len(sweep.samples) < _WATCHED:
        return
    last = sweep.samples[-1]
    words = (
        f"memory {size(last.memory)}, {size(last.shm)} in /dev/shm by all programs, {count(last.files, 'open file')}"
    )
    grown = [
        f"{each.quantity} grew by {_amount(each.quantity, each.amount)} in {duration(each.seconds)} "
        f"with {_setting(point, sweep)}"
        for point in sweep.points
        for each in point.grown
    ]
    yield doc.Warnings([words.replace("`", "") for words in grown], label="growth")
    picture = doc.Both(lambda width: [], _over_time(sweep.samples))
    judged = len(sweep.samples) * 3 // 4 >= LEAST_SAMPLES * len(sweep.points)
    told = f"{words}: no growth beyond noise" if judged and not grown else words
    yield doc.Forms([doc.Words(parts.quiet(told), indent="  ")], [doc.Fold(told, [picture])])


def _over_time(samples: Sequence[ResourceSample]) -> Html:
    end = max(samples[-1].at * 1e9, 1)
    pen, top = Pen(end, _LEFT, _RIGHT), 4.0
    rows = [("memory", [each.memory for each in samples]), ("/dev/shm", [each.shm for each in samples])]
    for name, values in (*rows, ("open files", [each.files for each in samples])):
        base, most = top + _PANEL, max(*values, 1)
        points = [(s.at * 1e9, base - 0.8 * _PANEL * value / most) for s, value in zip(samples, values, strict=True)]
        pen.line([(0, base), (end, base)], Look("#bbbbbb"), 0.8)
        pen.line(points, Look("#0072b2"), 1.4)
        pen.words(name, 0, base - 20, right=-8, align="end")
        pen.words(_amount(name, most), 0, base - 6, right=-8, align="end", size=10, colour=DIM)
        top = base + 10
    for x, words in pen.ticks:
        pen.words(words, x, top + 4, align="middle" if x else "start", size=10, colour=DIM)
    return picture_html(pen.document(top + 14, top - 6), f"memory, /dev/shm and open files over {duration(end / 1e9)}")
