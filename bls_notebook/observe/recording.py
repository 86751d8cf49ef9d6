"""Recording spans while requests are served: `active` is None when nobody records, and that is all it costs.

A request that is recorded has a `RawSpan`, which the engine fills in as the request moves on; `freezing`
makes `Span`s of them at the end. It holds plain values and other raw spans, never a request, a response or an
array, so that recording changes no memory's life.

Guarantees: recording takes no lock and waits for nobody. A raw span is put into each session's list by
`list.append`, which is atomic by contract, with and without a GIL; each of its fields is written by the one
thread that has the request in hand at that moment. Sessions are bounded: what does not fit is counted. A
request is recorded from its beginning or not at all, so that a recorded request's sender is recorded too,
unless it was sent before the session began. Sessions may nest and overlap.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import Any

from bls_notebook.observe.session import ModelSeen

__all__ = [
    "RawMark",
    "RawSpan",
    "Recorder",
    "Sink",
    "active",
    "answered",
    "mark",
    "nbytes",
    "placed",
    "ran",
    "refused",
    "responded",
    "so_far",
    "span_id",
    "start",
    "stop",
]


class RawSpan:
    """A span in the making: fields that are not set yet have not happened yet.

    Times are readings of `time.perf_counter_ns`. ``batch`` is any object that the requests of a batch share,
    ``device_time`` one whose `ns()` gives the time on a GPU.
    """

    __slots__ = (
        "batch",
        "bytes_in",
        "bytes_out",
        "cached",
        "crossings",
        "device",
        "device_time",
        "ended",
        "error",
        "inferred",
        "instance",
        "kind",
        "number",
        "parent",
        "queued",
        "released",
        "request_id",
        "responses",
        "rows",
        "seen",
        "sent",
        "started",
        "state",
        "thread",
    )

    seen: ModelSeen
    parent: RawSpan | None
    kind: str
    request_id: str
    sent: int
    queued: int
    started: int
    inferred: int
    ended: int
    released: int
    instance: str
    device: str
    thread: int
    rows: int
    batch: object
    state: str
    error: str
    bytes_in: int
    bytes_out: int
    crossings: int
    cached: bool
    responses: int
    device_time: Any
    number: int


# A response of a stream: of which request, when, and of which kind (see `Mark`).
RawMark = tuple[RawSpan, int, str]

_new = RawSpan.__new__
_lock = threading.Lock()


class Sink:
    """What one session keeps.

    Parameters
    ----------
    limit : int
        How many spans and marks together.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.rows: list[RawSpan | RawMark] = []
        self._dropped = 0
        self._lock = threading.Lock()

    def drop(self) -> None:
        """Count a span that did not fit."""
        with self._lock:
            self._dropped += 1

    @property
    def dropped(self) -> int:
        """How many spans did not fit."""
        return self._dropped


class Recorder:
    """Who records now; replaced, and never changed, when a session begins or ends."""

    __slots__ = ("device_timer", "sinks")

    def __init__(self, sinks: tuple[Sink, ...], device_timer: Callable[[int], Any] | None) -> None:
        self.sinks = sinks
        self.device_timer = device_timer

    def begin(
        self,
        seen: ModelSeen,
        parent: RawSpan | None,
        kind: str,
        request_id: str,
        sent: int,
        tensors: Iterable[Any],
    ) -> RawSpan | None:
        """Record that a request was sent; None where there is no room for it.

        Parameters
        ----------
        seen : ModelSeen
            The model that it was sent to.
        parent : RawSpan or None
            Of the request whose `execute` sent it.
        kind, request_id : str
            As in `Span`.
        sent : int
            When.
        tensors : iterable of Tensor
            Its inputs.
        """
        raw = _new(RawSpan)
        raw.seen = seen
        raw.parent = parent
        raw.kind = kind
        raw.sent = sent
        raw.bytes_in = nbytes(tensors)
        if request_id:
            raw.request_id = request_id
        kept = None
        for sink in self.sinks:
            rows = sink.rows
            if len(rows) < sink.limit:
                rows.append(raw)
                kept = raw
            else:
                sink.drop()
        return kept

    def mark(self, raw: RawSpan, now: int, kind: str) -> None:
        """Record a moment of a request's life, where there is room."""
        moment = (raw, now, kind)
        for sink in self.sinks:
            if len(sink.rows) < sink.limit:
                sink.rows.append(moment)


