"""The log of requests for profiles: `active` is None while nobody records, and that is all it costs.

A recorded request carries a number. What becomes of it is written into the lists of a `Log`. Each list holds the
fields of one kind of entry (the named tuples below), one entry after the other; profiling makes spans of them at
the end. No request, response or array is kept, so recording changes no memory's lifetime. The lists are flat,
written by `list.extend`, because entries kept as objects bring the next garbage collection nearer.

Guarantees: recording takes no lock and waits for nobody. Entries are written by one `list.extend`, numbers
are taken by `deque.popleft`: both are atomic by contract, with and without a GIL. (A new block of 1024 numbers
takes a lock.) A log is bounded: it counts what does not fit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any, NamedTuple, Protocol, TypeVar

from bls_notebook.devices.transfers import nbytes
from bls_notebook.engine.waiting.ctrl_c import would_be_lost_in
from bls_notebook.records.raw_events import ModelSeen

BLOCK = 1024  # numbers that are made at a time

_Entry = TypeVar("_Entry")

_lock = threading.RLock()  # a profile may also end in a garbage collection, in the midst of any of this
_numbered = 0  # the last number that was ever given
_base = 0  # the last number before those of the newest log


class RecordedInstance(NamedTuple):
    """An instance: where a request ran."""

    model: ModelSeen
    name: str
    device: str
    execute: CodeType | None


# The entries of a `Log`. `number` is the request's; times are readings of `time.perf_counter_ns`, 0 for none.


class InlineCall(NamedTuple):
    """All there is to say of a request that ran on its caller's thread and succeeded."""

    number: int
    parent: int
    place: RecordedInstance
    options: Any  # the request's; read later, for its ID
    bytes_in: int
    sent: int
    thread: int
    rows: int
    started: int
    inferred: int
    ended: int
    bytes_out: int


class Begun(NamedTuple):
    """A request was sent, and queued (0: that is told by when it ran)."""

    number: int
    parent: int
    model: ModelSeen
    kind: str
    request_id: str
    bytes_in: int
    sent: int
    queued: int


class Placed(NamedTuple):
    """An instance began with a request; `batch` is the number of the first of its batch, 0 for none."""

    number: int
    place: RecordedInstance
    thread: int
    rows: int
    started: int
    batch: int = 0


class Ran(NamedTuple):
    """`execute` returned, and its instance was free for another request."""

    number: int
    inferred: int
    released: int


class Ended(NamedTuple):
    """The last response of a request was sent."""

    number: int
    ended: int
    state: str
    error: str
    responses: int
    bytes_out: int


class HeldBack(NamedTuple):
    """An answer was held back until a moment."""

    number: int
    until: int


class Marked(NamedTuple):
    """A moment of a request's life; see `Mark` for the kinds."""

    number: int
    when: int
    kind: str


class Named(NamedTuple):
    """A moment that a person named; `number` is that of the request being executed, 0 in the notebook."""

    number: int
    when: int
    name: str


class SentFrom(NamedTuple):
    """The code that sent a request, and the offset of the instruction that did."""

    number: int
    code: CodeType
    offset: int


class Crossed(NamedTuple):
    """So many tensors of a request came to another device."""

    number: int
    tensors: int


class Timed(NamedTuple):
    """A timer runs on the GPU of a request."""

    number: int
    timer: Any


def entries(kind: type[_Entry], values: list[Any]) -> Iterator[_Entry]:
    """Iterate over the entries of a log's list, while others may append."""
    width = len(kind._fields)  # type: ignore[attr-defined]
    return map(kind._make, zip(*[iter(values[:])] * width, strict=False))  # type: ignore[attr-defined]


class TapeProtocol(Protocol):
    """Keeps what requests and responses carry; told of each while it can still be read."""

    def sent(
        self, number: int, request: Any, inputs: Any, size: int, kind: str, model: Any, sender: Any, now: int
    ) -> None:
        """Keep a request with its inputs as the model receives them; `model` is its record (or None) and reshapes."""

    def answered(self, number: int, response: Any, final: bool, size: int, now: int) -> None:
        """Keep a response, whose outputs have so many bytes."""


class _Tapes:
    """Several tapes as one."""

    def __init__(self, tapes: list[TapeProtocol]) -> None:
        self._tapes = tapes

    def sent(self, *what: Any) -> None:
        for tape in self._tapes:
            tape.sent(*what)

    def answered(self, *what: Any) -> None:
        for tape in self._tapes:
            tape.answered(*what)


def _together(tapes: Iterable[TapeProtocol | None]) -> TapeProtocol | None:
    found = [tape for tape in tapes if tape is not None]
    return None if not found else found[0] if len(found) == 1 else _Tapes(found)


