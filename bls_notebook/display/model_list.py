"""The models of a repository, a row for each version."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, prose, row, table, tag
from bls_notebook.display.units import count, duration
from bls_notebook.observe.records.repository import ModelRecord, TensorSpecRecord

_EMPTY = "no models: define one with %%tritonmodel NAME, or load one with %tritonrepo load NAME"
_HEADS = ["model", "version", "state", "load time", "source", "inputs → outputs"]
_SHORT = 40  # characters of a reason that still stands in the last column
_NAMES = 3  # tensor names a side of a signature


def models_text(records: Sequence[ModelRecord], *, width: int = 100) -> str:
    """List models as plain text.

    Parameters
    ----------
    records : sequence of ModelRecord
        The rows, in the order in which they are shown.
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        A heading and a row for each record; reasons are wrapped, never cut.
    """
    if not records:
        return _EMPTY
    rows = []
    for record in records:
        loaded = "" if record.load_seconds is None else duration(record.load_seconds)
        start = [record.name, str(record.version), record.state, loaded, record.source]
        signature = _signature(record)
        beside = not signature and len(record.reason) <= _SHORT
        rows.append([*start, record.reason if beside else signature])
        if record.reason and not beside:
            rows.append(["", "", record.reason])
    lines = text.table(rows, heads=_HEADS, right=" r t", width=width, indent="", last="wrap", most=28)
    return "\n".join([*lines, "", _summary(records)])


def models_html(records: Sequence[ModelRecord]) -> str:
    """List models as HTML.

    Parameters
    ----------
    records : sequence of ModelRecord
        The rows, in the order in which they are shown.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    if not records:
        return parts.output(parts.line(parts.quiet(_EMPTY)))
    heads = [(head, "num" if head in ("version", "load time") else "") for head in _HEADS]
    body = table("Models in the repository", heads, map(_row, records))
    return parts.output(body, parts.line(parts.quiet(_summary(records))))


def _row(record: ModelRecord) -> Html:
    signature = _signature(record)
    reason = tag("div", prose(record.reason), cls="dim") if record.reason else ""
    return row([
        tag("th", parts.name(record.name), scope="row"),
        tag("td", str(record.version), cls="num"),
        tag("td", parts.state(record)),
        tag("td", parts.time(record.load_seconds), cls="num"),
        tag("td", parts.quiet(record.source)),
        tag("td", tag("code", signature) if signature else "", reason, cls="wrap"),
    ])  # fmt: skip


def _signature(record: ModelRecord) -> str:
    if not record.inputs and not record.outputs:
        return ""
    return f"{_names(record.inputs)} → {_names(record.outputs)}"


def _names(specs: tuple[TensorSpecRecord, ...]) -> str:
    more = f", +{len(specs) - _NAMES}" if len(specs) > _NAMES else ""
    return ", ".join(spec.name for spec in specs[:_NAMES]) + more or "nothing"


def _summary(records: Sequence[ModelRecord]) -> str:
    ready = sum(record.state == "READY" for record in records)
    models = len({record.name for record in records})
    versions = f" in {count(len(records), 'version')}" if models < len(records) else ""
    return f"{count(models, 'model')}{versions}, {ready:,} ready"
