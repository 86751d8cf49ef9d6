"""Display of two compared responses or tensors: the differing elements, the largest differences, their position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from bls_notebook.display import Html, parts, tag
from bls_notebook.display import document as doc
from bls_notebook.display.parts import media_html, number
from bls_notebook.inspection.records import Compared, TensorsCompared
from bls_notebook.records import TensorRecord, count, percent, shape

_SIDE = 200
_COLUMNS = doc.columns("differing:r | max abs:r | max rel:r | max ULP:r | largest difference")


@doc.document("seen")
def compared_document(record: Compared) -> Iterator[doc.Block]:
    """Show the differences between two responses or tensors."""
    unequal = [tensors for tensors in record.tensors if tensors.differing or tensors.reason]
    verdict = f"{len(unequal)} of {count(len(record.tensors), 'tensor')} differ" if unequal else "equal"
    mark = "≠" if unequal or record.errors else "="
    yield doc.Line([parts.name(record.first), mark, parts.name(record.second), parts.quiet(verdict)])
    yield doc.Warnings(record.errors, "error")
    if record.tensors:
        yield differences_table(record.tensors)
    for tensors in unequal:
        sides = zip(tensors.pictures, ("first", "second", "difference"), strict=False)
        shown = [
            tag("div", media_html(media, _SIDE, words), tag("div", f"{words}: {media.said}", cls="dim"),
                cls="seen-box seen-side")
            for media, words in sides
        ]  # fmt: skip
        if shown:
            title = tag("div", parts.name(tensors.name).html, cls="head") if len(unequal) > 1 else Html()
            yield doc.Both(lambda _: [], tag("div", title, tag("div", *shown, cls="seen-boxes")))


def differences_table(tensors: Sequence[TensorsCompared], sides: tuple[str, str] = ("first", "second")) -> doc.Table:
    """Return a table of the differences between tensors; one column of types if both `sides` have equal types."""
    types = [(_type(pair.first), _type(pair.second)) for pair in tensors]
    is_equal = all(one == other for one, other in types)
    columns = [doc.Column("name"), *map(doc.Column, ("type",) if is_equal else sides), *_COLUMNS]
    rows = [_row(pair, kinds[is_equal:]) for pair, kinds in zip(tensors, types, strict=True)]
    return doc.Table("Differences", columns, rows, last="wrap", most=30)


def lines_beside_table(lines: Sequence[str], tensors: Sequence[TensorsCompared]) -> list[str]:
    """Return the lines about differences that the table of `tensors` does not already show."""
    shown = tuple(f"output {pair.name!r}: " for pair in tensors)
    return [line for line in lines if not line.startswith(shown)]


_ROUNDED = 4  # units in the last place: a larger difference is not called one of the last place


def in_last_place(differences: Iterable[tuple[Sequence[str], Sequence[TensorsCompared]]]) -> str:
    """Return the largest difference in words if all, given as lines and tensors, are of floats' last place; else ""."""
    most = 0.0
    for lines, tensors in differences:
        ulps = [pair.ulps or 0 for pair in tensors if pair.differing or pair.reason]
        if not ulps or not 0 < min(ulps) <= max(ulps) <= _ROUNDED or lines_beside_table(lines, tensors):
            return ""
        if any(pair.reason or not isfinite(pair.absolute) or pair.every > 1 for pair in tensors):
            return ""
        most = max(most, *ulps)
    return f", by at most {count(int(most), 'unit')} in the last place (ulps={most:.0f} accepts that)" if most else ""


def inputs_table(caption: str, tensors: Sequence[TensorRecord]) -> doc.Table:
    """Return a table of a request's inputs."""
    rows = [
        doc.Row([parts.name(t.name), parts.datatype(t.datatype), shape(t.shape), parts.values(t.preview)])
        for t in tensors
    ]
    return doc.Table(caption, doc.columns("input | dtype | shape | values"), rows)


def _row(pair: TensorsCompared, types: Sequence[str]) -> doc.Row:
    start: list[doc.Said] = [parts.name(pair.name), *types]
    if pair.reason:
        return doc.Row([*start, doc.Piece(pair.reason, tag("span", pair.reason, cls="seen-bad"), wide=5)])
    if not pair.differing:
        same = f"equal, all {count(pair.elements, 'element')}"
        return doc.Row([*start, doc.Piece(same, parts.quiet(same).html, wide=5)])
    share = f"{pair.differing:,} ({percent(pair.differing, pair.elements)})"
    place = f"[{', '.join(map(str, pair.where))}]" if pair.where else ""
    values = f"{pair.values[0]} and {pair.values[1]}" if pair.values[0] else ""
    sample = f"1 in {pair.every:,} read" if pair.every > 1 else ""
    where = " ".join(filter(None, (place, values, sample)))
    is_text = pair.absolute == 0 and pair.relative == 0
    figures = ["", ""] if is_text else [number(pair.absolute), number(pair.relative)]
    ulps = "" if pair.ulps is None else f"{pair.ulps:,.0f}"
    return doc.Row([*start, share, *figures, ulps, doc.Piece(where, tag("code", where), cls="wrap")])


def _type(tensor: TensorRecord | None) -> str:
    return f"{tensor.datatype} {shape(tensor.shape)}" if tensor is not None else "—"
