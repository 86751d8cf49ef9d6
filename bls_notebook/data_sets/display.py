"""Display of a data set's run: its rows, the workers over time, and the rows without an answer."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import ALARM, DIM, Html, Look, Pen, legend_signs, model_inks, parts, picture_html
from bls_notebook.display import document as doc
from bls_notebook.records import count, duration

from .records import MapRecord

_LANES = 32  # workers in the picture
_ROW, _BAR, _LEFT = 22, 14, 92  # px
_SLOWEST = 3


@doc.document("figure")
def map_document(record: MapRecord) -> Iterator[doc.Block]:
    """Describe a run: rows and rate first, then the workers, the slowest parts and the failed rows."""
    answered = record.rows - record.failures
    of = f" of {record.total:,}" if record.total and record.rows < record.total else ""
    facts = [f"{record.rows:,}{of} rows", f"{record.failures:,} failed" if record.failures else ""]
    facts += [f"{record.rate:,.0f} rows/s" if record.computed else "", _on(record)]
    mark = "!" if record.interrupted or record.failures or record.differences else "✓"
    yield doc.Line(
        [parts.name(record.model), parts.quiet(parts.dots(*filter(None, facts), parts.time(record.seconds)))], mark=mark
    )
    before = [part for part in record.parts if not part.worker]
    if before:
        words = f"from an earlier run: {count(len(before), 'part')}, {sum(p.rows for p in before):,} rows"
        yield doc.Words(parts.quiet(words))
    if record.interrupted:
        again = "; run it again to continue" if record.into else ""
        yield doc.Warnings([f"interrupted: only the finished parts are here{again}"])
    if record.computed:
        yield doc.Forms([_table(record)], [doc.Both(lambda width: [], _picture(record)), _fold(record)])
    if record.into:
        yield doc.Words(parts.quiet("answers in ", parts.code(record.into)))
    if record.checked:
        same = f"checked: the kernel gives the same answers to {count(record.checked, 'random row')}"
        yield doc.Warnings(record.differences, "different") if record.differences else doc.Words(parts.quiet(same))
    if record.failed:
        rows = [doc.Row([f"{failed.row:,}", failed.message]) for failed in record.failed]
        yield doc.Words(f"{record.failures:,} of {record.rows:,} rows have no answer, {answered:,} have one", gap=True)
        yield doc.Table("Rows without an answer", doc.columns("row:r | why"), rows, last="wrap")
        if record.failures > len(record.failed):
            more = f"and {record.failures - len(record.failed):,} more in the `failures` of the result"
            yield doc.Words(parts.coded(more))


def _on(record: MapRecord) -> str:
    return "" if not record.computed or record.workers == ("kernel",) else f"on {count(len(record.workers), 'worker')}"


def _table(record: MapRecord) -> doc.Table:
    rows = []
    for worker in record.workers:
        own = [part for part in record.computed if part.worker == worker]
        slowest = max(own, key=lambda part: part.seconds)
        busy = parts.time(sum(p.seconds for p in own))
        counts = f"{len(own):,}", f"{sum(p.rows for p in own):,}"
        rows.append(doc.Row([worker, *counts, busy, f"part {slowest.number}", parts.time(slowest.seconds)]))
    heads = "worker | parts:r | rows:r | busy:t | slowest | took:t"
    return doc.Table("Workers", doc.columns(heads), rows)


def _fold(record: MapRecord) -> doc.Fold:
    rows = [
        doc.Row([f"{part.number}", f"{part.first:,} to {part.first + part.rows - 1:,}", parts.time(part.seconds)])
        for part in record.slowest[:_SLOWEST]
    ]
    slowest = doc.Table("The slowest parts", doc.columns("part:r | rows | took:t"), rows)
    method = f"`.profile({record.slowest[0].number})` of the result profiles a part in the kernel"
    profile = [doc.Words(parts.coded(method))]
    return doc.Fold("workers and slowest parts", [_table(record), slowest, *(profile if record.again else [])])


def _picture(record: MapRecord) -> Html:
    """Return workers as lanes over time."""
    lanes = record.workers[:_LANES]
    end = max([record.seconds, *(part.began + part.seconds for part in record.computed)]) * 1e9
    pen, ink = Pen(end, _LEFT, 8), model_inks([record.model])[record.model]
    top = 6.0
    for worker in lanes:
        own = [part for part in record.computed if part.worker == worker]
        for failed, colour in ((False, ink.light), (True, ALARM.light)):
            boxes = [(p.began * 1e9, top, p.seconds * 1e9, _BAR) for p in own if bool(p.failed) is failed]
            pen.boxes(boxes, Look(colour, 0.85))
        pen.words(worker[:14], 0, top + _BAR / 2, right=-8, align="end")
        top += _ROW
    for x, label in pen.ticks:
        pen.words(label, x, top + 6, align="middle" if x else "start", size=10, colour=DIM)
    signs: list[tuple[Look | str, str]] = [(Look(ink.light, 0.85), "a part")]
    if record.failures:
        signs.append((Look(ALARM.light, 0.85), "a part with failed rows"))
    if len(record.workers) > len(lanes):
        signs.append(("…", f"{len(record.workers) - len(lanes)} more workers"))
    height = legend_signs(pen, top + 16, signs)
    spoken = f"{count(len(record.workers), 'worker')} and their parts over {duration(record.seconds)}"
    return picture_html(pen.document(height, top), spoken)
