"""`profile()` records the requests of a block of code as a session; `mark()` names a moment in it.

Guarantees: profiles may nest and overlap, in any threads, and each records everything while it is on. A
request sent before the profile began is not in it; a request unfinished at its end is in it, as open. The end
of the `with` block waits for nothing except the statistics of remote servers, for at most one second.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from time import perf_counter_ns

from bls_notebook.engine import BLSError, Execution, LoadedModel, caller_var, in_memory
from bls_notebook.engine.observer import Observed, Observer
from bls_notebook.extending import Scope
from bls_notebook.profiling.request_log import Log
from bls_notebook.profiling.span_recorder import Observation, running_log
from bls_notebook.records import StatisticsRecord, Times, why_not_batched
from bls_notebook.repository import statistics_record_of

from .gil import GilProbe
from .intervals import total_within
from .records.spans import WorkerUse
from .resource_time import OtherPrograms, ProcessorUse, cores, device_timer, workers
from .session import Session, SessionAnalysis
from .session_builder import server_counts, session_of, with_server_times
from .stack_sampler import StackSampler

_LONGEST = 200  # characters


def mark(name: str) -> None:
    """Name this moment: it becomes a labelled point on the timeline of every profile that is on.

    Call it in the notebook or in the code of models, in any thread or task; a model that also runs on Triton
    should import it only if bls_notebook is installed. Without a profile it does nothing.

    Parameters
    ----------
    name : str
        Such as ``"weights loaded"``; only the first 200 characters are kept.

    Raises
    ------
    BLSError
        `name` is no text.

    Examples
    --------
    >>> with bls.profile() as session:
    ...     bls.mark("warm")
    ...     repo.infer("digit_reader", {"IMAGE": image})
    >>> session.record.marks
    """
    if not isinstance(name, str):
        raise BLSError(f'mark: got {type(name).__name__}, expected text such as bls.mark("loaded")')
    log = running_log()
    if log is not None:
        observed = getattr(caller_var.get(), "observed", None)
        log.name(0 if observed is None else observed.span, perf_counter_ns(), str(name[:_LONGEST]))


DEFAULT_LIMIT = 100_000


class Profile(Scope, SessionAnalysis):
    """A recording of requests, running or ended; see `profile`. A `tape` records the tensors that they carry."""

    def __init__(
        self, limit: int = DEFAULT_LIMIT, name: str = "", lines: bool = True, tape: Observer | None = None
    ) -> None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise BLSError(f"profile: limit: got {limit!r}, expected a number of spans from 1 on")
        if not isinstance(name, str):
            raise BLSError(f"profile: name: got {name!r}, expected text")
        self.name = name
        self._limit = limit
        self._lines = lines
        self._tape = tape
        self._lock = threading.Lock()
        self._log: Log | None = None
        self._observation: Observation | None = None  # dropping it stops the recording
        self._record: Session | None = None
        self._began = ""
        self._start = self._end = 0
        self._base = 0  # ids of requests count from here
        self._dropped = 0
        self._sender = 0
        self._before: dict[LoadedModel, StatisticsRecord] = {}
        self._unbatched: tuple[str, ...] = ()
        self._servers: list[dict[tuple[str, int], StatisticsRecord]] = []  # at the begin and the end
        self._probe = GilProbe()
        self._sampler: StackSampler | None = None
        self._processors: ProcessorUse | None = None
        self._others: OtherPrograms | None = None
        self._share = -1.0  # of other programs in the time of the processors
        self._workers: dict[int, ProcessorUse] = {}  # by the number of the process
        self._beside = 0  # processor time of threads of libraries, ns
        self._used: tuple[WorkerUse, ...] = ()  # of this process, without an instance, and of the workers

    def _check(self) -> None:
        if self._start:
            raise BLSError("profile: it has been used already; make a new one: with bls.profile() as ...")

    def _enter(self) -> None:
        with self._lock:
            self._began = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            self._start = perf_counter_ns()
            self._observation = Observation(self._limit, device_timer(), self._lines, self._tape)
            self._log = self._observation.log
            self._base = self._log.base
            self._dropped = self._log.dropped
            self._before = _batch_statistics()
            self._servers = [server_counts()]
            self._others = OtherPrograms()  # before threads of our own start
            if self._tape is None:  # the probe would slow requests more than recording them does
                self._probe.start(self._log)
                if self._lines:
                    self._sampler = StackSampler(self._log)
                    self._sampler.start()
            self._processors = ProcessorUse()  # slow to read, so before the start time
            self._workers = {pid: ProcessorUse(pid) for pid in workers()}
            self._start = perf_counter_ns()

    def _leave(self) -> None:
        log = self._log
        if log is None or self._observation is None:
            return
        self._end = perf_counter_ns()
        self._probe.stop()
        if self._sampler is not None:
            self._sampler.stop()
        if self._processors is not None:
            uses = [("", self._processors)]
            turns = [-1]
            for pid, name in workers().items():
                uses.append((name, self._workers.get(pid) or ProcessorUse(pid, True)))
                turns.append(-1 if self._sampler is None else self._sampler.turns.get(pid, -1))
            used = [use.computing() for _, use in uses]
            self._used = tuple(
                WorkerUse(name, cpu, use.waited(), ns)
                for (name, use), (cpu, _), ns in zip(uses, used, turns, strict=True)
            )
            self._beside = used[0][1]
            assert self._others is not None
            self._share = self._others.share(sum(use.cpu for use in self._used[1:]))
        try:
            self._dropped = log.dropped - self._dropped
            self._unbatched = _unbatched(self._before)
            self._servers.append(server_counts())
        finally:
            self._before = {}
            self._observation = None

    def only_of_caller(self) -> None:
        """Keep only the requests that this code sends from now on and those they cause; call it after entering."""
        log, caller = self._log, caller_var.get()
        assert log is not None and isinstance(caller, Execution)
        caller.observed = Observed()
        self._sender = caller.observed.span = log.take()

    @property
    def running(self) -> bool:
        """Return whether the profile is on."""
        return self._start > 0 and not self._end

    @property
    def record(self) -> Session:
        """The session; while the profile is on, the session so far."""
        with self._lock:
            if self._record is not None:
                return self._record
            log = self._log
            if log is None:
                return Session(name=self.name)
            end, dropped = self._end, self._dropped
            if not end:
                end, dropped = perf_counter_ns(), log.dropped - dropped
            session = session_of(
                log, self._start, end, self._limit, self._began, self.name, dropped, self._sender, self._sampler
            )
            held = self._probe.held(self._start, end)
            cpu, waited = (sum(getattr(use, field) for use in self._used) for field in ("cpu", "cpu_waited"))
            processors = cores()
            session = replace(
                session, lock=held, cpu=cpu, cpu_waited=waited, cores=processors, workers=self._used[1:],
                held=total_within(self._probe.late(self._start), ((s.sent, s.ended) for s in session.spans)),
                others=-1 if self._share < 0 else round(self._share * processors * session.wall),
                unbatched=self._unbatched if self._end else _unbatched(self._before), beside=self._beside,
            )  # fmt: skip
            if self._end:
                session = with_server_times(session, *self._servers)
                self._record, self._log, self._sampler = session, None, None
            return session

    def __repr__(self) -> str:
        state = "on" if self.running else "off"
        return f"<profile {self.name!r}, {state}>" if self.name else f"<profile, {state}>"


def profile(limit: int = DEFAULT_LIMIT, name: str = "", lines: bool = True) -> Profile:
    """Record requests: a span for each, in the phases of Triton's statistics.

    Requests of every repository of this process are recorded, from the notebook and from models.

    Parameters
    ----------
    limit : int
        The number of spans, and of responses of streams, to keep; `Session.dropped` counts further ones.
    name : str
        The session's name in pictures and comparisons.
    lines : bool
        Whether to record the code and the shapes of each request for the timeline, and to sample the time
        by line. Without it a request costs a little less.

    Returns
    -------
    Profile
        A context manager. Its `record` is the `Session`; it has the methods of the session.

    Raises
    ------
    BLSError
        The limit is no positive number, or a profile is entered twice.

    Examples
    --------
    >>> with bls.profile(name="four at once") as session:
    ...     repo.infer("digit_reader", {"IMAGE": image})
    >>> session.statistics().queued, session.critical_path(), session.graph()
    >>> session.save("four.json")
    """
    return Profile(limit, name, lines)


def _batch_statistics() -> dict[LoadedModel, StatisticsRecord]:
    """Return the statistics of the local models that batch."""
    local = (model for model in list(in_memory) if not model.seen.remote)
    return {model: statistics_record_of(model) for model in local if model.spec.max_batch_size > 1}


def _unbatched(before: Mapping[LoadedModel, StatisticsRecord]) -> tuple[str, ...]:
    """Return a line for each batching model whose requests have run one by one since `before`."""
    lines = []
    for model, now in _batch_statistics().items():
        then = before.get(model, StatisticsRecord(model.name))
        since = replace(
            now,
            inferences=now.inferences - then.inferences,
            executions=now.executions - then.executions,
            success=Times(now.compute_infer.count - then.compute_infer.count),
            cache_hit=Times(),
            waited=now.waited - then.waited,
            ended=tuple((Counter(dict(now.ended)) - Counter(dict(then.ended))).items()),
        )
        why = why_not_batched(since)
        if why is not None:
            lines.append(f"`{model.name}`: {why.sentence}")
    return tuple(sorted(lines))
