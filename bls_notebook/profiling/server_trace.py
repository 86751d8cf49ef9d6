"""Read a tritonserver's trace file (``--trace-config``, mode triton) as a `Session`.

The server writes names, request IDs and tensors without escapes, and ends the array when it exits: a file may
be invalid JSON without an end. Guarantees: every row that can be recognized is read, in time linear in
the text; the others are counted.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bls_notebook.profiling.analysis.call_graph import overlapping
from bls_notebook.profiling.intervals import Rows
from bls_notebook.records import ITEM_BYTES, BLSError, count, grouped, read_bytes, told

from .records.spans import Mark, ModelSeen, NamedMark, Span
from .session import Session

_LONGEST = 1 << 14  # characters of a row that names a model
_NEXT = re.compile(r",\s*(?=\{\s*\"id\"\s*:)")
_MARK = re.compile(r"[^\s,]")  # where a row, or an array, begins or ends
_DECODER = json.JSONDecoder(strict=False)  # control characters in texts, as the server writes them
_HEAD = re.compile(
    r'\{"id":(\d{1,20}),"model_name":"(.*?)","model_version":(-?\d{1,20})'
    r'(?:,"request_id":"(.*?)")?(?:,"parent_id":(\d{1,20}))?\}\Z',
    re.DOTALL,
)
_TENSOR = re.compile(
    r'\{"id":(\d{1,20}),"activity":"(\w+)","tensor":\{.*"shape":"([\d,]*)","dtype":"(\w+)"\}\}\Z', re.DOTALL
)
_STAMP = re.compile(r'\{"id":(\d{1,20}),"timestamps":\[\{"name":"(.*)","ns":(\d{1,20})\}\]\}\Z', re.DOTALL)

TraceRow = dict[str, Any]


@dataclass
class TraceText:
    """The rows of a file, array by array; an id is a request's within one array.

    ``damaged`` counts the rows that could not be read, ``is_cut`` says that the last array has no end.
    """

    arrays: list[list[TraceRow]] = field(default_factory=list)
    damaged: int = 0
    is_cut: bool = False


def read_trace(text: str) -> TraceText:
    """Return the rows of a trace file's text, an array of objects with an ``id``, or raise a ValueError."""
    if not text.strip():
        raise ValueError("it is empty (a server writes when it exits, or after as many requests as log-frequency says)")
    if not text.lstrip().startswith("["):
        raise ValueError(f"it begins with {text.lstrip()[:20]!r}, expected '['")
    trace = TraceText()
    try:
        whole = json.loads(text, strict=False)
    except (ValueError, RecursionError):  # cut off, several arrays, or texts with quotes
        _by_pieces(text, trace)
    else:
        rows = [row for row in whole if _is_row(row)]
        trace.arrays, trace.damaged = [rows], len(whole) - len(rows)
    if trace.damaged and not any(trace.arrays):
        raise ValueError("it is JSON of another kind: no object in it has an 'id', as in a trace")
    return trace


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and type(row.get("id")) is int


def _by_pieces(text: str, trace: TraceText) -> None:
    """Read the text object by object into `trace`."""
    starts = (match.end() for match in _NEXT.finditer(text))
    ahead = next(starts, len(text))
    at = 0
    while (match := _MARK.search(text, at)) is not None:
        at, mark = match.start(), match[0]
        if mark == "[":
            trace.arrays.append([])
            trace.is_cut = True
            at += 1
        elif mark == "]":
            trace.is_cut = False
            at += 1
        else:
            while ahead <= at:
                ahead = next(starts, len(text))
            row, at = _row(text, at, ahead)
            if row is not None:
                trace.arrays[-1].append(row)
            elif at < len(text) or not trace.is_cut:
                trace.damaged += 1


def _row(text: str, at: int, ahead: int) -> tuple[TraceRow | None, int]:
    """Return the row that begins at `at` (None if damaged), and its end; the next row begins at `ahead` or earlier."""
    size = _LONGEST
    while size < 4 * max(_LONGEST, ahead - at):  # a copy of the rest for each row would take quadratic time
        with suppress(ValueError, RecursionError):
            row, end = _DECODER.raw_decode(text[at : min(ahead, at + size)])
            if _is_row(row):
                return row, at + end
        size *= 4
    piece = text[at:ahead].rstrip().rstrip(",")
    last = ahead == len(text)
    if last and piece.endswith("]"):
        piece = piece[:-1]
        ahead = at + len(piece)
    return next(_mended(piece), None), ahead