class Log:
    """What is recorded while profiles are on that overlap."""

    __slots__ = (
        "base", "begun", "cached", "capacity", "crossed", "device_timer", "dropped", "ended",
        "given", "held", "inline", "marks", "named", "numbers", "owners", "placed", "ran", "sites", "tape",
        "timed",
    )  # fmt: skip

    def __init__(self, base: int) -> None:
        self.base = base
        self.given = 0  # how many numbers
        self.capacity = 0
        self.dropped = 0
        # By identities of the profiles, which say when they go: what each has that keeps tensors.
        self.owners: dict[int, TapeProtocol | None] = {}
        self.tape: TapeProtocol | None = None  # of all of them
        self.numbers: deque[int] = deque()
        # Begins to measure time on the GPU of a number; what it returns has `end()` and `ns()`, or is None.
        self.device_timer: Callable[[int], Any] | None = None
        self.inline: list[Any] = []  # of `InlineCall`, and so on
        self.begun: list[Any] = []
        self.placed: list[Any] = []
        self.ran: list[Any] = []
        self.ended: list[Any] = []
        self.held: list[Any] = []
        self.marks: list[Any] = []
        self.named: list[Any] = []
        self.sites: list[Any] | None = None  # None where nobody wants them
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

    # The engine writes the entries of the hot path itself.
    def place(self, number: int, place: RecordedInstance, rows: int, started: int, batch: int = 0) -> None:
        """Record that an instance began with a request, on this thread."""
        self.placed.extend(Placed(number, place, threading.get_ident(), rows, started, batch))

    def end(self, number: int, ended: int, response: Any, responses: int, bytes_out: int) -> None:
        """Record the last response of a request; None if it was cancelled."""
        error = None if response is None else response._error
        given_up = response is None or (error is not None and error._code.name == "CANCELLED")
        state = "cancelled" if given_up else "ok" if error is None else "error"
        words = "" if error is None else error._message
        self.ended.extend(Ended(number, ended, state, words, responses, bytes_out))

    def answer(self, number: int, ended: int, response: Any) -> None:
        """Record a request's single response, or None if it was cancelled."""
        good = response is not None and response._error is None
        size = nbytes(response._outputs) if good else 0
        if response is not None and self.tape is not None:
            self.tape.answered(number, response, True, size, ended)
        self.end(number, ended, response, int(good), size)

    def mark(self, number: int, now: int, kind: str) -> None:
        """Record a moment of a request, if there is room."""
        if len(self.marks) < 3 * self.capacity:
            self.marks.extend(Marked(number, now, kind))

    def name(self, number: int, now: int, name: str) -> None:
        """Record a named moment, if there is room."""
        if len(self.named) < 3 * self.capacity:
            self.named.extend(Named(number, now, name))

    def measure(self, numbers: Iterable[int], gpu: int) -> Any:
        """Start a timer on a GPU and return it, or None."""
        timer = None if self.device_timer is None else self.device_timer(gpu)
        if timer is not None:
            for number in numbers:
                self.timed.extend(Timed(number, timer))
        return timer


active: Log | None = None


def start(
    owner: object,
    limit: int,
    device_timer: Callable[[int], Any] | None = None,
    lines: bool = False,
    tape: TapeProtocol | None = None,
) -> Log:
    """Record for one more profile, `owner`, until `stop`; make room for `limit` requests."""
    global active, _base
    with _lock:
        log = active
        if log is None:
            _base = _numbered
            log = Log(_base)
        log.capacity = max(log.capacity, log.given - len(log.numbers) + limit)
        log.device_timer = device_timer or log.device_timer
        if lines and log.sites is None:
            log.sites = []
        log.owners[id(owner)] = tape
        log.tape = _together(log.owners.values())
        active = log
        return log


def stop(owner: object) -> None:
    """Stop recording for a profile; harmless if it is not on."""
    global active
    with _lock:
        log = active
        if log is not None:
            log.owners.pop(id(owner), None)
            log.tape = _together(log.owners.values())
            if not log.owners:
                active = None


class Observation:
    """Keeps the `log` of requests on until `stop`, or until it is garbage-collected."""

    def __init__(
        self,
        limit: int,
        device_timer: Callable[[int], Any] | None = None,
        lines: bool = False,
        tape: TapeProtocol | None = None,
    ) -> None:
        self.log = start(self, limit, device_timer, lines, tape)

    def stop(self) -> None:
        stop(self)

    def __del__(self) -> None:
        stop(self)


would_be_lost_in(Observation.__del__.__code__)


def span_id(number: int) -> int:
    """Return the `Span.id` of a request's number; 0 for a request of an older profile."""
    return number - _base if number > _base else 0
