"""A replay: whether the answers were as recorded, what differs and where, and how long they took."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import join, tag
from bls_notebook.display.records.differences import differences_table, inputs_table, without_told
from bls_notebook.display.units import count, ns
from bls_notebook.testing.records.replayed import Replay, Resent

_WHOLE, _MOST = 2, 20  # requests that differ and are told whole, or in a line
_ROWS = 200
_OTHER_TYPE = re.compile(r": FP\d+ recorded, FP\d+ now")
_EACH = doc.columns("#:r | model | answer | recorded:t | now:t")


def replay_document(record: Replay) -> doc.Document:
    """Describe what came of sending recorded requests again."""
    return doc.Document(list(_blocks(record)), styles="seen findings session")


def _blocks(record: Replay) -> Iterator[doc.Block]:
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
            for each in record.unequal[_WHOLE:_MOST]
        ]
        more = f"{len(record.unequal) - _WHOLE:,} more that differ"
        yield doc.Words(parts.quiet(more), gap=True)
        yield doc.Table(more, doc.columns("#:r | model | differs"), rows)
    if record.requests:
        rows = [_row(each) for each in record.requests[:_ROWS]]
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


def _row(each: Resent) -> doc.Row:
    answer = "differs" if each.what else "equal, an error" if each.error else "equal"
    then = ns(each.then_ns) if each.then_ns else ""
    return doc.Row([str(each.id), parts.name(each.model), answer, then, ns(each.now_ns)])
