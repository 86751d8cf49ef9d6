"""The log of requests for profiles.

A recorded request has a number, and `SpanRecorder` writes its events into the lists of a `Log`. Each list contains
the fields of one kind of entry (the named tuples below), one entry after the other; profiling makes spans from them
at the end. The log keeps no request, response or array, so recording changes no memory's lifetime. The lists are
flat and written by `list.extend`, because entries as objects would make garbage collections more frequent.

Guarantees: recording takes no lock and never blocks. `list.extend` writes an entry and `deque.popleft` takes a number;
both are atomic, with and without a GIL. (Only making the next 1024 numbers takes a lock.) A log is bounded: it counts
the requests that do not fit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from time import thread_time_ns
from typing import Any, NamedTuple, TypeVar

from bls_notebook.records import ModelSeen, RecordedInstance

BLOCK = 1024  # numbers that are made at a time

_Entry = TypeVar("_Entry")

_lock = threading.Lock()
_numbered = 0  # the last number of all logs
_base = 0  # the last number before the newest log


# The entries of a `Log`. `number` is the request's; times are readings of `time.perf_counter_ns`, 0 for none.


class Begun(NamedTuple):
    """A request was sent, and queued (0: use the time of its start)."""

    number: int
    parent: int
    model: ModelSeen
    kind: str
    options: Any  # the request's options, which are read later
    bytes_in: int
    sent: int
    queued: int


class Placed(NamedTuple):
    """An instance began a request; `batch` is the number of the first request of its batch, 0 for none.

    `cpu` is the processor time that the thread had used by then, ns.
    """

    number: int
    place: RecordedInstance
    thread: int
    rows: int
    started: int
    batch: int = 0
    cpu: int = 0


class Ran(NamedTuple):
    """`execute` returned on a thread that had used `cpu` ns, and its instance was free for another request."""

    number: int
    inferred: int
    released: int
    thread: int = 0
    cpu: int = 0


class Ended(NamedTuple):
    """The last response of a request was sent."""

    number: int
    ended: int
    state: str
    error: str
    responses: int
    bytes_out: int


class HeldBack(NamedTuple):
    """The response of a request was withheld until this time, to keep the order of responses."""

    number: int
    until: int


class Marked(NamedTuple):
    """A moment of a request; see `Mark` for the kinds."""

    number: int
    when: int
    kind: str


class Named(NamedTuple):
    """A moment that the user named; `number` belongs to the request being executed, 0 in the notebook."""

    number: int
    when: int
    name: str


class SentFrom(NamedTuple):
    """The stack that sent a request, innermost first: code, offset of its instruction, and so on; and its inputs."""

    number: int
    stack: tuple[Any, ...]
    inputs: tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes


class Crossed(NamedTuple):
    """Tensors of a request moved to another device; `tensors` is their number."""

    number: int
    tensors: int


class Timed(NamedTuple):
    """A timer runs on the GPU of a request."""

    number: int
    timer: Any


def entries(kind: type[_Entry], values: list[Any], begin: int = 0) -> Iterator[_Entry]:
    """Iterate over the entries of a log's list from index `begin` on, while others may append."""
    width = len(kind._fields)  # type: ignore[attr-defined]
    return map(kind._make, zip(*[iter(values[begin:])] * width, strict=False))  # type: ignore[attr-defined]


class Log:
    """The entries of one recording; profiles that overlap in time share it."""

    __slots__ = (
        "base", "begun", "cached", "capacity", "crossed", "device_timer", "dropped", "ended",
        "given", "held", "marks", "named", "numbers", "owners", "placed", "ran", "sites", "timed",
    )  # fmt: skip

    def __init__(self, base: int) -> None:
        self.base = base
        self.given = 0  # numbers made so far
        self.capacity = 0
        self.dropped = 0
        self.owners: dict[int, None] = {}  # the `id`s of its profiles
        self.numbers: deque[int] = deque()
        # Starts a timer on the GPU with a number, and returns an object with `end()` and `ns()`, or None.
        self.device_timer: Callable[[int], Any] | None = None
        self.begun: list[Any] = []  # fields of `Begun`, and so on
        self.placed: list[Any] = []
        self.ran: list[Any] = []
        self.ended: list[Any] = []
        self.held: list[Any] = []
        self.marks: list[Any] = []
        self.named: list[Any] = []
        self.sites: list[Any] | None = None  # of `SentFrom`; None if no profile records lines
        self.cached: list[int] = []  # numbers of requests that the response cache answered
        self.crossed: list[Any] = []
        self.timed: list[Any] = []

    def take(self) -> int:
        """Return the number for a new request; 0 if there is no room."""
        try:
            return self.numbers.popleft()
        except IndexError:
            return self._more()

    def _more(self) -> int:
        global _numbered
        with _lock:
            if not self.numbers:
                count = min(BLOCK, self.capacity - self.given)
                if count <= 0:
                    self.dropped += 1
                    return 0
                self.numbers.extend(range(_numbered + 1, _numbered + 1 + count))
                _numbered += count
                self.given += count
        return self.take()

    def place(self, number: int, place: RecordedInstance, rows: int, started: int, batch: int = 0) -> None:
        """Record that an instance began a request on this thread."""
        self.placed.extend(Placed(number, place, threading.get_ident(), rows, started, batch, thread_time_ns()))

    def end(self, number: int, ended: int, response: Any, responses: int, bytes_out: int) -> None:
        """Record the last response of a request; None if it was cancelled."""
        error = None if response is None else response._error
        cancelled = response is None or (error is not None and error._code.name == "CANCELLED")
        state = "cancelled" if cancelled else "ok" if error is None else "error"
        self.ended.extend(Ended(number, ended, state, "" if error is None else error._message, responses, bytes_out))

    def mark(self, number: int, now: int, kind: str) -> None:
        """Record a moment of a request, if there is room."""
        if len(self.marks) < 3 * self.capacity:
            self.marks.extend(Marked(number, now, kind))

    def name(self, number: int, now: int, name: str) -> None:
        """Record a named moment, if there is room."""
        if len(self.named) < 3 * self.capacity:
            self.named.extend(Named(number, now, name))


def new_log() -> Log:
    """Return a new log. Its numbers begin after the last number of the older logs."""
    global _base
    _base = _numbered
    return Log(_base)


def span_id(number: int) -> int:
    """Return the `Span.id` of a request's number; 0 if an older log gave the number."""
    return number - _base if number > _base else 0
