"""Recording spans while requests are served: `active` is None when nobody records, and that is all it costs.

A request that is recorded has a `RawSpan`, a list that the engine fills in as the request moves on; `freezing`
makes `Span`s of them at the end. It holds plain values and other raw spans, never a request, a response or an
array, so that recording changes no memory's life.

Guarantees: recording takes no lock and waits for nobody. A raw span is put into each session's list by
`list.append`, which is atomic by contract, with and without a GIL; each of its fields is written by the one
thread that has the request in hand at that moment. Sessions are bounded: what does not fit is counted. A
request is recorded from its beginning or not at all, so that a recorded request's sender is recorded too,
unless it was sent before the session began.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import Any

from bls_notebook.observe.session import ModelSeen

__all__ = [
    "NOWHERE",
    "RawMark",
    "RawSpan",
    "Recorder",
    "Sink",
    "active",
    "answered",
    "mark",
    "measure",
    "nbytes",
    "placed",
    "ran",
    "refused",
    "responded",
    "served",
    "so_far",
    "span_id",
    "start",
    "stop",
]

# A list and no object: making one, and a field, costs half as much, and every call pays for it.
RawSpan = list[Any]

# Where its fields are. Times are readings of `time.perf_counter_ns`, 0 for what has not happened yet.
SEEN = 0  # ModelSeen
PARENT = 1  # the raw span of who sent it, or None
KIND = 2
REQUEST_ID = 3
BYTES_IN = 4
SENT = 5
QUEUED = 6
STARTED = 7
INFERRED = 8
RELEASED = 9
ENDED = 10
PLACE = 11  # of its instance: name, device
THREAD = 12
ROWS = 13
STATE = 14
ERROR = 15
RESPONSES = 16
BYTES_OUT = 17
BATCH = 18  # an object that the requests of a batch share, or None
CACHED = 19
CROSSINGS = 20
DEVICE_TIME = 21  # None, or what has `end()` and `ns()`
NUMBER = 22

# A moment of a request: whose, when, and of which kind (see `Mark`).
RawMark = tuple[RawSpan, int, str]

NOWHERE = ("", "cpu")  # the place of what never ran

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
        size = 0
        for tensor in tensors:
            size += tensor._array.nbytes if tensor._datatype != "BYTES" else _text_bytes(tensor)
        # In the order of the fields above.
        raw = [
            seen, parent, kind, request_id, size, sent, 0, 0, 0, 0, 0,
            NOWHERE, 0, 1, "ok", "", 0, 0, None, False, 0, None, 0,
        ]  # fmt: skip
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
        Begins to measure time on the GPU of a number; what it returns has `end()` and `ns()`, or is None.
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
    for raw in sorted((r for r in rows if isinstance(r, list)), key=_sent):
        _number(raw)
    return rows


def _sent(raw: RawSpan) -> int:
    return int(raw[SENT])


def _number(raw: RawSpan) -> int:
    if not raw[NUMBER]:
        raw[NUMBER] = next(_numbers)
    return int(raw[NUMBER])


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
        size += tensor._array.nbytes if tensor._datatype != "BYTES" else _text_bytes(tensor)
    return size


def _text_bytes(tensor: Any) -> int:
    """The size of a BYTES tensor: four bytes of length before each element."""
    elements = tensor._array.reshape(-1).tolist()
    return 4 * len(elements) + sum(len(e) for e in elements if isinstance(e, (bytes, str)))


def placed(raw: RawSpan, seen: ModelSeen, place: tuple[str, str], rows: int, now: int) -> None:
    """Record which instance a request is handed to, on the thread that runs it."""
    raw[SEEN] = seen
    raw[PLACE] = place
    raw[ROWS] = rows
    raw[THREAD] = threading.get_ident()
    if not raw[STARTED]:  # of an iterative sequence, the first time counts
        raw[STARTED] = now


def measure(raw: RawSpan, gpu: int) -> None:
    """Begin to measure time on a GPU."""
    recorder = active
    if recorder is not None and recorder.device_timer is not None:
        raw[DEVICE_TIME] = recorder.device_timer(gpu)


def ran(raw: RawSpan, inferred: int, released: int) -> None:
    """Record when `execute` returned, and its instance was free for the next."""
    raw[INFERRED] = inferred
    raw[RELEASED] = released
    if raw[DEVICE_TIME] is not None:
        raw[DEVICE_TIME].end()


def served(
    raw: RawSpan, queued: int, inferred: int, ended: int, thread: int, rows: int, response: Any, late: bool
) -> None:
    """Record what became of a request that ran on its caller's thread; None: it was given up.

    `late` says that its answer comes, or came, another way.
    """
    raw[QUEUED] = queued
    raw[INFERRED] = inferred
    raw[RELEASED] = ended
    raw[THREAD] = thread
    raw[ROWS] = rows
    if raw[DEVICE_TIME] is not None:
        raw[DEVICE_TIME].end()
    if late:
        return
    raw[ENDED] = ended
    if response is not None and response._error is None:
        raw[RESPONSES] = 1
        size = 0
        for tensor in response._outputs:
            size += tensor._array.nbytes if tensor._datatype != "BYTES" else _text_bytes(tensor)
        raw[BYTES_OUT] = size
    else:
        answered(raw, response, ended)


def answered(raw: RawSpan, response: Any, now: int) -> None:
    """Record the last response of a request; None where it was given up."""
    raw[ENDED] = now
    if response is None:
        raw[STATE] = "cancelled"
    else:
        responded(raw, response)


def responded(raw: RawSpan, response: Any) -> None:
    """Record what is in a response."""
    error = response._error
    if error is None:
        raw[RESPONSES] += 1
        raw[BYTES_OUT] += nbytes(response._outputs)
    else:
        raw[STATE] = "cancelled" if error._code.name == "CANCELLED" else "error"
        raw[ERROR] = error._message


def refused(seen: ModelSeen, parent: RawSpan | None, kind: str, request_id: str, response: Any) -> None:
    """Record a request that was answered at once, with an error."""
    recorder = active
    if recorder is None:
        return
    now = perf_counter_ns()
    raw = recorder.begin(seen, parent, kind, request_id, now, ())
    if raw is not None:
        answered(raw, response, now)


def mark(raw: RawSpan, now: int, kind: str) -> None:
    """Record a moment of a request's life, where there is room."""
    recorder = active
    if recorder is not None:
        recorder.mark(raw, now, kind)
