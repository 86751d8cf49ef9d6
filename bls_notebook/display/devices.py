"""The devices of a machine: a row each, with a bar of who uses the memory."""

from __future__ import annotations

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, row, table, tag
from bls_notebook.display.units import size
from bls_notebook.observe.records.repository import DeviceRecord, DeviceTable

_HEADS = ["device", "hardware", "used by us", "by others", "total"]
_BAR = 10  # cells of a bar of text
_NONE = "no GPU here; simulate one with %config BLSNotebook.simulated_gpus = 1"


def devices_text(record: DeviceTable, *, width: int = 100) -> str:
    """List devices as plain text.

    Parameters
    ----------
    record : DeviceTable
        What to show.
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        A heading and a row for each device.
    """
    rows = [
        [_label(d), d.hardware, _ours(d), _known(d.others), _known(d.total), _text_bar(d)]
        for d in record.devices
    ]
    lines = text.table(rows, heads=[*_HEADS, ""], right="  rrr", width=width, indent="", most=34)
    if len(record.devices) < 2:
        lines += ["", *text.wrap(_NONE, width)]
    return "\n".join(lines)


def devices_html(record: DeviceTable) -> str:
    """List devices as HTML.

    Parameters
    ----------
    record : DeviceTable
        What to show.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    heads = [(head, "num" if head in _HEADS[2:] else "") for head in _HEADS]
    body = table("Devices and their memory", [*heads, ("", "")], map(_row, record.devices))
    note = parts.line(parts.quiet(_NONE)) if len(record.devices) < 2 else ""
    return parts.output(body, note, styles="devices")


def _row(record: DeviceRecord) -> Html:
    cached = parts.quiet(f" + {size(record.cached)} kept") if record.cached > 0 else ""
    return row([
        tag("th", parts.device(_label(record)), scope="row"),
        tag("td", parts.quiet(record.hardware), cls="devices-hardware"),
        tag("td", _bytes(record.ours), cached, cls="num"),
        tag("td", _bytes(record.others), cls="num"),
        tag("td", _bytes(record.total), cls="num"),
        tag("td", _bar(record)),
    ])  # fmt: skip


def _label(record: DeviceRecord) -> str:
    return f"{record.name} (simulated)" if record.simulated else record.name


def _known(value: int) -> str:
    return "" if value < 0 else size(value)


def _bytes(value: int) -> Html:
    return parts.nbytes(value) if value >= 0 else parts.quiet("not known")


def _ours(record: DeviceRecord) -> str:
    kept = f" + {size(record.cached)} kept" if record.cached > 0 else ""
    return _known(record.ours) + kept


def _shares(record: DeviceRecord) -> tuple[float, float, float]:
    """What part of the memory is ours, kept for us, and of others; zeros where it is not known."""
    if record.total <= 0:
        return 0.0, 0.0, 0.0
    ours, kept, others = (max(0, n) / record.total for n in (record.ours, record.cached, record.others))
    return min(ours, 1.0), min(kept, 1.0 - min(ours, 1.0)), max(0.0, min(others, 1.0 - ours - kept))


def _bar(record: DeviceRecord) -> Html:
    if record.total <= 0:
        return Html()
    ours, kept, others = _shares(record)
    used = ours + kept + others
    pieces = [
        tag("span", cls=f"devices-{cls}", style=f"width:{share * 100:.2f}%")
        for cls, share in (("ours", ours), ("kept", kept), ("others", others))
        if share > 0
    ]
    title = f"{used:.0%} in use: {ours + kept:.0%} by us, {others:.0%} by others"
    return tag("div", *pieces, cls="devices-usage", role="img", title=title, **{"aria-label": title})


def _text_bar(record: DeviceRecord) -> str:
    if record.total <= 0:
        return ""
    ours, kept, others = _shares(record)
    mine, all_used = round((ours + kept) * _BAR), round((ours + kept + others) * _BAR)
    return f"{'█' * mine}{'▒' * (all_used - mine)}{'·' * (_BAR - all_used)} {ours + kept + others:.0%}"
