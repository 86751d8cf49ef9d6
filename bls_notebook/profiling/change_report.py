"""Report of two profiles, before and after a change: the sentence, bars, and the times that changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.display import DIM, INK, Html, Look, Pen, legend_signs, model_inks, parts, picture_html, width_of
from bls_notebook.display import document as doc
from bls_notebook.records import ns, visible

from .analysis.before_after import noise_of, ratio_of, spelled
from .records.before_after import BeforeAfter, TimeChange

_ROW, _BAR, _BARS = 34.0, 11.0, 12  # px; the most rows of the picture
_WORDS = {"noise": "noise", "unknown": "noise unknown", "new": "new", "gone": "gone"}


def before_after_document(record: BeforeAfter) -> doc.Document:
    """Describe two profiles: the sentence, a picture of requests and models, and a row for each time."""
    return doc.Document(before_after_blocks(record), styles="session figure")


def before_after_blocks(record: BeforeAfter) -> list[doc.Block]:
    names = doc.Line([parts.name(record.before), "→", parts.name(record.after)], by=" ")
    blocks: list[doc.Block] = [names, doc.Words(parts.coded(record.sentence), "session-verdict", "  ")]
    blocks += [doc.Words(parts.quiet(parts.coded(f"note: {note}")), indent="  ") for note in record.notes]
    bars = [change for change in record.changes if change.kind not in ("line", "gathered")][:_BARS]
    if bars:
        heads = "|before:r|after:r|change|noise:r"
        rows = [doc.Row(_cells(each), "session-advised" if _changed(each) else "") for each in record.changes]
        blocks.append(doc.Both(lambda width: [], _picture(bars)))
        blocks.append(doc.Table("Times for one request, before and after", doc.columns(heads), rows, shared=1))
    return blocks


def _changed(change: TimeChange) -> bool:
    return change.verdict in ("faster", "slower")


def _verdict(change: TimeChange) -> str:
    if not _changed(change):
        return _WORDS.get(change.verdict, change.verdict)
    return change.verdict if change.noise >= 1 else f"{spelled(ratio_of(change))}× {change.verdict}"


def _name_of(change: TimeChange) -> str:
    return {"request": "a request", "model": "itself", "gathered": change.text}.get(change.kind, change.kind)


def _cells(change: TimeChange) -> list[doc.Said]:
    named = parts.coded(change.place if change.kind == "line" else f"`{change.model}`, {_name_of(change)}")
    sides = [ns(side.median) if side.median else "" for side in (change.before, change.after)]
    return [named, *sides, _verdict(change), noise_of(change) if change.noise else ""]


def _picture(changes: Sequence[TimeChange]) -> Html:
    """Draw two bars for each change, pale before and solid after; a line spans the middle half of the requests."""
    names = [f"{visible(change.model)}, {visible(_name_of(change))}" for change in changes]
    pen = Pen(max(max(c.before.q3, c.after.q3) for c in changes) * 1.02 or 1, 8 + 1.1 * max(map(width_of, names)), 96)
    inks = model_inks({change.model for change in changes})
    for row, (change, name) in enumerate(zip(changes, names, strict=True)):
        top, ink = 4 + row * _ROW, inks[change.model]
        pen.words(name, 0, top + _BAR, right=-8, align="end", bold=change.kind == "request")
        for side, y, alpha in ((change.before, top, 0.35), (change.after, top + _BAR + 1, 1.0)):
            if side.median:
                pen.boxes([(0, y, side.median, _BAR)], Look(ink.light, alpha))
                pen.boxes([(side.q1, y + _BAR / 2 - 0.75, side.q3 - side.q1, 1.5)], Look(INK))
        end = max(change.before.q3, change.after.q3)
        changed = _changed(change)
        pen.words(_verdict(change), end, top + _BAR, right=8, bold=changed, colour=INK if changed else DIM)
    bottom = 4 + len(changes) * _ROW
    for x, text in pen.ticks:
        pen.words(text, x, bottom + 8, align="middle" if x else "start", size=10, colour="#555555")
    signs: list[tuple[Look | str, str]] = [(Look(DIM, 0.35), "before"), (Look(DIM), "after")]
    signs.append(("–", "the middle half of the requests"))
    sides = [f"{ns(change.before.median)} before, {ns(change.after.median)} after" for change in changes]
    said = ". ".join(map(": ".join, zip(names, sides, strict=True)))
    return picture_html(pen.document(legend_signs(pen, bottom + 20, signs), bottom), f"Times for one request. {said}.")
