"""Which rows and columns a table of many responses has: enough to see the pattern, never thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bls_notebook.display import parts
from bls_notebook.display.html import Html, join, tag
from bls_notebook.display.units import shape
from bls_notebook.observe.records.repository import ResponseRecord, TensorRecord
from bls_notebook.observe.visible import first_line

_COLUMNS = 4  # tensor names that get a column each
_WHOLE, _HEAD, _TAIL, _BAD = 20, 8, 3, 5  # rows: all, or the first, the last, and the first errors


@dataclass(frozen=True)
class Column:
    """The tensors of one name; what they all share stands in the heading, once."""

    name: str
    datatype: str = ""
    shape: str = ""
    device: str = ""

    @property
    def head(self) -> str:
        """The heading as text."""
        device = "" if self.device == "cpu" else self.device
        return " ".join(part for part in (self.name, self.datatype, self.shape, device) if part)

    @property
    def head_html(self) -> Html:
        """The heading as HTML."""
        chip = parts.datatype(self.datatype) if self.datatype else ""
        dims = parts.quiet(self.shape) if self.shape else ""
        device = parts.device(self.device) if self.device not in ("", "cpu") else ""
        return join(parts.name(self.name), chip, dims, device, by=" ")

    def cell(self, record: ResponseRecord) -> str:
        """Return what `record` has under this heading, as text."""
        return "; ".join(" ".join([*self._rest(t), t.preview]) for t in self._of(record))

    def cell_html(self, record: ResponseRecord) -> Html:
        """Return what `record` has under this heading, as HTML."""
        found = [self._tensor(t) for t in self._of(record)]
        return join(*(tag("div", each) for each in found)) if len(found) > 1 else join(*found)

    def _tensor(self, tensor: TensorRecord) -> Html:
        facts = map(parts.quiet, self._rest(tensor))
        return join(*facts, parts.preview(tensor.preview, 2 * parts.LONGEST // 3), by=" ")

    def _of(self, record: ResponseRecord) -> list[TensorRecord]:
        return [t for t in record.tensors if self.name in ("", t.name)]

    def _rest(self, tensor: TensorRecord) -> list[str]:
        """Return the facts of a tensor that its heading does not tell."""
        facts = [] if self.name else [tensor.name]
        facts += [] if self.datatype else [tensor.datatype]
        facts += [] if self.shape else [shape(tensor.shape)]
        return facts if self.device or tensor.device == "cpu" else [*facts, tensor.device]


def columns(records: Sequence[ResponseRecord]) -> list[Column]:
    """Return a column for each tensor name, or one for all of them where there are many."""
    tensors: dict[str, list[TensorRecord]] = {}
    for record in records:
        for tensor in record.tensors:
            tensors.setdefault(tensor.name, []).append(tensor)
    if len(tensors) > _COLUMNS:
        return [Column("")]
    return [_column(name, group) for name, group in tensors.items()]


def _column(name: str, group: list[TensorRecord]) -> Column:
    return Column(
        name,
        _shared({t.datatype for t in group}),
        _shared({shape(t.shape) for t in group}),
        _shared({t.device for t in group}),
    )


def _shared(values: set[str]) -> str:
    return values.pop() if len(values) == 1 else ""


def shown(records: Sequence[ResponseRecord]) -> list[int]:
    """Return the rows to show, in order: all of a short run, of a long one its ends and first errors."""
    if len(records) <= _WHOLE:
        return list(range(len(records)))
    bad = [i for i, record in enumerate(records) if record.error][:_BAD]
    return sorted({*range(_HEAD), *range(len(records) - _TAIL, len(records)), *bad})


def note(record: ResponseRecord, stream: bool) -> str:
    """Return what ends a response's row: its error's first line, or that it is final."""
    if record.error:
        return first_line(record.error.message, 1000) or "no message"
    return "final" if stream and record.final else ""