active: Recorder | None = None
_numbers: Iterator[int] = itertools.count(1)


def start(sink: Sink, device_timer: Callable[[int], Any] | None = None) -> None:
    """Record for a session from now on.

    Parameters
    ----------
    sink : Sink
    device_timer : callable, optional
        Begins to measure time on the GPU of a number; what it returns has `end()` and `ns()`.
    """
    global active, _numbers
    with _lock:
        sinks = () if active is None else active.sinks
        if not sinks:
            _numbers = itertools.count(1)
        active = Recorder((*sinks, sink), device_timer)


def stop(sink: Sink) -> list[RawSpan | RawMark]:
    """Record no more for a session, and return what was: each span has its number now."""
    global active
    with _lock:
        if active is not None:
            sinks = tuple(s for s in active.sinks if s is not sink)
            active = Recorder(sinks, active.device_timer) if sinks else None
        return _numbered(sink)


def so_far(sink: Sink) -> list[RawSpan | RawMark]:
    """Return what has been recorded for a session until now."""
    with _lock:
        return _numbered(sink)


def _numbered(sink: Sink) -> list[RawSpan | RawMark]:
    rows = sink.rows[:]
    for raw in sorted((r for r in rows if isinstance(r, RawSpan)), key=_sent):
        _number(raw)
    return rows


def _sent(raw: RawSpan) -> int:
    return raw.sent


def _number(raw: RawSpan) -> int:
    try:
        return raw.number
    except AttributeError:
        raw.number = next(_numbers)
        return raw.number


def span_id(raw: RawSpan | None) -> int:
    """Return the `Span.id` that a span has, or will have; 0 for None."""
    if raw is None:
        return 0
    with _lock:
        return _number(raw)


def nbytes(tensors: Iterable[Any]) -> int:
    """Return the size of tensors, as they are sent."""
    size = 0
    for tensor in tensors:
        if tensor._datatype == "BYTES":
            size += sum(map(len, tensor._array.reshape(-1).tolist())) + 4 * tensor._array.size
        else:
            size += tensor._array.nbytes
    return size


def placed(raw: RawSpan, instance: str, device: str, gpu: int, rows: int) -> None:
    """Record which instance a request is handed to, on the thread that runs it."""
    raw.instance = instance
    raw.device = device
    raw.thread = threading.get_ident()
    raw.started = perf_counter_ns()  # until `ran` knows better
    if rows != 1:
        raw.rows = rows
    if gpu >= 0:
        recorder = active
        if recorder is not None and recorder.device_timer is not None:
            raw.device_time = recorder.device_timer(gpu)


def ran(raw: RawSpan, queued: int, begun: int, inferred: int, released: int) -> None:
    """Record when a request was queued, `execute` began and returned, and its instance was free again."""
    raw.queued = queued
    raw.started = begun
    raw.inferred = inferred
    raw.released = released
    timer = getattr(raw, "device_time", None)
    if timer is not None:
        timer.end()


def refused(seen: ModelSeen, parent: RawSpan | None, kind: str, request_id: str, response: Any) -> None:
    """Record a request that was answered at once, with an error."""
    recorder = active
    if recorder is None:
        return
    now = perf_counter_ns()
    raw = recorder.begin(seen, parent, kind, request_id, now, ())
    if raw is not None:
        answered(raw, response, now)


def answered(raw: RawSpan, response: Any, now: int) -> None:
    """Record the last response of a request; None where it was given up."""
    raw.ended = now
    if response is None:
        raw.state = "cancelled"
    else:
        responded(raw, response)


def responded(raw: RawSpan, response: Any) -> None:
    """Record what is in a response."""
    error = response._error
    if error is None:
        try:
            raw.responses += 1
            raw.bytes_out += nbytes(response._outputs)
        except AttributeError:  # the first
            raw.responses = 1
            raw.bytes_out = nbytes(response._outputs)
    else:
        raw.state = "cancelled" if error._code.name == "CANCELLED" else "error"
        raw.error = error._message


def mark(raw: RawSpan, now: int, kind: str) -> None:
    """Record a moment of a request's life, where there is room."""
    recorder = active
    if recorder is not None:
        recorder.mark(raw, now, kind)
