"""Save sessions to files and read them: JSON, and Chrome's trace format for ui.perfetto.dev and
chrome://tracing.

The end of the file name selects the format. A JSON file is one object: ``format``, the version of the
``schema``, and the fields of `SessionData`; fields that have their default value are left out. A trace
viewer draws a slice inside the one before it on the same track, so the slices of a track either nest or do
not touch. An instance may serve several requests at once and a queue holds many, so they get several tracks
of the same name.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bls_notebook.records.base import plain
from bls_notebook.records.errors import BLSError
from bls_notebook.records.intervals import Interval, Rows
from bls_notebook.records.record_file import ending_of, read_json, told, write_file
from bls_notebook.records.visible_text import encodable

from .analysis.span_tree import SpanTree, lock_waits
from .records.spans import SCHEMA, SessionData, Span


@dataclass(frozen=True, slots=True)
class Slice:
    """An interval on a track; ``arrives`` are the requests whose arrows end at its begin."""

    begin: int
    end: int
    name: str
    kind: str
    spans: tuple[Span, ...]
    arrives: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """A moment on a track; ``span`` is its request and ``sends`` the request whose arrow begins here, 0 for none."""

    at: int
    name: str
    kind: str
    span: int = 0
    sends: int = 0


@dataclass(frozen=True, slots=True)
class Track:
    """Slices that nest or do not touch, and moments; both in the order of time."""

    group: str
    name: str
    slices: tuple[Slice, ...]
    points: tuple[Point, ...] = ()


def tracks(session: SessionData) -> list[Track]:
    """Return the tracks of a session: the notebook's, then for each model its instances and its queue."""
    tree = SpanTree.of(session)
    served: dict[tuple[str, str], list[list[Slice]]] = {}
    waiting: dict[str, list[list[Slice]]] = {}
    gil_waits = lock_waits(session)
    turns = {wait.span: wait.pieces for wait in gil_waits if not wait.queued}
    waits = {wait.span: wait.pieces for wait in gil_waits if wait.queued}
    for execution, members in tree.members.items():
        first = members[0]
        model = _model(first)
        if first.ran:
            pieces = _execution(members, turns.get(execution, ()))
            served.setdefault((model, first.instance), []).append(pieces)
        for span in members:
            before = _before(span, first.ran and span.id == execution, waits.get(span.id, ()))
            if before:
                waiting.setdefault(model, []).append(before)
    sent = _points(session, tree)
    mine = sorted(sent.pop(0, ()), key=lambda point: point.at)
    out = [Track("notebook", "notebook", (), tuple(mine))]
    places = sorted({*((m, i) for m, i in served), *((m, "") for m in waiting)})
    for model, instance in places:
        if instance:
            out += _laid_out(model, instance, served[model, instance], sent)
        else:
            out += _laid_out(model, f"queue of {model}", waiting[model], {})
    return out


def _model(span: Span) -> str:
    return span.model if span.version == 1 else f"{span.model}/{span.version}"


def _execution(members: list[Span], turns: Sequence[Interval]) -> list[Slice]:
    """Return one `execute` as slices: the whole, its phases, and its turns with the GIL."""
    first = members[0]
    begin, end = first.started, max(s.ended for s in members)
    name = first.model if len(members) == 1 else f"{first.model} (batch of {len(members)})"
    arrives = tuple(s.id for s in members)
    out = [Slice(begin, end, name, "execute", tuple(members), arrives)]
    inferred = max(s.inferred for s in members)
    if begin < inferred < end:
        out.append(Slice(begin, inferred, "compute_infer", "compute_infer", tuple(members)))
        out.append(Slice(inferred, end, "compute_output", "compute_output", tuple(members)))
    for piece, last in turns:
        if piece < min(last, inferred):
            held = min(last, inferred)
            out.append(Slice(piece, held, "turns with the GIL", "lock", tuple(members)))
    return sorted(out, key=lambda each: (each.begin, -each.end))


