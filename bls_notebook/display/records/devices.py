"""The devices of a machine: a row each, with a bar of who uses the memory."""

from __future__ import annotations

from bls_notebook.display import parts
from bls_notebook.display.document import Document, Piece, Row, Table, Words, columns
from bls_notebook.display.html import Html, tag
from bls_notebook.records.devices import DeviceRecord, DeviceTable
from bls_notebook.records.units import size

_BAR = 10  # cells of a bar of text
_NONE = "no GPU here; simulate one with %config BLSNotebook.simulated_gpus = 1"


def devices_document(record: DeviceTable) -> Document:
    """List devices, a row each."""
    heads = columns("device | hardware | used by us:r | by others:r | total:r |")
    table = Table("Devices and their memory", heads, list(map(_row, record.devices)), indent="", most=34)
    none = [Words(parts.quiet(_NONE), gap=True)] if len(record.devices) < 2 else []
    return Document([table, *none], styles="devices")


def _row(record: DeviceRecord) -> Row:
    label = f"{record.name} (simulated)" if record.simulated else record.name
    kept = f" + {size(record.cached)} kept" if record.cached > 0 else ""
    ours = parts.known(record.ours)
    return Row([
        parts.device(label),
        Piece(record.hardware, parts.quiet(record.hardware).html, cls="devices-hardware"),
        Piece(ours.text + kept, Html(ours.html + parts.quiet(kept).html) if kept else ours.html),
        parts.known(record.others),
        parts.known(record.total),
        _bar(record),
    ])  # fmt: skip


def _shares(record: DeviceRecord) -> tuple[float, float, float]:
    """What part of the memory is ours, kept for us, and of others."""
    ours, kept, others = (max(0, n) / record.total for n in (record.ours, record.cached, record.others))
    return min(ours, 1.0), min(kept, 1.0 - min(ours, 1.0)), max(0.0, min(others, 1.0 - ours - kept))


def _bar(record: DeviceRecord) -> Piece:
    if record.total <= 0:
        return parts.NOTHING
    ours, kept, others = _shares(record)
    used = ours + kept + others
    pieces = [
        tag("span", cls=f"devices-{cls}", style=f"width:{share * 100:.2f}%")
        for cls, share in (("ours", ours), ("kept", kept), ("others", others))
        if share > 0
    ]
    title = f"{used:.0%} in use: {ours + kept:.0%} by us, {others:.0%} by others"
    bar = tag("div", *pieces, cls="devices-usage", role="img", title=title, **{"aria-label": title})
    mine, all_used = round((ours + kept) * _BAR), round(used * _BAR)
    return Piece(f"{'█' * mine}{'▒' * (all_used - mine)}{'·' * (_BAR - all_used)} {used:.0%}", bar)