def _mended(piece: str) -> Iterator[TraceRow]:
    """Yield the row of a damaged piece: the server does not escape names, so they may break its JSON."""
    if len(piece) <= _LONGEST and (match := _HEAD.match(piece)) is not None:
        number, name, version, request, parent = match.groups()
        yield {
            "id": int(number), "model_name": name, "model_version": int(version),
            "request_id": request or "", "parent_id": int(parent or 0),
        }  # fmt: skip
    elif (match := _STAMP.match(piece)) is not None:
        yield {"id": int(match[1]), "timestamps": [{"name": match[2], "ns": int(match[3])}]}
    elif (match := _TENSOR.match(piece)) is not None:
        tensor = {"shape": match[3], "dtype": match[4]}
        yield {"id": int(match[1]), "activity": match[2], "tensor": tensor}


CLIENTS = "clients"
_KNOWN_LIMITS = (
    "From a server's trace, which records no errors, devices or instances (each model is shown with the fewest "
    "instances that could run its concurrent requests); a model's call is in it only with `trace=request.trace()`."
)
_LIMIT = 100_000
_LATEST = 1 << 63  # ns
_OWN = ("REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END")
_ANSWER = "INFER_RESPONSE_COMPLETE"
_FRONT = re.compile(r"(HTTP|GRPC)_\w+|COMPUTE_INPUT_END\Z")


def load_server_trace(path: str | Path, limit: int = _LIMIT) -> Session:
    """Read the trace of a tritonserver's requests.

    The server writes it with ``--trace-config`` ``mode=triton``, ``level=TIMESTAMPS``, ``rate=1`` (every
    request), ``triton,file=trace.json`` and ``triton,log-frequency=100``: ``trace.json.0``, ``trace.json.1``
    and so on, each with 100 requests. Without log-frequency a server writes late, and some exit before.

    The times of a request are the server's: from REQUEST_START, when the front end has read it, until its
    response is complete. It waits for an instance from QUEUE_START to COMPUTE_START, and `execute`, including
    the copy of its inputs, lasts until COMPUTE_OUTPUT_START. Network time is not included. Requests computed at
    exactly the same time are a batch; overlapping calls of one model are ``async``, others ``sync``; a request
    with several responses (also an empty final one) is a ``stream``. A trace has no errors, so every request is
    ``ok``. The sizes of inputs and outputs require ``level=TENSORS``; sizes of BYTES are unknown. Custom
    activities become the session's `marks`.

    The file is JSON, gzipped or not, and may contain several arrays, or be cut off; files with its name and a number
    (``trace.json.0``, ...) are read too. The first `limit` requests are kept; `Session.dropped` counts the others.
    The sender of the requests is "clients", and the session's ``notes`` list the facts that the trace lacks.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise BLSError(f"load: expected the path of a file, got {type(path).__name__}")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise BLSError(f"load: limit: got {limit!r}, expected a number of requests from 1 on")
    session = server_session([_read(file) for file in _files(Path(path))], limit, told(Path(path).name))
    if not session.spans:
        raise _foreign(Path(path), "it has no request with timestamps (level=TIMESTAMPS writes them)")
    return session


def _files(path: Path) -> list[Path]:
    """Return the file, if it exists, and the files that log-frequency numbered, in order."""
    numbered: list[tuple[int, Path]] = []
    try:
        for other in path.parent.iterdir():
            number = other.name.removeprefix(f"{path.name}.")
            if number != other.name and number.isascii() and number.isdigit() and len(number) < 20:
                numbered.append((int(number), other))
        return [*([path] if path.exists() or not numbered else []), *(file for _, file in sorted(numbered))]
    except (OSError, ValueError) as error:
        raise _foreign(path, f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _read(file: Path) -> TraceText:
    try:
        return read_trace(read_bytes(file, is_whole=False).decode(errors="replace"))
    except OSError as error:
        raise _foreign(file, f"it cannot be read: {error}") from None
    except ValueError as error:
        raise _foreign(file, str(error)) from None


def _foreign(file: Path, why: str) -> BLSError:
    return BLSError(
        f"trace {told(file.name)!r}: {told(why)}; expected a file that tritonserver wrote with "
        "--trace-config mode=triton, level=TIMESTAMPS, rate=1, triton,file=... and triton,log-frequency=1 "
        "(without the last, some servers exit before they write)"
    )


@dataclass
class _Traced:
    """The trace of one request: all rows with its id."""

    array: int
    id: int
    model: str = ""
    version: int = 0
    request_id: str = ""
    parent: int = 0
    at: dict[str, int] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    custom: list[tuple[int, str]] = field(default_factory=list)
    size: Counter[str] = field(default_factory=Counter)

    def add(self, row: TraceRow) -> None:
        """Add one row; ignore fields with values that no trace has."""
        name, version, parent = row.get("model_name"), row.get("model_version"), row.get("parent_id", 0)
        if isinstance(name, str) and type(version) is int and abs(version) < _LATEST:
            self.model, self.version = name, version
            self.request_id = row["request_id"] if isinstance(row.get("request_id"), str) else ""
            self.parent = parent if type(parent) is int else 0
        stamps = row.get("timestamps")
        for stamp in stamps if isinstance(stamps, list) else ():
            if isinstance(stamp, dict):
                self._stamp(stamp.get("name"), stamp.get("ns"))
        if isinstance(tensor := row.get("tensor"), dict):
            self.size[str(row.get("activity"))] += _size(tensor)

    def _stamp(self, name: object, ns: object) -> None:
        if not isinstance(name, str) or type(ns) is not int or not 0 < ns < _LATEST:
            return  # the SEND stamp of a stream is 0
        if name == _ANSWER:
            self.answers.append(ns)
        elif name in _OWN:
            self.at.setdefault(name, ns)
        elif not _FRONT.match(name):
            self.custom.append((ns, name))

    @property
    def sent(self) -> int:
        return self.at["REQUEST_START"]

    @property
    def is_request(self) -> bool:
        return bool(self.model) and "REQUEST_START" in self.at


def _size(tensor: dict[str, object]) -> int:
    """Return a tensor's size in bytes; 0 if unknown."""
    shape, each = tensor.get("shape"), ITEM_BYTES.get(str(tensor.get("dtype")), 0)
    if not isinstance(shape, str) or len(shape) > 400:
        return 0
    total = each
    for length in shape.split(","):
        known = length.isascii() and length.isdigit() and len(length) < 19
        total *= int(length) if known else not length
    return total if total < _LATEST else 0


