"""Recording spans while requests are served: `active` is None when nobody records, and that is all it costs.

A request that is recorded carries a number. What becomes of it is written into the lists of a `Log`, a few
plain values at a time; `freezing` makes spans of them at the end. No request, response or array is kept, so
that recording changes no memory's life; and no container is made that would outlive its request, because
each of those brings the next garbage collection nearer.

Guarantees: recording takes no lock and waits for nobody. Entries are written by one `list.extend`, numbers
are taken by `deque.popleft`: both are atomic by contract, with and without a GIL. (For a new block of numbers
a lock is taken, once in a thousand requests.) A log is bounded: what does not fit is counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, Protocol

from bls_notebook.devices.moves import nbytes
from bls_notebook.records.seen import ModelSeen

BLOCK = 1024  # numbers that are made at a time

Place = tuple[ModelSeen, str, str, CodeType | None]  # of an instance: model, name, device, its `execute`

_lock = threading.RLock()  # a profile may also end in a garbage collection, in the midst of any of this
_numbered = 0  # the last number that was ever given
_base = 0  # the last number before those of the newest log


class Tape(Protocol):
    """Keeps what requests and responses carry; told of each while it can still be read."""

    def sent(
        self, number: int, request: Any, inputs: Any, size: int, kind: str, model: Any, sender: Any, now: int
    ) -> None:
        """Keep a request, with its inputs as its model receives them, of so many bytes.

        `model` is what is known of that, None where there is none, and how inputs are reshaped for it.
        """

    def answered(self, number: int, response: Any, final: bool, size: int, now: int) -> None:
        """Keep a response, whose outputs have so many bytes."""


class _Tapes:
    """Several tapes as one."""

    def __init__(self, tapes: list[Tape]) -> None:
        self._tapes = tapes

    def sent(self, *what: Any) -> None:
        for tape in self._tapes:
            tape.sent(*what)

    def answered(self, *what: Any) -> None:
        for tape in self._tapes:
            tape.answered(*what)


def _together(tapes: Iterable[Tape | None]) -> Tape | None:
    found = [tape for tape in tapes if tape is not None]
    return None if not found else found[0] if len(found) == 1 else _Tapes(found)


class Log:
    """What is recorded while profiles are on that overlap.

    The first value of each entry is the request's number; times are readings of `time.perf_counter_ns`.
    """

    __slots__ = (
        "base", "begun", "cached", "capacity", "crossed", "device_timer", "device_times", "dropped", "ended",
        "given", "held", "marks", "named", "numbers", "owners", "placed", "ran", "sites", "tape", "whole",
    )  # fmt: skip

    def __init__(self, base: int) -> None:
        self.base = base
        self.given = 0  # how many numbers
        self.capacity = 0
        self.dropped = 0
        # By identities of the profiles, which say when they go: what each has that keeps tensors.
        self.owners: dict[int, Tape | None] = {}
        self.tape: Tape | None = None  # of all of them
        self.numbers: deque[int] = deque()
        # Begins to measure time on the GPU of a number; what it returns has `end()` and `ns()`, or is None.
        self.device_timer: Callable[[int], Any] | None = None
        # Of a request that ran on its caller's thread and succeeded, all there is: number, parent, place,
        # options (of the request), bytes_in, sent, queued (0: it was not), thread, rows, started, inferred,
        # ended, bytes_out.
        self.whole: list[Any] = []
        # number, parent, seen, kind, request_id, bytes_in, sent, queued
        self.begun: list[Any] = []
        # number, place, thread, rows, started, batch (the number of its first request, 0 for none)
        self.placed: list[Any] = []
        # number, inferred, released
        self.ran: list[Any] = []
        # number, ended, state, error, responses, bytes_out
        self.ended: list[Any] = []
        # number, until when its answer was held back
        self.held: list[Any] = []
        # number, when, kind (see `Mark`)
        self.marks: list[Any] = []
        # number of whose `execute` it was (0 for the notebook), when, name
        self.named: list[Any] = []
        # number, the code that sent it, and where in that (an index of its instructions)
        # None where nobody wants it.
        self.sites: list[Any] | None = None
        # number
        self.cached: list[Any] = []
        # number, how many tensors
        self.crossed: list[Any] = []
        # number, the time
        self.device_times: list[Any] = []

    def take(self) -> int:
        """Return the number of a request that is sent; 0 where there is no room for it."""
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

    # -- entries, but for those of the hot path, which the engine writes itself ------------------------

    def place(self, number: int, place: Place, rows: int, started: int, batch: int = 0) -> None:
        """Record that an instance began with a request, on this thread."""
        self.placed.extend((number, place, threading.get_ident(), rows, started, batch))

    def end(self, number: int, ended: int, response: Any, responses: int, bytes_out: int) -> None:
        """Record the last response of a request; None where it was given up."""
        error = None if response is None else response._error
        given_up = response is None or (error is not None and error._code.name == "CANCELLED")
        state = "cancelled" if given_up else "ok" if error is None else "error"
        words = "" if error is None else error._message
        self.ended.extend((number, ended, state, words, responses, bytes_out))

    def answer(self, number: int, ended: int, response: Any) -> None:
        """Record the only response of a request; None where it was given up."""
        good = response is not None and response._error is None
        size = nbytes(response._outputs) if good else 0
        if response is not None and self.tape is not None:
            self.tape.answered(number, response, True, size, ended)
        self.end(number, ended, response, int(good), size)

    def mark(self, number: int, now: int, kind: str) -> None:
        """Record a moment of a request's life, where there is room."""
        if len(self.marks) < 3 * self.capacity:
            self.marks.extend((number, now, kind))

    def name(self, number: int, now: int, name: str) -> None:
        """Record a moment that has a name, where there is room."""
        if len(self.named) < 3 * self.capacity:
            self.named.extend((number, now, name))

    def measure(self, numbers: Iterable[int], gpu: int) -> Any:
        """Begin to measure time on a GPU; None, or what is to be ended."""
        timer = None if self.device_timer is None else self.device_timer(gpu)
        if timer is not None:
            for number in numbers:
                self.device_times.extend((number, timer))
        return timer


active: Log | None = None


def start(
    owner: object,
    limit: int,
    device_timer: Callable[[int], Any] | None = None,
    lines: bool = False,
    tape: Tape | None = None,
) -> Log:
    """Record from now on, for one profile more (`owner`, known before anything is on); `stop` ends that.

    It wants to have room for `limit` requests, and the `lines` that send them. See `Log.device_timer` for a
    `device_timer`; a `tape` is told of what requests and responses carry.
    """
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
    """Record no more for a profile; again, and for one that was never on, nothing happens."""
    global active
    with _lock:
        log = active
        if log is not None:
            log.owners.pop(id(owner), None)
            log.tape = _together(log.owners.values())
            if not log.owners:
                active = None


def span_id(number: int) -> int:
    """Return the `Span.id` of a recorded request by its number; 0 for a request of an older profile."""
    return number - _base if number > _base else 0
