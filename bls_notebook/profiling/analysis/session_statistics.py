"""Statistics of a session: wall time, overlap, queues, and a row for each model. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bls_notebook.profiling.intervals import events, occupied, total
from bls_notebook.profiling.records.spans import ModelSeen, SessionData, Span, WorkerUse
from bls_notebook.records import NONE, Quartiles, Record, grouped, quartiles

from .critical_path import Fields, path
from .span_tree import SpanTree


@dataclass(frozen=True, slots=True, repr=False)
class ModelStatistics(Record):
    """One model version; times are ns.

    ``busy`` is the sum over its instances. It is roughly ``self_time`` (no callee was in flight) plus
    ``waiting`` (at least one was); both count an execution once, whatever its batch. ``critical`` is the part of
    the session's critical path spent in this model.
    """

    name: str
    version: int = 1
    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    unfinished: int = 0
    cached: int = 0
    executions: int = 0
    instances: int = 0
    busy: int = 0
    self_time: int = 0
    waiting: int = 0
    queued: int = 0
    duration: Quartiles = NONE
    device_ns: int = -1
    bytes_in: int = 0
    bytes_out: int = 0
    crossings: int = 0
    critical: int = 0
    stub: bool = False  # a stub answered instead of the model
    remote: str = ""  # address of the server that runs the model
    processes: bool = False  # its instances are processes
    cpu: int = -1  # their processor time; -1 if unknown
    turns: int = -1  # the time in which threads of one of them took turns with its GIL; -1 if unknown


@dataclass(frozen=True, slots=True, repr=False)
class SessionStatistics(Record):
    """A session in figures; times are ns.

    A request is *at work* while its model runs, but not while that waits for callees. ``busy`` is the time
    with at least one request at work, ``overlap`` the time with at least two. ``work`` is the sum over all
    requests, so ``work / busy`` is the mean concurrency; ``peak`` is the highest. ``queued`` is the sum of the
    waits for an instance, ``waited`` the time in which at least one request waited. ``notebook`` is the part
    of the critical path in which no request was in flight. Models sent ``calls`` of the ``requests``.
    """

    wall: int = 0
    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    unfinished: int = 0
    cached: int = 0
    dropped: int = 0
    busy: int = 0
    work: int = 0
    overlap: int = 0
    peak: int = 0
    queued: int = 0
    waited: int = 0
    notebook: int = 0
    models: tuple[ModelStatistics, ...] = ()
    calls: int = 0

    @property
    def concurrency(self) -> float:
        """The mean number of requests at work, over the time in which any was."""
        return self.work / self.busy if self.busy else 0.0


def session_statistics(session: SessionData) -> SessionStatistics:
    tree = SpanTree.of(session)
    work = occupied(tree.working_events())
    waits = occupied(events([(s.queued, s.started) for s in session.spans if s.started > s.queued]))
    steps = path(session, tree)
    models = _models(session, tree, steps)
    states = Counter([span.state for span in session.spans])
    return SessionStatistics(
        wall=session.wall,
        requests=len(session.spans),
        failed=states["error"],
        cancelled=states["cancelled"],
        unfinished=states["open"],
        cached=sum(s.cached for s in session.spans),
        dropped=session.dropped,
        busy=work.once,
        work=work.sum,
        overlap=work.twice,
        peak=work.most,
        queued=waits.sum,
        waited=waits.once,
        notebook=sum([end - begin for begin, end, _, phase, *_ in steps if phase == "notebook"]),
        models=models,
        calls=sum(span.parent > 0 for span in session.spans),
    )


def _models(session: SessionData, tree: SpanTree, steps: list[Fields]) -> tuple[ModelStatistics, ...]:
    spans = grouped(((span.model, span.version), span) for span in session.spans)
    seen = {(m.name, m.version): m for m in session.models}
    critical: Counter[tuple[str, int]] = Counter()
    for begin, end, _, _, model, version, *_ in steps:
        critical[model, version] += end - begin
    workers = {worker.instance: worker for worker in session.workers}
    return tuple(
        _model(key, group, tree, seen.get(key), critical[key], workers) for key, group in sorted(spans.items())
    )


def _model(
    key: tuple[str, int], spans: list[Span], tree: SpanTree, seen: ModelSeen | None, critical: int,
    workers: dict[str, WorkerUse],
) -> ModelStatistics:  # fmt: skip
    apart = seen is not None and seen.processes
    used = [workers[name] for name in seen.instances if name in workers] if seen is not None and apart else []
    turns = [use.turns for use in used if use.turns >= 0]
    ran = [s for s in spans if s.instance]
    by_instance = grouped((s.instance, (s.started, s.ended)) for s in ran if not tree.is_ensemble(s))
    executions = {tree.execution(span.id) for span in ran}
    self_time = served = 0
    measured = []
    for execution in executions:
        first = tree.members[execution][0]
        length = first.ended - first.started
        served += length
        self_time += total(tree.self_time(execution)) if execution in tree.children else length
        measured.append(first.device_ns)
    states = Counter([s.state for s in spans])
    return ModelStatistics(
        name=key[0],
        version=key[1],
        requests=len(spans),
        failed=states["error"],
        cancelled=states["cancelled"],
        unfinished=states["open"],
        cached=sum([s.cached for s in spans]),
        executions=len(executions),
        instances=len(seen.instances) if seen is not None else len({s.instance for s in ran}),
        busy=sum(occupied(events(each)).once for each in by_instance.values()),
        self_time=self_time,
        waiting=served - self_time,
        queued=sum([s.started - s.queued for s in spans]),
        duration=quartiles([s.ended - s.sent for s in spans]),
        device_ns=sum(ns for ns in measured if ns >= 0) if max(measured, default=-1) >= 0 else -1,
        bytes_in=sum([s.bytes_in for s in spans]),
        bytes_out=sum([s.bytes_out for s in spans]),
        crossings=sum([s.crossings for s in spans]),
        critical=critical,
        stub=seen is not None and seen.stub,
        remote="" if seen is None else seen.remote,
        processes=apart,
        cpu=sum(use.cpu for use in used) if apart and workers else -1,
        turns=sum(turns) if turns else -1,
    )