def server_session(texts: Sequence[TraceText], limit: int = _LIMIT, name: str = "") -> Session:
    """Return the session that the rows of trace files describe."""
    every = list(_traced(texts))
    requests = sorted((t for t in every if t.is_request), key=lambda t: (t.sent, t.array, t.id))
    kept = requests[:limit]
    if not kept:
        return Session(name=name)
    begin = kept[0].sent
    number = {(t.array, t.id): i for i, t in enumerate(kept, 1)}
    parents = [number.get((t.array, t.parent), 0) if t.parent < t.id else 0 for t in kept]
    parents = [parent if parent < i else 0 for i, parent in enumerate(parents, 1)]
    has_calls = set(parents)
    batches = _batches(kept)
    spans: list[Span] = []
    for i, (traced, parent) in enumerate(zip(kept, parents, strict=True), 1):
        span = _span(traced, i, parent, begin)
        is_ensemble = i in has_calls and "COMPUTE_START" not in traced.at
        if is_ensemble:
            answered = replace(span, started=span.queued, inferred=span.ended)
            span = replace(answered, instance=traced.model, released=span.ended)
        # The stamps of a call say when its instance was done with it; its answer may have arrived before that.
        caller = spans[parent - 1] if parent else span
        if span.inferred <= caller.ended < span.ended:
            span = replace(span, ended=caller.ended, queued=min(span.queued, caller.ended))
        spans.append(replace(span, batch=batches[i - 1]))
    ensembles = {span.id for span in spans if span.ran and "COMPUTE_START" not in kept[span.id - 1].at}
    spans = _in_lanes(_by_kind(spans, ensembles), ensembles)
    named = sorted((max(0, ns - begin), label, i) for i, t in enumerate(kept, 1) for ns, label in t.custom)
    wall = max(max(s.ended, s.released) for s in spans)
    lost = len(every) - len(requests)
    return Session(
        tuple(spans), _models(spans, ensembles), wall, name=name, dropped=len(requests) - len(kept),
        marks=tuple(NamedMark(*mark) for mark in named), sender=CLIENTS,
        notes=tuple(_notes(texts, spans, lost)),
    )  # fmt: skip


def _traced(texts: Iterable[TraceText]) -> Iterator[_Traced]:
    """Yield the traced requests; ids are unique within one array only."""
    for number, rows in enumerate(array for text in texts for array in text.arrays):
        requests: dict[int, _Traced] = {}
        for row in rows:
            key = row["id"]
            if key not in requests:
                requests[key] = _Traced(number, key)
            requests[key].add(row)
        yield from requests.values()


def _batches(traced: Sequence[_Traced]) -> list[int]:
    """Return the number of each request's batch; 0 if it ran alone."""
    stamps = [
        (t.model, t.version, *(t.at.get(name, 0) for name in _OWN[2:5])) if "COMPUTE_START" in t.at else None
        for t in traced
    ]
    sizes = Counter(stamps)
    shared = {stamp: i for i, stamp in enumerate(sizes, 1) if stamp is not None and sizes[stamp] > 1}
    return [0 if stamp is None else shared.get(stamp, 0) for stamp in stamps]


