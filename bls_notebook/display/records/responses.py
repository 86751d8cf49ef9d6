"""One response: a row for each tensor."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import join, tag
from bls_notebook.display.records.errors import error_box
from bls_notebook.display.tensor_parts import figures_piece, media_html
from bls_notebook.display.units import shape
from bls_notebook.records.repository import ResponseRecord, TensorRecord

_COLUMNS = doc.columns("name | datatype | shape | device | size:r")
_FIGURES = doc.Column("range and mean", in_html=False)
_VALUES = doc.Column("values")
_SIDE = 56  # pixels of a picture


def response_document(record: ResponseRecord) -> doc.Document:
    """Describe one response: where it is from, its tensors or its error, what it was asked with."""
    seen = any(tensor.pictures or tensor.figures for tensor in record.tensors)
    return doc.Document(list(_blocks(record)), styles="error" * (record.error is not None) + " seen" * seen)


def response_head(record: ResponseRecord) -> Iterator[doc.Block]:
    """Give what stands above a response's tensors: where it is from, how long it took, its error."""
    facts = (
        f"version {record.version}" if record.version > 0 else "",
        f"request {record.request_id}" if record.request_id else "",
        parts.time(record.seconds),
    )
    top = parts.quiet(parts.dots(*facts, by="  "))
    yield doc.Line([parts.name(record.model), top], mark="✗" if record.error else "✓")
    yield parts.stubs_told(record.stubs)
    if record.error:
        yield error_box(record.error)


def _blocks(record: ResponseRecord) -> Iterator[doc.Block]:
    yield from response_head(record)
    if record.tensors:
        yield _tensors(f"Response of {record.model}", record.tensors)
    elif not record.error:
        yield doc.Words(parts.quiet("no tensors; only the final flag" if record.final else "no tensors"), indent="  ")
    if record.parameters:
        words = ", ".join(f"{key}={value!r}" for key, value in record.parameters)
        shown = tag("div", join(parts.quiet("parameters").html, tag("code", words), by=" "), cls="head")
        yield doc.Note("parameters", words, shown)
    yield doc.Warnings(record.warnings)


def _tensors(caption: str, tensors: tuple[TensorRecord, ...]) -> doc.Table:
    seen = [_FIGURES] if any(tensor.figures for tensor in tensors) else []
    rows = [
        doc.Row([
            parts.name(tensor.name),
            parts.datatype(tensor.datatype),
            parts.code(shape(tensor.shape)),
            parts.device(tensor.device),
            parts.memory(tensor.bytes),
            *(figures_piece(tensor.figures) for _ in seen),
            _values(tensor),
        ])
        for tensor in tensors
    ]  # fmt: skip
    return doc.Table(caption, [*_COLUMNS, *seen, _VALUES], rows)


def _values(tensor: TensorRecord) -> doc.Piece:
    """The first elements; in HTML with pictures and figures of all of them."""
    values = parts.values(tensor.preview)
    shown = [media_html(each, _SIDE, tensor.name) for each in tensor.pictures]
    told = parts.quiet(tensor.pictures[0].said).html if any(shown) else ""
    figures = figures_piece(tensor.figures).html
    above = tag("div", *shown, told, cls="seen-row") if any(shown) else ""
    below = tag("div", figures, cls="seen-row") if figures else ""
    return doc.Piece(values.text, join(above, values.html, below)) if above or below else values
