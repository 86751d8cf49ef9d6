"""What a profile recorded: a span for each request, in Triton's phases. Frozen, JSON-able, not drawn here."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record
from bls_notebook.records.raw_events import ModelSeen

__all__ = ["SCHEMA", "Ghost", "LockHeld", "Mark", "ModelSeen", "NamedMark", "SessionData", "Source", "Span"]

NOTEBOOK = "notebook"  # who sends what no model does, where no server does the work
SCHEMA = 2
"""2 has the lines that sent requests, the sources, and named marks; 1 is read as one without them."""


@dataclass(frozen=True, slots=True, repr=False)
class Mark(Record):
    """A moment within a span; ``kind`` is response (of a stream), final, or cancelled."""

    ns: int
    kind: str = "response"


@dataclass(frozen=True, slots=True, repr=False)
class NamedMark(Record):
    """A moment that somebody has named by `bls.mark`; ``span`` is whose `execute` did, 0 for the notebook."""

    ns: int
    name: str
    span: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Source(Record):
    """The text of code that ran: a file of a model, or a cell of the notebook (``In [3]`` as its ``name``).

    ``execute`` is the line on which a model's `execute` begins, 0 in other files.
    """

    name: str
    text: str
    model: str = ""
    version: int = 0
    execute: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Span(Record):
    """One request, from when it was sent until its last response.

    All times are nanoseconds since the session began, in this order: ``sent`` <= ``queued`` <=
    ``started`` <= ``inferred`` <= ``ended``. The phases are those of Triton's statistics: compute_input
    (from ``sent`` to ``queued``: checked and isolated), queue (to ``started``), compute_infer (to
    ``inferred``: `execute`), compute_output (to ``ended``). A request that never ran (refused, cancelled
    in the queue, answered by the cache) has an empty ``instance`` and empty last phases.

    ``parent`` is the ``id`` of the span whose `execute` sent the request, 0 for the notebook. ``batch`` is
    shared by the requests that one `execute` got together, 0 where it ran alone. ``kind`` is how it was
    sent: sync (`exec`, `infer`), async (`async_exec`, `infer_async`), stream (decoupled), ensemble (a
    step of one). ``state`` is ok, error, cancelled, or open: not answered yet when the profile ended, which
    is then its end. ``crossings`` counts the tensors that moved to another device for it; ``bytes_in`` and
    ``bytes_out`` are of its inputs and outputs. ``device_ns`` is time on a GPU by CUDA events, -1 where it
    was not measured.

    ``released`` is when its instance was free for the next request: after ``ended`` for most, at once for
    an async `execute` of a decoupled model, 0 where it never ran. ``cached`` says that the response cache
    answered. ``responses`` counts what its requester got; ``marks`` are those of a stream, and may be fewer
    where the profile's limit was reached. The span of an ensemble has the ensemble's name as ``instance``.
    What the `execute` of a batch sends has the batch's first request as ``parent``.

    ``line`` is the line of code that sent the request, of the session's source of number ``source``, counted
    from 1; both are 0 where that is not known.
    """

    id: int
    model: str
    version: int = 1
    parent: int = 0
    instance: str = ""
    device: str = "cpu"
    kind: str = "sync"
    batch: int = 0
    sent: int = 0
    queued: int = 0
    started: int = 0
    inferred: int = 0
    ended: int = 0
    state: str = "ok"
    error: str = ""
    request_id: str = ""
    rows: int = 1
    thread: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    crossings: int = 0
    device_ns: int = -1
    marks: tuple[Mark, ...] = ()
    released: int = 0
    cached: bool = False
    responses: int = 0
    source: int = 0
    line: int = 0

    @property
    def ran(self) -> bool:
        """Whether a model was given it."""
        return bool(self.instance)

    @property
    def duration(self) -> int:
        """From when it was sent until its last response, ns."""
        return self.ended - self.sent

    @property
    def compute_input(self) -> int:
        """Time to check it and hand over its inputs, ns."""
        return self.queued - self.sent

    @property
    def queue(self) -> int:
        """Time that it waited for an instance, ns."""
        return self.started - self.queued

    @property
    def compute_infer(self) -> int:
        """Time in `execute`, ns."""
        return self.inferred - self.started

    @property
    def compute_output(self) -> int:
        """Time to hand over its outputs, ns; of a stream, the time from when `execute` returned."""
        return self.ended - self.inferred


@dataclass(frozen=True, slots=True, repr=False)
class Ghost(Record):
    """A call that could have begun at ``begin`` and ended at ``end`` (ns); ``span`` is its span's id."""

    span: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, repr=False)
class LockHeld(Record):
    """From ``begin`` to ``end`` (ns) Python's lock was held while others wanted it.

    ``threads`` are those that worked meanwhile, so that they took turns, by their `threading.get_ident`;
    empty where that was too short to be told.
    """

    begin: int
    end: int
    threads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class SessionData(Record):
    """The fields of a `Session`, which says what they are and has what is computed from them."""

    spans: tuple[Span, ...] = ()
    models: tuple[ModelSeen, ...] = ()
    wall: int = 0
    began: str = ""
    name: str = ""
    dropped: int = 0
    schema: int = SCHEMA
    marks: tuple[NamedMark, ...] = ()
    sources: tuple[Source, ...] = ()
    ghosts: tuple[Ghost, ...] = ()
    unbatched: tuple[str, ...] = ()
    lock: tuple[LockHeld, ...] = ()
    cpu: int = 0
    cpu_waited: int = 0
    cores: int = 0
    sender: str = NOTEBOOK
    notes: tuple[str, ...] = ()
