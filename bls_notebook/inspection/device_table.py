"""Display of devices: one row each, with a bar of memory use."""

from __future__ import annotations

from bls_notebook.display import Html, parts, tag
from bls_notebook.display.document import Document, Piece, Row, Table, Words, columns
from bls_notebook.records import DeviceRecord, DeviceTable, size

_BAR = 10  # cells of a bar of text
_NONE = "no GPU on this machine; simulate one with %config BLSNotebook.simulated_gpus = 1"


def devices_document(record: DeviceTable) -> Document:
    heads = columns("device | hardware | this process:r | others:r | total:r |")
    table = Table("Devices and their memory", heads, list(map(_row, record.devices)), indent="", most=34)
    none = [Words(parts.quiet(_NONE), gap=True)] if len(record.devices) < 2 else []
    return Document([table, *none], styles="devices")


def _row(record: DeviceRecord) -> Row:
    label = f"{record.name} (simulated)" if record.simulated else record.name
    cached = f" + {size(record.cached)} cached" if record.cached > 0 else ""
    ours = parts.known(record.ours)
    return Row([
        parts.device(label),
        Piece(record.hardware, parts.quiet(record.hardware).html, cls="devices-hardware"),
        Piece(ours.text + cached, Html(ours.html + parts.quiet(cached).html) if cached else ours.html),
        parts.known(record.others),
        parts.known(record.total),
        _bar(record),
    ])  # fmt: skip


def _shares(record: DeviceRecord) -> tuple[float, float, float]:
    """Return the fractions of the memory: used by this process, cached in its pool, used by others."""
    ours, cached, others = (max(0, n) / record.total for n in (record.ours, record.cached, record.others))
    return min(ours, 1.0), min(cached, 1.0 - min(ours, 1.0)), max(0.0, min(others, 1.0 - ours - cached))


def _bar(record: DeviceRecord) -> Piece:
    if record.total <= 0:
        return parts.NOTHING
    ours, cached, others = _shares(record)
    used = ours + cached + others
    pieces = [
        tag("span", cls=f"devices-{cls}", style=f"width:{share * 100:.2f}%")
        for cls, share in (("ours", ours), ("kept", cached), ("others", others))
        if share > 0
    ]
    title = f"{used:.0%} in use: {ours + cached:.0%} by this process, {others:.0%} by others"
    bar = tag("div", *pieces, cls="devices-usage", role="img", title=title, **{"aria-label": title})
    mine, all_used = round((ours + cached) * _BAR), round(used * _BAR)
    return Piece(f"{'█' * mine}{'▒' * (all_used - mine)}{'·' * (_BAR - all_used)} {used:.0%}", bar)
