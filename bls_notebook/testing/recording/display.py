"""Show recordings (what was sent, what that led to, what was cut) and replays (which answers differ, and
where).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import join, tag, text
from bls_notebook.display.records.differences import differences_table, inputs_table, without_told
from bls_notebook.records.units import count, ns, shape, size
from bls_notebook.records.visible_text import first_line, spoken, visible
from bls_notebook.testing.records import Recorded, Replay, RequestKept, Resent, TensorKept

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
    facts.append(_of_tensors(record))
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


_WHOLE, _MOST_DIFFERENT = 2, 20  # requests that differ and are told whole, or in a line
_ROWS = 200
_OTHER_TYPE = re.compile(r": FP\d+ recorded, FP\d+ now")
_EACH = doc.columns("#:r | model | answer | recorded:t | now:t")


def replay_document(record: Replay) -> doc.Document:
    """Describe what came of sending recorded requests again."""
    return doc.Document(list(_replay_blocks(record)), styles="seen findings session")


def _replay_blocks(record: Replay) -> Iterator[doc.Block]:
    yield doc.Words(_verdict(record), "session-verdict", hang="  ")
    if record.only:
        around = ", ".join(record.stubbed)
        rest = f"; from the recording: {around}" if around else ", which called nothing"
        yield doc.Words(parts.quiet(f"{record.only} alone{rest}"))
    yield doc.Warnings(record.skipped, "left out")
    yield doc.Warnings(list(_beginnings(record)), "where")
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
    what = record.recording or "recording"
    number = count(len(record.requests), "request")
    to = f" sent to {record.to}" if record.to else ""
    if record.equal:
        how = parts.equal_how(record.tolerance, record.ulps)
        mark, cls, words = "✓", "findings-good", f"{number}{to} answered as recorded, {how}"
    else:
        few = f"{len(record.unequal):,} of {number}"
        mark, cls, words = "✗", "findings-tally-error", f"{few}{to} answered differently"
    if record.place != "here":
        words += f" · {record.place}"
    html = join(tag("span", mark, cls=cls), tag("code", what), words, by=" ")
    return doc.Piece(f"{mark} {what}: {words}", html)


def _beginnings(record: Replay) -> Iterator[str]:
    """Where the differences begin, each place once."""
    found: dict[str, list[str]] = {}
    for each in record.unequal:
        if each.begins:
            words = re.sub(r",? ?(as )?(than )?(in )?request \d+", "", each.begins)
            found.setdefault(words, []).append(str(each.id))
    for words, ids in found.items():
        yield f"{words} (request{'s' * (len(ids) > 1)} {', '.join(ids[:6])}{', …' if len(ids) > 6 else ''})"


def _elsewhere(record: Replay) -> Iterator[str]:
    """What differences often come from where a server ran the same code, in its own environment."""
    if record.place == "here":
        return
    told = [what for each in record.unequal for what in each.what]
    if any(map(_OTHER_TYPE.search, told)):
        yield (
            "another data type, from the same code: servers often have NumPy 1, where a float32 scalar and a "
            "Python number make a float64 (since NumPy 2 a float32); name the data type of what is returned, "
            "as in np.asarray(y, np.float32), and both answer the same"
        )
    if any("'NoneType' object has no attribute" in what for what in told):
        yield (
            "None instead of a tensor: often a model that it calls has failed there, and has no outputs "
            "then; ask response.has_error() before them, and the answer says why"
        )


def _figures(record: Replay) -> Iterator[tuple[str, str, str]]:
    alike = len(record.requests) - len(record.unequal)
    yield "as recorded", f"{alike:,}", f"of {len(record.requests):,}"
    errors = sum(bool(each.error) for each in record.requests)
    if errors:
        yield "errors", f"{errors:,}", "the same as recorded"
    then = [each.then_ns for each in record.requests if each.then_ns]
    if then:
        yield "median then", ns(median(then)), "how long an answer took when it was recorded"
    yield "median now", ns(median(each.now_ns for each in record.requests)), "how long an answer took now"


def _unequal(each: Resent) -> Iterator[doc.Block]:
    yield doc.Line([parts.name(f"request {each.id}"), parts.quiet(f"to {each.model}")], mark="≠")
    told = without_told(each.what, each.tensors)
    yield doc.Warnings([*told, *[each.begins] * bool(each.begins)], "differs")
    if each.tensors:
        yield differences_table(each.tensors, ("recorded", "now"))
    if each.inputs:
        yield inputs_table("Inputs", each.inputs)


def _replay_row(each: Resent) -> doc.Row:
    answer = "differs" if each.what else "equal, an error" if each.error else "equal"
    then = ns(each.then_ns) if each.then_ns else ""
    return doc.Row([str(each.id), parts.name(each.model), answer, then, ns(each.now_ns)])
