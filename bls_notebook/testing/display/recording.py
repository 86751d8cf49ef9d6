"""A recording: what was sent from outside, what that led to, how large it is, and what was cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import join, text
from bls_notebook.display.units import count, ns, shape, size
from bls_notebook.records.recorded import RequestKept, TensorKept
from bls_notebook.records.visible_text import first_line, spoken, visible
from bls_notebook.testing.records.recorded import Recorded

_MOST = 40  # requests that are shown
_DEEPEST = 8  # hops that are indented
_COLUMNS = doc.columns("#:r | model | inputs | answer | time:t")


def recording_document(record: Recorded) -> doc.Document:
    """Describe what was recorded."""
    return doc.Document(list(_blocks(record)), styles="seen")


def _blocks(record: Recorded) -> Iterator[doc.Block]:
    requests = record.requests
    outside = [request for request in requests if request.outside]
    to = ", ".join(dict.fromkeys(request.model for request in outside))
    facts = [count(len(outside), "request") + (f" to {to}" if to else "")]
    if len(requests) > len(outside):
        facts.append(f"{count(len(requests) - len(outside), 'request')} of models")
    failed = sum(request.error is not None for request in outside)
    facts += [f"{failed:,} failed"] * bool(failed)
    facts.append(record.source or _of_tensors(record))
    left_out = f", {size(record.cut_bytes)} left out" if record.cut else ""
    facts.append(f"{size(record.kept_bytes)} of values{left_out}")
    yield doc.Line([parts.name(record.name or "recording"), parts.quiet(parts.dots(*facts))], " · ")
    yield doc.Warnings(list(_cut(record)), "cut")
    if requests:
        rows = [_row(request, depth) for request, depth in list(_by_hop(requests))[:_MOST]]
        yield doc.Table("Requests", _COLUMNS, rows, shared=2)
    if len(requests) > _MOST:
        yield doc.Words(parts.quiet(f"{len(requests) - _MOST:,} more; .requests(hops=True) has them"))


def _of_tensors(record: Recorded) -> str:
    every = record.tensors == "all"
    return "tensors at every hop" if every else "tensors of requests from outside"


def _cut(record: Recorded) -> Iterator[str]:
    if record.cut and not record.name:  # what was written to a file has warned of it
        yield (
            f"{count(record.cut, 'tensor')} ({size(record.cut_bytes)}) left out: over the limit of "
            f"{size(record.limit)} (record(..., limit=BYTES))"
        )
    if record.dropped:
        yield f"{count(record.dropped, 'request')} not recorded: there was no room (record(..., requests=N))"


def _by_hop(requests: Sequence[RequestKept]) -> Iterator[tuple[RequestKept, int]]:
    """Requests, each followed by those that it led to, and how deep they are."""
    led_to: dict[int, list[RequestKept]] = {}
    for request in requests:
        led_to.setdefault(max(request.parent, 0), []).append(request)
    left = [(request, 0) for request in reversed(led_to.get(0, ()))]
    while left:
        request, depth = left.pop()
        yield request, depth
        left += [(each, depth + 1) for each in reversed(led_to.get(request.id, ()))]


def _row(request: RequestKept, depth: int) -> doc.Row:
    indent = "  " * min(depth, _DEEPEST)
    name = join(text(indent.replace(" ", "\u00a0\u00a0")), parts.name(request.model).html)
    said = [_tensors(request.inputs), *_carried(request)]
    took = "" if request.took_ns is None else ns(request.took_ns)
    return doc.Row(
        [
            str(request.id), doc.Piece(indent + visible(request.model), name), parts.values(", ".join(said)),
            parts.values(_answer(request)), took,
        ],
        "" if depth == 0 else "dim",
    )  # fmt: skip


def _carried(request: RequestKept) -> Iterator[str]:
    if request.correlation_id:
        yield f"sequence {request.correlation_id}"
    if request.parameters != "{}":
        yield f"parameters {request.parameters}"


def _answer(request: RequestKept) -> str:
    if not request.responses:
        return "none while it was recorded"
    if request.error is not None:
        said = request.error.partition(", message: ")[2] or spoken(request.error)  # of what it raised
        return f"✗ {first_line(said)}"
    with_outputs = [response for response in request.responses if response.tensors]
    if len(with_outputs) > 1:
        return f"{count(len(with_outputs), 'response')}, first {_tensors(with_outputs[0].tensors)}"
    return _tensors(with_outputs[0].tensors) if with_outputs else "no outputs"


def _tensors(tensors: Iterable[TensorKept]) -> str:
    return ", ".join(
        f"{t.name} {t.datatype}{shape(t.shape)}{' (cut)' if t.cut else ' ' + t.preview if t.preview else ''}"
        for t in tensors
    )