def _before(span: Span, counted: bool, lock: Sequence[Interval]) -> list[Slice]:
    """Return the slices before `execute`: passing inputs, then waiting."""
    end = span.started if span.ran else span.ended
    if span.ran and span.queue <= 0 and counted:
        return []  # the request ran at once, so there was no wait to show
    arrives = () if span.ran else (span.id,)
    out = [Slice(span.sent, end, _model(span), "request" if span.ran else span.state, (span,), arrives)]
    if span.sent < span.queued <= end:
        out.append(Slice(span.sent, span.queued, "compute_input", "compute_input", (span,)))
    if span.queued < span.started:
        out.append(Slice(span.queued, span.started, "queue", "queue", (span,)))
    out += [Slice(*piece, "waits for the GIL", "lock", (span,)) for piece in lock]
    return out


def _points(session: SessionData, tree: SpanTree) -> dict[int, list[Point]]:
    """Return the moments at which each execution sent requests and gave responses; 0 is the notebook."""
    out: dict[int, list[Point]] = {}
    for span in session.spans:
        sender = tree.execution(span.parent)
        if sender and not tree.members[sender][0].ran:
            sender = 0
        out.setdefault(sender, []).append(Point(span.sent, f"call {_model(span)}", "call", span.id, span.id))
        for mark in span.marks:
            giver = tree.execution(span.id)
            out.setdefault(giver, []).append(Point(mark.ns, mark.kind, mark.kind, span.id))
    for named in session.marks:
        execution = tree.execution(named.span)
        out.setdefault(execution, []).append(Point(named.ns, named.name, "mark", named.span))
    return out


def _laid_out(group: str, name: str, stacks: Iterable[list[Slice]], points: dict[int, list[Point]]) -> list[Track]:
    rows, lanes = Rows(), list[list[list[Slice]]]()
    for stack in sorted(stacks, key=lambda s: (s[0].begin, s[0].end)):
        at = rows.take(stack[0].begin, stack[0].end)
        if at == len(lanes):
            lanes.append([])
        lanes[at].append(stack)
    out = []
    for lane in lanes:
        slices = [s for stack in lane for s in sorted(stack, key=lambda s: (s.begin, -s.end))]
        moments = [p for stack in lane for p in points.get(stack[0].spans[0].id, ())]
        out.append(Track(group, name, tuple(slices), tuple(sorted(moments, key=lambda p: p.at))))
    return out


def request_facts(spans: Sequence[Span]) -> dict[str, str | int]:
    """Return the facts that viewers show about a slice besides its name and times; sizes of a batch are summed."""
    first = spans[0]
    out: dict[str, str | int] = {
        "request": first.id if len(spans) == 1 else ", ".join(str(s.id) for s in spans),
        "parent": first.parent,
        "kind": first.kind,
        "state": first.state,
        "version": first.version,
        "device": first.device,
        "rows": sum(s.rows for s in spans),
        "bytes_in": sum(s.bytes_in for s in spans),
        "bytes_out": sum(s.bytes_out for s in spans),
        "thread": first.thread,
    }
    if first.request_id:
        out["request_id"] = encodable(first.request_id)
    if any(s.crossings for s in spans):
        out["crossings"] = sum(s.crossings for s in spans)
    if first.device_ns >= 0:
        out["device_ns"] = first.device_ns
    if first.cached:
        out["cached"] = "yes"
    error = next((s.error for s in spans if s.error), "")
    if error:
        out["error"] = encodable(error)
    return out


