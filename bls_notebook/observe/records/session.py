"""What a profile recorded: a span for each request, in Triton's phases. Frozen, JSON-able, not drawn here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.observe.records.plain import Record

if TYPE_CHECKING:
    from bls_notebook.observe.analysis.call_graph import CallGraph
    from bls_notebook.observe.analysis.critical_path import Step
    from bls_notebook.observe.analysis.difference import Difference
    from bls_notebook.observe.analysis.session_statistics import Level, SessionStatistics

__all__ = ["SCHEMA", "Answers", "Mark", "ModelSeen", "Session", "Span"]

SCHEMA = 1


@dataclass(frozen=True, slots=True, repr=False)
class Mark(Record):
    """A moment within a span; ``kind`` is response (of a stream), final, or cancelled."""

    ns: int
    kind: str = "response"


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
class ModelSeen(Record):
    """A model version that served a span, as it was configured then.

    ``scheduler`` is default, dynamic_batching, sequence_batching or ensemble; ``code`` is a hash of the
    source and ``config`` one of the completed configuration: equal hashes mean the same code.
    """

    name: str
    version: int = 1
    backend: str = ""
    scheduler: str = "default"
    instances: tuple[str, ...] = ()
    max_batch_size: int = 0
    decoupled: bool = False
    is_async: bool = False
    code: str = ""
    config: str = ""


class Answers:
    """What a session answers; for those that have one, as `record`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def record(self) -> Session:
            """The session."""

    def statistics(self) -> SessionStatistics:
        """Return the session's figures: wall, busy, queued, overlap, per model and per instance."""
        from bls_notebook.observe.analysis.session_statistics import session_statistics

        return session_statistics(self.record)

    def concurrency(self) -> tuple[Level, ...]:
        """Return how many requests were worked on, and how many waited, from moment to moment."""
        from bls_notebook.observe.analysis.session_statistics import concurrency

        return concurrency(self.record)

    def critical_path(self) -> tuple[Step, ...]:
        """Return what the wall time was spent on, step by step: a faster step makes the whole faster."""
        from bls_notebook.observe.analysis.critical_path import critical_path

        return critical_path(self.record)

    def graph(self) -> CallGraph:
        """Return who called whom, as it was seen."""
        from bls_notebook.observe.analysis.call_graph import call_graph

        return call_graph(self.record)

    def diff(self, after: Answers) -> Difference:
        """Compare with a later session of the same workload.

        Parameters
        ----------
        after : Session, or what has one as `record`
        """
        from bls_notebook.observe.analysis.difference import difference

        return difference(self.record, after.record)

    def save(self, path: str | Path) -> Path:
        """Write the session to a file; what its name ends with says how.

        Parameters
        ----------
        path : str or Path
            ``.json`` and ``.json.gz`` can be read again by `load_session`; ``.pftrace`` and
            ``.perfetto-trace`` are for ui.perfetto.dev (need the package `perfetto`), ``.trace.json`` is
            for chrome://tracing, ``.csv`` for tables.

        Returns
        -------
        Path

        Raises
        ------
        BLSError
            Another ending, it cannot be written, or the package `perfetto` is needed and not there.
        """
        from bls_notebook.observe.export import save

        return save(self.record, path)


@dataclass(frozen=True, slots=True, repr=False)
class Session(Record, Answers):
    """Everything that happened while a profile was on.

    ``began`` is the wall-clock time (ISO 8601, UTC), ``wall`` the length in nanoseconds; ``spans`` are in
    the order of ``sent``; ``dropped`` counts the spans that did not fit into the limit.
    """

    spans: tuple[Span, ...] = ()
    models: tuple[ModelSeen, ...] = ()
    wall: int = 0
    began: str = ""
    name: str = ""
    dropped: int = 0
    schema: int = SCHEMA

    @property
    def record(self) -> Session:
        """The session itself: functions take it, or what has one."""
        return self
