"""Records of a profile: a span for each request in Triton's phases, marks and sources. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records import ModelSeen, Record, TensorSeen

__all__ = [
    "SCHEMA", "CodeStack", "Ghost", "LineSamples", "LockHeld", "Mark", "ModelSeen", "NamedMark", "SessionData",
    "Source", "Span", "StackLine", "WorkerUse",
]  # fmt: skip

NOTEBOOK = "notebook"  # the sender of requests that no model sent, except in the trace of a server
SCHEMA = 2


@dataclass(frozen=True, slots=True, repr=False)
class Mark(Record):
    """A moment within a span; ``kind`` is response (of a stream), final, cancelled, or abandoned (by its await)."""

    ns: int
    kind: str = "response"


@dataclass(frozen=True, slots=True, repr=False)
class NamedMark(Record):
    """A moment named by `bls.mark`; ``span`` is the span whose `execute` named it, 0 for the notebook."""

    ns: int
    name: str
    span: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Source(Record):
    """The text of code that ran: a file of a model, or a notebook cell, whose ``name`` is such as ``In [3]``.

    ``execute`` is the line on which a model's `execute` begins, 0 in other files.
    """

    name: str
    text: str
    model: str = ""
    version: int = 0
    execute: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class StackLine(Record):
    """A line that ran: line ``line`` of source number ``source`` of the session, in ``function``."""

    source: int
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class CodeStack(Record):
    """Lines of own code that called each other, outermost first; without the code of libraries."""

    lines: tuple[StackLine, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class LineSamples(Record):
    """Samples of one execution with the same stack.

    ``span`` is the id of the first request of the execution, ``stack`` the number of a stack of the session, 0 if
    no line of own code was seen. ``ns`` is the time that the ``samples`` stand for. ``waits``: the code awaited, or
    waited for a callee, a thread or a connection.
    """

    span: int
    stack: int = 0
    samples: int = 1
    ns: int = 0
    waits: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Span(Record):
    """One request, from when it was sent until its last response.

    All times are nanoseconds since the session began, in this order: ``sent`` <= ``queued`` <=
    ``started`` <= ``inferred`` <= ``ended``. The phases are Triton's, as in its statistics: compute_input
    (from ``sent`` to ``queued``: the engine checks the request and isolates its inputs), queue (to
    ``started``), compute_infer (to ``inferred``: `execute`), compute_output (to ``ended``). A request that
    never ran (refused, cancelled in the queue, answered by the cache) has an empty ``instance``, and its last
    phases take no time.

    ``parent`` is the ``id`` of the span whose `execute` sent the request, 0 for the notebook; requests sent by
    the `execute` of a batch have the batch's first request as ``parent``. ``batch`` is a number shared by the
    requests of one batch, 0 for a request that ran alone. ``kind`` is the way of sending: sync (`exec`,
    `infer`), async (`async_exec`, `infer_async`), stream (decoupled), ensemble (a step of one). ``state`` is
    ok, error, cancelled, or open: unanswered when the profile ended, so ``ended`` is the end of the profile.
    ``crossings`` counts the tensors that moved to another device for the request; ``bytes_in`` and
    ``bytes_out`` are the sizes of its inputs and outputs. ``device_ns`` is the time on a GPU by CUDA events,
    -1 if it was not measured.

    ``released`` is the time at which its instance was free for the next request: after ``ended`` for most
    models, at the start for an async `execute` of a decoupled model, 0 if the request never ran. ``cached``
    says that the response cache answered. ``responses`` counts the responses that the requester got; ``marks``
    are the moments of a stream's responses, fewer if the profile reached its limit. The span of an ensemble
    has the ensemble's name as ``instance``.

    ``line`` is the line of code that sent the request, in source number ``source`` of the session, counted
    from 1; both are 0 if unknown. ``stack`` is the number of the stack that ends with this line, 0 if unknown.
    ``inputs`` have the real shapes. ``correlation_id`` and ``flags`` are those of the request's sequence.

    ``cpu`` is the processor time (ns) of the thread that ran `execute`, with the calls that it ran itself; -1 if
    unknown: several threads, or a process of its own.
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
    correlation_id: int | str = 0
    flags: int = 0
    stack: int = 0
    inputs: tuple[TensorSeen, ...] = ()
    cpu: int = -1

    @property
    def ran(self) -> bool:
        """Return whether an instance ran the request."""
        return bool(self.instance)

    @property
    def duration(self) -> int:
        """The time from sending to the last response, ns."""
        return self.ended - self.sent

    @property
    def compute_input(self) -> int:
        """The time to check the request and pass its inputs to the model, ns."""
        return self.queued - self.sent

    @property
    def queue(self) -> int:
        """The wait for an instance, ns."""
        return self.started - self.queued

    @property
    def compute_infer(self) -> int:
        """The time in `execute`, ns."""
        return self.inferred - self.started

    @property
    def compute_output(self) -> int:
        """The time to pass its outputs to the requester, ns; for a stream, the time after `execute` returned."""
        return self.ended - self.inferred


@dataclass(frozen=True, slots=True, repr=False)
class Ghost(Record):
    """A possible earlier time of a call, from ``begin`` to ``end`` (ns); ``span`` is the id of the call's span."""

    span: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, repr=False)
class LockHeld(Record):
    """An interval (ns) in which a thread held the GIL while others wanted it.

    ``threads`` are the threads that computed in this interval, so they took turns, by `threading.get_ident`;
    empty if the interval was too short to find them. ``cpu`` is the processor time of the process meanwhile: if it
    is longer than the interval, threads also computed without the GIL.
    """

    begin: int
    end: int
    threads: tuple[int, ...] = ()
    cpu: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class WorkerUse(Record):
    """The processors that the process of an instance used, and the time that its threads waited for one (ns).

    ``turns`` is the time in which several of its threads took turns with its GIL; -1 if unknown.
    """

    instance: str
    cpu: int = 0
    cpu_waited: int = 0
    turns: int = -1


class _Analysed(Record):
    """Keeps an analysis that is computed once; equality, copies and files ignore it, as it is not a field."""

    __slots__ = ("_tree",)


@dataclass(frozen=True, slots=True, repr=False)
class SessionData(_Analysed):
    """The fields of a `Session`, which documents them and adds the analyses."""

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
    workers: tuple[WorkerUse, ...] = ()
    stacks: tuple[CodeStack, ...] = ()
    samples: tuple[LineSamples, ...] = ()
    others: int = -1
    held: int = 0
    beside: int = 0

    @property
    def disturbed(self) -> int:
        """The part of ``cpu_waited`` that other programs may have caused; the rest were waits for own threads, ns."""
        return self.cpu_waited if self.others < 0 else min(self.cpu_waited, self.others)