def chrome_trace(session: SessionData) -> str:
    """Return a session as JSON in Chrome's trace format; a process is a model, a thread an instance or a queue.

    Times are microseconds since the session began, as the format requires.
    """
    events: list[dict[str, Any]] = []
    processes: dict[str, int] = {}
    for thread, track in enumerate(tracks(session), 1):
        process = processes.setdefault(track.group, len(processes) + 1)
        here = {"pid": process, "tid": thread}
        events.append({"ph": "M", "name": "thread_name", "args": {"name": track.name}, **here})
        events.append({"ph": "M", "name": "thread_sort_index", "args": {"sort_index": thread}, **here})
        for piece in track.slices:
            begin = piece.begin / 1e3
            length = (piece.end - piece.begin) / 1e3
            named = {"name": piece.name, "cat": piece.kind, **here}
            args = request_facts(piece.spans) if piece.name != piece.kind else {}
            events.append({"ph": "X", "ts": begin, "dur": length, "args": args, **named})
            for span in piece.arrives:
                flow = {"name": "request", "cat": "request", "id": span, **here}
                events.append({"ph": "f", "bp": "e", "ts": begin, **flow})
        for point in track.points:
            at = point.at / 1e3
            named = {"name": point.name, "cat": point.kind, **here}
            events.append(
                {"ph": "i", "s": "t", "ts": at, "args": {"request": point.span} if point.span else {}, **named}
            )
            if point.sends:
                flow = {"name": "request", "cat": "request", "id": point.sends, **here}
                events.append({"ph": "s", "ts": at, **flow})
    for name, process in processes.items():
        events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}})
    about = {"name": session.name, "began": session.began, "dropped": session.dropped}
    whole = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
    return json.dumps(whole, separators=(",", ":"))


FORMAT = "bls_notebook session"
_Session = TypeVar("_Session", bound=SessionData)


def json_bytes(session: SessionData, compressed: bool = False) -> bytes:
    """Return a session as JSON text in UTF-8, gzipped if `compressed`."""
    data = {"format": FORMAT, "schema": SCHEMA, **plain(session, defaults=False)}
    # ASCII escapes: a model's name or error may contain half a surrogate pair, which UTF-8 cannot encode.
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:
        raise BLSError(f"session: cannot be saved: {error}") from None
    return gzip.compress(text, 6, mtime=0) if compressed else text


def read_session(path: str | Path, kind: type[_Session]) -> _Session:
    """Read a session from a file; see `bls.load`."""
    if not isinstance(path, (str, os.PathLike)):
        raise BLSError(f"load: expected the path of a file, got {type(path).__name__}")
    file = Path(path)
    try:
        content = read_json(file)
    except OSError as error:
        raise _foreign(file, f"it cannot be read: {error}") from None
    except ValueError as error:
        raise _foreign(file, str(error)) from None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        is_chrome = isinstance(content, dict) and "traceEvents" in content
        hint = " (a Chrome trace; save the session as .json)" if is_chrome else ""
        raise _foreign(file, f"its format is not {FORMAT!r}{hint}")
    schema = content.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise BLSError(
            f"session {told(file.name)!r}: its schema is {told(repr(schema))}, expected {SCHEMA}: read it "
            "with the version of bls_notebook that wrote it"
        )
    try:
        return kind.from_dict(content)
    except ValueError as error:
        raise _foreign(file, str(error)) from None


def _foreign(file: Path, why: str) -> BLSError:
    return BLSError(
        f"session {told(file.name)!r}: {told(why)}; expected a file that session.save(...) wrote as .json or .json.gz"
    )


# The first matching ending counts.
_WRITERS: dict[str, Callable[[SessionData], bytes]] = {
    ".trace.json": lambda session: chrome_trace(session).encode(),
    ".json": json_bytes,
    ".json.gz": lambda session: json_bytes(session, compressed=True),
}


def save_session(session: SessionData, path: str | Path) -> Path:
    """Write a session to a file, in the format that the end of its name selects.

    Raises BLSError if the name has another ending or the file cannot be written.
    """
    file = Path(path)
    ending = ending_of(file, _WRITERS, "session", "use .json to load it again")
    data = _WRITERS[ending](session)  # before the file is opened: an error here leaves an existing file unchanged
    return write_file(file, data, "session")