def _span(t: _Traced, number: int, parent: int, begin: int) -> Span:
    """Return a request's span; the server's time stamps are adjusted to the order of a span's times."""
    last = max([t.sent, *t.at.values()])
    done = t.at.get("COMPUTE_END", t.at.get("REQUEST_END", last))
    is_stream = len(t.answers) > 1
    ran = "COMPUTE_START" in t.at
    queued = max(t.sent, t.at.get("QUEUE_START", t.sent))
    started = max(queued, t.at["COMPUTE_START"]) if ran else 0
    inferred = max(started, t.at.get("COMPUTE_OUTPUT_START", done)) if ran else 0
    ended = max(queued, started, max(t.answers, default=done))
    if is_stream:
        ended = max(ended, inferred)
    inferred = min(inferred, ended)
    answers = sorted(t.answers)
    if not ran:
        started = inferred = ended
    marks = [Mark(max(0, ns - begin)) for ns in answers[:-1]] + [Mark(ended - begin, "final")]
    return Span(
        number, t.model, t.version, parent, "running" if ran else "", "",
        "stream" if is_stream else "sync", 0,
        t.sent - begin, queued - begin, started - begin, inferred - begin, ended - begin,
        request_id=t.request_id, bytes_in=t.size["TENSOR_QUEUE_INPUT"],
        bytes_out=t.size["TENSOR_BACKEND_OUTPUT"], marks=tuple(marks) if is_stream else (),
        released=max(done, started) - begin if ran else 0, responses=max(1, len(answers)),
    )  # fmt: skip


def _by_kind(spans: list[Span], ensembles: set[int]) -> list[Span]:
    """Return the spans with their kinds (sync, async, ensemble), inferred from their times."""
    out = list(spans)
    for parent, children in grouped((span.parent, span) for span in spans if span.parent).items():
        beside = overlapping([(span.sent, span.ended) for span in children])
        for span, is_beside in zip(children, beside, strict=True):
            kind = "ensemble" if parent in ensembles else "async" if is_beside else "sync"
            if span.kind != "stream" or kind == "ensemble":
                out[span.id - 1] = replace(span, kind=kind)
    return out


def _in_lanes(spans: list[Span], ensembles: set[int]) -> list[Span]:
    """Assign each execution the first free instance, of as few as possible."""
    rows: defaultdict[tuple[str, int], Rows] = defaultdict(Rows)
    lanes: dict[tuple[str, int, int], int] = {}
    out = list(spans)
    for span in sorted((s for s in spans if s.ran and s.id not in ensembles), key=lambda s: (s.started, s.id)):
        model = (span.model, span.version)
        lane = lanes.get((*model, span.batch), -1) if span.batch else -1
        if lane < 0:
            lane = rows[model].take(span.started, span.released)
            if span.batch:
                lanes[(*model, span.batch)] = lane
        out[span.id - 1] = replace(span, instance=f"{span.model}_0_{lane}")
    return out


def _models(spans: Sequence[Span], ensembles: set[int]) -> tuple[ModelSeen, ...]:
    instances: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for span in spans:
        instances[span.model, span.version].update([span.instance] if span.ran else [])
    together = {(span.model, span.version) for span in spans if span.id in ensembles}
    streams = {(span.model, span.version) for span in spans if span.kind == "stream"}
    return tuple(
        ModelSeen(
            *key, scheduler="ensemble" if key in together else "default",
            instances=() if key in together else tuple(sorted(names, key=lambda n: (len(n), n))),
            decoupled=key in streams,
        )
        for key, names in sorted(instances.items())
    )  # fmt: skip


def _notes(texts: Sequence[TraceText], spans: Sequence[Span], lost: int) -> Iterator[str]:
    yield _KNOWN_LIMITS
    if never := sum(not span.ran for span in spans):
        yield f"{count(never, 'request')} never reached an instance: answered by the response cache, or failed before."
    if lost:
        yield f"{count(lost, 'request')} left out: the trace lacks the model or the start (refused, or cut off)."
    damaged, cut = sum(text.damaged for text in texts), sum(text.is_cut for text in texts)
    if damaged:
        yield f"{damaged:,} rows of the trace are left out: they are damaged beyond repair."
    if cut:
        have = "has" if cut == 1 else "have"
        yield f"{cut:,} of {len(texts):,} files {have} no end: the server still writes them, or they were cut off."
