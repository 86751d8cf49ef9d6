"""Two responses, or two tensors, side by side: what differs, by how much, where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import Html, tag
from bls_notebook.display.parts import media_html, number
from bls_notebook.records.repository import Compared, TensorRecord, TensorsCompared
from bls_notebook.records.units import count, percent, shape

_SIDE = 200
_COLUMNS = doc.columns("differing:r | max abs:r | max rel:r | max ULP:r | where the difference is greatest")


def compared_document(record: Compared) -> doc.Document:
    """Describe how two of a kind differ."""
    return doc.Document(list(_blocks(record)), styles="seen")


def _blocks(record: Compared) -> Iterator[doc.Block]:
    unlike = [each for each in record.tensors if each.differing or each.reason]
    verdict = f"{len(unlike)} of {count(len(record.tensors), 'tensor')} differ" if unlike else "equal"
    mark = "≠" if unlike or record.errors else "="
    yield doc.Line([parts.name(record.first), mark, parts.name(record.second), parts.quiet(verdict)])
    yield doc.Warnings(record.errors, "error")
    if record.tensors:
        yield differences_table(record.tensors)
    for each in unlike:
        sides = zip(each.pictures, ("first", "second", "difference"), strict=False)
        shown = [
            tag("div", media_html(media, _SIDE, words), tag("div", f"{words}: {media.said}", cls="dim"),
                cls="seen-box seen-side")
            for media, words in sides
        ]  # fmt: skip
        if shown:
            title = tag("div", parts.name(each.name).html, cls="head") if len(unlike) > 1 else Html()
            yield doc.Both(lambda _: [], tag("div", title, tag("div", *shown, cls="seen-boxes")))


def differences_table(tensors: Sequence[TensorsCompared], sides: tuple[str, str] = ("first", "second")) -> doc.Table:
    """Return a table of how tensors of two `sides` differ; types that both have stand there once."""
    kinds = [(_kind(each.first), _kind(each.second)) for each in tensors]
    alike = all(one == other for one, other in kinds)
    columns = [doc.Column("name"), *map(doc.Column, ("type",) if alike else sides), *_COLUMNS]
    rows = [_row(each, kind[alike:]) for each, kind in zip(tensors, kinds, strict=True)]
    return doc.Table("Differences", columns, rows, last="wrap", most=30)


def without_told(what: Sequence[str], tensors: Sequence[TensorsCompared]) -> list[str]:
    """Return the lines that say what a table of how `tensors` differ does not."""
    told = tuple(f"output {each.name!r}: " for each in tensors)
    return [line for line in what if not line.startswith(told)]


def inputs_table(caption: str, tensors: Sequence[TensorRecord]) -> doc.Table:
    """Return a table of the inputs of a request."""
    rows = [
        doc.Row([parts.name(t.name), parts.datatype(t.datatype), shape(t.shape), parts.values(t.preview)])
        for t in tensors
    ]
    return doc.Table(caption, doc.columns("input | dtype | shape | values"), rows)


def _row(each: TensorsCompared, kinds: Sequence[str]) -> doc.Row:
    start: list[doc.Said] = [parts.name(each.name), *kinds]
    if each.reason:
        words = doc.Piece(each.reason, tag("span", each.reason, cls="seen-bad"), wide=5)
        return doc.Row([*start, words])
    if not each.differing:
        same = f"equal, all {count(each.elements, 'element')}"
        return doc.Row([*start, doc.Piece(same, parts.quiet(same).html, wide=5)])
    share = f"{each.differing:,} ({percent(each.differing, each.elements)})"
    place = f"[{', '.join(map(str, each.where))}]" if each.where else ""
    values = f"{each.values[0]} and {each.values[1]}" if each.values[0] else ""
    looked = f"1 in {each.every:,} looked at" if each.every > 1 else ""
    where = " ".join(filter(None, (place, values, looked)))
    text = each.absolute == 0 and each.relative == 0
    figures = ["", ""] if text else [number(each.absolute), number(each.relative)]
    ulps = "" if each.ulps is None else f"{each.ulps:,.0f}"
    return doc.Row([*start, share, *figures, ulps, doc.Piece(where, tag("code", where), cls="wrap")])


def _kind(tensor: TensorRecord | None) -> str:
    return f"{tensor.datatype} {shape(tensor.shape)}" if tensor is not None else "—"
