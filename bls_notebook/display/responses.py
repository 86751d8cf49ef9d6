"""One response: a row for each tensor."""

from __future__ import annotations

from bls_notebook.display import parts, text
from bls_notebook.display.errors import error_block, error_lines
from bls_notebook.display.html import Html, row, table, tag
from bls_notebook.display.units import count, duration, shape, size
from bls_notebook.observe.records.repository import ResponseRecord, TensorRecord

_HEADS = ["name", "datatype", "shape", "device", "size", "values"]


def response_text(record: ResponseRecord, *, width: int = 100) -> str:
    """Describe one response as plain text.

    Parameters
    ----------
    record : ResponseRecord
        The response.
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        Several lines.
    """
    took = "" if record.seconds is None else duration(record.seconds)
    mark = "✗" if record.error else "✓"
    lines = [f"{mark} {text.head(record.model, _version(record), _request(record), took)}"]
    if record.error:
        lines += [f"  {line}".rstrip() for line in error_lines(record.error, width - 2)]
    if record.tensors:
        rows = [
            [t.name, t.datatype, shape(t.shape), t.device, size(t.bytes), t.preview] for t in record.tensors
        ]
        lines += text.table(rows, heads=_HEADS, right="    r", width=width)
    elif not record.error:
        lines.append(f"  {_nothing(record)}")
    if record.inputs:
        given = ", ".join(f"{t.name} {t.datatype} {shape(t.shape)}" for t in record.inputs)
        lines += text.note("inputs", given, width)
    if record.parameters:
        lines += text.note("parameters", _parameters(record), width)
    for warning in record.warnings:
        lines += text.note("warning", warning, width)
    return "\n".join(lines)


def response_html(record: ResponseRecord) -> str:
    """Describe one response as HTML.

    Parameters
    ----------
    record : ResponseRecord
        The response.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    facts = parts.dots(_version(record), _request(record), parts.time(record.seconds))
    top = parts.line(parts.name(record.model), parts.quiet(facts))
    main = error_block(record.error) if record.error else Html()
    if record.tensors:
        main = Html(main + _tensors(f"Response of {record.model}", record.tensors))
    elif not record.error:
        main = parts.line(parts.quiet(_nothing(record)))
    styles = "error" if record.error else ""
    return parts.output(
        top, main, _given(record), _parameter_line(record), parts.warnings(record.warnings), styles=styles
    )


def _tensors(caption: str, tensors: tuple[TensorRecord, ...]) -> Html:
    heads = [(name, "num" if name == "size" else "") for name in _HEADS]
    return table(caption, heads, (_tensor(tensor) for tensor in tensors))


def _tensor(tensor: TensorRecord) -> Html:
    return row([
        tag("th", parts.name(tensor.name), scope="row"),
        tag("td", parts.datatype(tensor.datatype)),
        tag("td", tag("code", shape(tensor.shape))),
        tag("td", parts.device(tensor.device)),
        tag("td", parts.nbytes(tensor.bytes), cls="num"),
        tag("td", parts.preview(tensor.preview)),
    ])  # fmt: skip


def _given(record: ResponseRecord) -> Html:
    if not record.inputs:
        return Html()
    title = f"{count(len(record.inputs), 'input')}: {', '.join(t.name for t in record.inputs)}"
    return tag("details", tag("summary", title), _tensors(f"Inputs of {record.model}", record.inputs))


def _parameter_line(record: ResponseRecord) -> Html:
    if not record.parameters:
        return Html()
    return parts.line(parts.quiet("parameters"), tag("code", _parameters(record)))


def _parameters(record: ResponseRecord) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in record.parameters)


def _version(record: ResponseRecord) -> str:
    return f"version {record.version}" if record.version > 0 else ""


def _request(record: ResponseRecord) -> str:
    return f"request {record.request_id}" if record.request_id else ""


def _nothing(record: ResponseRecord) -> str:
    return "no tensors; only the final flag" if record.final else "no tensors"
