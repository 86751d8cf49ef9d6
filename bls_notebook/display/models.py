"""One model version: its name and state, how it runs, what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, prose, row, table, tag
from bls_notebook.display.units import count, duration, shape
from bls_notebook.observe.records.repository import ModelRecord, TensorSpecRecord


def model_text(record: ModelRecord, *, width: int = 100) -> str:
    """Describe one model version as plain text.

    Parameters
    ----------
    record : ModelRecord
        The model.
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        Several lines.
    """
    loaded = "" if record.load_seconds is None else f"loaded in {duration(record.load_seconds)}"
    lines = [text.head(record.name, f"version {record.version}", record.state, loaded)]
    if record.reason:
        lines += text.note("reason", record.reason, width)
    lines += text.wrap(text.facts(*_facts(record)), width, "  ")
    batch = record.max_batch_size > 0
    rows = [
        [title if i == 0 else "", spec.name, spec.datatype, shape(spec.dims, batch=batch), _optional(spec)]
        for title, specs in _groups(record)
        for i, spec in enumerate(specs)
    ]
    lines += text.table(rows, width=width)
    for warning in record.warnings:
        lines += text.note("warning", warning, width)
    return "\n".join(lines)


def model_html(record: ModelRecord) -> str:
    """Describe one model version as HTML.

    Parameters
    ----------
    record : ModelRecord
        The model.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    took = parts.time(record.load_seconds)
    loaded = parts.quiet("loaded in ", took) if took else took
    version = parts.quiet(f"version {record.version}")
    top = parts.line(parts.name(record.name), version, parts.state(record), loaded)
    facts = parts.line(parts.dots(*_facts(record)), cls="facts")
    return parts.output(top, _reason(record), facts, _specs(record), parts.warnings(record.warnings))


def _facts(record: ModelRecord) -> Iterator[str]:
    if record.backend:
        yield f"{record.backend} backend"
    kind = record.instance_kind.removeprefix("KIND_").upper()
    yield count(record.instances, "instance") + (f" on {kind}" if kind in {"CPU", "GPU"} else "")
    yield f"batches of up to {record.max_batch_size}" if record.max_batch_size > 0 else "no batching"
    if record.decoupled:
        yield "decoupled: any number of responses"
    if record.source:
        yield f"from {'a cell' if record.source == 'cell' else record.source}"


def _groups(record: ModelRecord) -> list[tuple[str, tuple[TensorSpecRecord, ...]]]:
    both = (("inputs", record.inputs), ("outputs", record.outputs))
    return [(title, specs) for title, specs in both if specs]


def _optional(spec: TensorSpecRecord) -> str:
    return "optional" if spec.optional else ""


def _reason(record: ModelRecord) -> Html:
    if not record.reason:
        return Html()
    return tag("div", parts.quiet("reason"), Html(" "), tag("span", prose(record.reason), cls="wrap"))


def _specs(record: ModelRecord) -> Html:
    groups = _groups(record)
    if not groups:
        return Html()
    batch = record.max_batch_size > 0
    bodies = []
    for title, specs in groups:
        first = tag("th", title, scope="rowgroup", rowspan=len(specs))
        rows = [row([*([first] if i == 0 else []), *_spec(spec, batch)]) for i, spec in enumerate(specs)]
        bodies.append(tag("tbody", *rows))
    heads = [("", ""), ("name", ""), ("datatype", ""), ("shape", ""), ("", "")]
    return table(f"Inputs and outputs of {record.name}", heads, bodies, groups=True)


def _spec(spec: TensorSpecRecord, batch: bool) -> list[Html]:
    cells = [
        tag("td", parts.name(spec.name)),
        tag("td", parts.datatype(spec.datatype)),
        tag("td", tag("code", shape(spec.dims, batch=batch), title=_any(spec))),
    ]
    return [*cells, tag("td", parts.quiet(_optional(spec)))]


def _any(spec: TensorSpecRecord) -> str | None:
    return "-1 means any size" if -1 in spec.dims else None
