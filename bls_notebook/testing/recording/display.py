"""Displays of recordings (requests by hop, values left out) and replays (differences, and where they begin)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from bls_notebook.display import document as doc
from bls_notebook.display import join, parts, tag, text
from bls_notebook.inspection.differences_table import differences_table, in_last_place, inputs_table, lines_beside_table
from bls_notebook.records import count, first_line, grouped, ns, shape, size, spoken, visible
from bls_notebook.testing.records import Recorded, Replay, RequestKept, Resent, TensorKept

_MOST = 40  # requests in the table
_DEEPEST = 8  # hops that are indented
_COLUMNS = doc.columns("#:r | model | inputs | answer | time:t")


@doc.document("seen")
def recording_document(record: Recorded) -> Iterator[doc.Block]:
    requests = record.requests
    outside = [request for request in requests if request.outside]
    to = ", ".join(dict.fromkeys(request.model for request in outside))
    facts = [count(len(outside), "request") + (f" to {to}" if to else "")]
    if len(requests) > len(outside):
        facts.append(f"{count(len(requests) - len(outside), 'request')} of models")
    failed = sum(request.error is not None for request in outside)
    facts += [f"{failed:,} failed"] if failed else []
    facts.append("tensors at every hop" if record.tensors == "all" else "tensors of requests from outside")
    left_out = f", {size(record.cut_bytes)} left out" if record.cut else ""
    facts.append(f"{size(record.kept_bytes)} of values{left_out}")
    yield doc.Line([parts.name(record.name or "recording"), parts.quiet(parts.dots(*facts))], " · ")
    yield doc.Warnings(list(_cut(record)), "cut")
    if requests:
        rows = [_row(request, depth) for request, depth in list(_by_hop(requests))[:_MOST]]
        yield doc.Table("Requests", _COLUMNS, rows, shared=2)
    if len(requests) > _MOST:
        yield doc.Words(parts.quiet(f"{len(requests) - _MOST:,} more; .requests(hops=True) has them"))


def _cut(record: Recorded) -> Iterator[str]:
    if record.cut and not record.name:  # writing a file has warned already
        yield (
            f"{count(record.cut, 'tensor')} ({size(record.cut_bytes)}) left out: over the limit of "
            f"{size(record.limit)} (record(..., limit=BYTES))"
        )
    if record.dropped:
        yield f"{count(record.dropped, 'request')} not recorded: over the limit (record(..., requests=N))"


def _by_hop(requests: Sequence[RequestKept]) -> Iterator[tuple[RequestKept, int]]:
    """Yield each request with its depth, followed by the requests that its execution sent."""
    sent_by = grouped((max(request.parent, 0), request) for request in requests)
    left = [(request, 0) for request in reversed(sent_by.get(0, ()))]
    while left:
        request, depth = left.pop()
        yield request, depth
        left += [(callee, depth + 1) for callee in reversed(sent_by.get(request.id, ()))]


def _row(request: RequestKept, depth: int) -> doc.Row:
    indent = "  " * min(depth, _DEEPEST)
    name = join(text(indent.replace(" ", "\u00a0\u00a0")), parts.name(request.model).html)
    said = [_tensors(request.inputs)]
    said += [f"sequence {request.correlation_id}"] if request.correlation_id else []
    said += [f"parameters {request.parameters}"] if request.parameters != "{}" else []
    took = "" if request.took_ns is None else ns(request.took_ns)
    return doc.Row(
        [
            str(request.id), doc.Piece(indent + visible(request.model), name), parts.values(", ".join(said)),
            parts.values(_answer(request)), took,
        ],
        "" if depth == 0 else "dim",
    )  # fmt: skip


def _answer(request: RequestKept) -> str:
    if not request.responses:
        return "none during the recording"
    if request.error is not None:
        said = request.error.partition(", message: ")[2] or spoken(request.error)  # the exception's own message
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


_WHOLE, _MOST_DIFFERENT = 2, 20  # different requests that are shown in full, and in all
_ROWS = 200
_OTHER_TYPE = re.compile(r": FP\d+ recorded, FP\d+ now")
_EACH = doc.columns("#:r | model | answer | recorded:t | now:t")


@doc.document("seen findings session")
def replay_document(record: Replay) -> Iterator[doc.Block]:
    yield doc.Words(_verdict(record), "session-verdict", hang="  ")
    if record.only:
        around = ", ".join(record.stubbed)
        rest = f"; answered from the recording: {around}" if around else ", which had no callees"
        yield doc.Words(parts.quiet(f"only {record.only} ran{rest}"))
    yield doc.Warnings(record.skipped, "left out")
    yield doc.Warnings(list(_beginnings(record)), "where")
    yield doc.Warnings(
        [f"request {each.id}: {'; '.join(each.calls)}" for each in record.requests if each.calls][:20], "calls changed"
    )
    yield doc.Warnings(list(_elsewhere(record)), "hint")
    if record.requests:
        yield doc.Tiles(list(_figures(record)))
    for each in record.unequal[:_WHOLE]:
        yield from _unequal(each)
    if len(record.unequal) > _WHOLE:
        rows = [
            doc.Row([f"{each.id}", parts.name(each.model), parts.values("; ".join(each.what))])
            for each in record.unequal[_WHOLE:_MOST_DIFFERENT]
        ]
        more = f"{len(record.unequal) - _WHOLE:,} more that differ"
        yield doc.Words(parts.quiet(more), gap=True)
        yield doc.Table(more, doc.columns("#:r | model | differs"), rows)
    if record.requests:
        rows = [_replay_row(each) for each in record.requests[:_ROWS]]
        title = count(len(record.requests), "request") + ", one by one"
        yield doc.Forms([], [doc.Fold(title, [doc.Table(title, _EACH, rows)])])


def _verdict(record: Replay) -> doc.Piece:
    name = record.recording or "recording"
    number = count(len(record.requests), "request")
    to = f" sent to {record.to}" if record.to else ""
    if record.equal:
        how = parts.equal_how(record.tolerance, record.ulps)
        mark, cls, words = "✓", "findings-good", f"{number}{to} answered as recorded, {how}"
    else:
        few = f"{len(record.unequal):,} of {number}"
        mark, cls, words = "✗", "findings-tally-error", f"{few}{to} answered differently"
        if nearly := in_last_place((each.what, each.tensors) for each in record.unequal):
            mark, cls, words = "≈", "findings-tally-warning", words + nearly
    if record.place != "here":
        words += f" · {record.place}"
    return doc.Piece(f"{mark} {name}: {words}", join(tag("span", mark, cls=cls), tag("code", name), words, by=" "))


def _beginnings(record: Replay) -> Iterator[str]:
    """Yield each place where differences begin, with its requests."""
    number = r",? ?(as )?(than )?(in )?request \d+"
    places = ((re.sub(number, "", request.begins), str(request.id)) for request in record.unequal if request.begins)
    for words, ids in grouped(places).items():
        yield f"{words} (request{'s' if len(ids) > 1 else ''} {', '.join(ids[:6])}{', …' if len(ids) > 6 else ''})"


def _elsewhere(record: Replay) -> Iterator[str]:
    """Yield likely causes of differences on a server, which runs the same code in another environment."""
    if record.place == "here":
        return
    differences = [line for request in record.unequal for line in request.what]
    if any(map(_OTHER_TYPE.search, differences)):
        yield (
            "another data type from the same code: servers often have NumPy 1, where a float32 scalar and a "
            "Python number make a float64 (since NumPy 2 a float32); to get the same on both, set the data type "
            "of outputs, as in np.asarray(y, np.float32)"
        )
    if any("'NoneType' object has no attribute" in line for line in differences):
        yield (
            "None instead of a tensor: often because a callee failed on the server and its response has no outputs; "
            "check response.has_error() first to see its error"
        )


def _figures(record: Replay) -> Iterator[tuple[str, str, str]]:
    alike = len(record.requests) - len(record.unequal)
    yield "as recorded", f"{alike:,}", f"of {len(record.requests):,}"
    errors = sum(bool(each.error) for each in record.requests)
    if errors:
        yield "errors", f"{errors:,}", "the same as recorded"
    then = [each.then_ns for each in record.requests if each.then_ns]
    if then:
        yield "median then", ns(median(then)), "latency when it was recorded"
    yield "median now", ns(median(request.now_ns for request in record.requests)), "latency now"


def _unequal(request: Resent) -> Iterator[doc.Block]:
    yield doc.Line([parts.name(f"request {request.id}"), parts.quiet(f"to {request.model}")], mark="≠")
    lines = lines_beside_table(request.what, request.tensors)
    yield doc.Warnings([*lines, *([request.begins] if request.begins else [])], "differs")
    if request.tensors:
        yield differences_table(request.tensors, ("recorded", "now"))
    if request.inputs:
        yield inputs_table("Inputs", request.inputs)


def _replay_row(request: Resent) -> doc.Row:
    answer = "differs" if request.what else "equal, an error" if request.error else "equal"
    then = ns(request.then_ns) if request.then_ns else ""
    return doc.Row([str(request.id), parts.name(request.model), answer, then, ns(request.now_ns)])
