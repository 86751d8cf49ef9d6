"""A workload run by sequential `exec` and by gathered `async_exec`, in random order, with its figures."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.records.measurements import quartiles, ratio, relative_error
from bls_notebook.records.progress import Progress
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.requests.response import Response

from .analysis.verdict import DISTURBED
from .recording.processor_time import Others, cores, rate
from .recording.profiler import profile
from .records.comparison import Measured, MeasuredSetting, failures
from .records.session import Session

Inputs = Mapping[str, Any]
_THREADS = 8  # at most, to see what the processors get done in parallel
_SHORT, _LONG = 0.02, 0.1  # seconds that this takes, at least and at most
_BUSY = 0.2  # of the time at work: that matters
# Rounds, each of both ways, where nobody said how many: until the doubt is so small, or for so many seconds.
LEAST, _MOST, _SURE, _LONGEST = 5, 25, 0.03, 4.0


def inputs_of_each(inputs: Any, n: int, who: str = "compare") -> list[Inputs]:
    if isinstance(inputs, Mapping):
        return [inputs] * n
    if not isinstance(inputs, Sequence) or not inputs or not all(isinstance(i, Mapping) for i in inputs):
        raise BLSError(
            f"{who}: inputs: got {type(inputs).__name__}, expected a dict of names to arrays, or a list of such"
        )
    return [inputs[i % len(inputs)] for i in range(n)]


class Run(NamedTuple):
    """A session, the processor time that it took, what its threads waited for processors, its begin; ns."""

    session: Session
    used: int
    waited: int
    began: int = 0


class Round(NamedTuple):
    """The workload once in each way."""

    sequential: Run
    gathered: Run

    @property
    def walls(self) -> tuple[int, int]:
        return self.sequential.session.wall, self.gathered.session.wall

    @property
    def failed(self) -> int:
        """How many of its requests failed."""
        return failures(self.sequential.session) + failures(self.gathered.session)


class Workload:
    """The requests of one caller, to be sent in either way; each returns the session of its run."""

    _last: Run

    def __init__(self, repository: ModelRepository, model: str, inputs: list[Inputs]) -> None:
        self.repository, self.model, self.inputs = repository, model, inputs
        self.count = len(inputs)
        self.told = Progress(f"comparing {model}", unit="run")
        self._decoupled = repository.record(model).decoupled

    def both(self) -> Round:
        """Send them in both ways, either first."""
        runs: dict[bool, Run] = {}
        for together in random.sample((False, True), 2):
            runs[together] = self.gathered() if together else self.sequential()
        return Round(runs[False], runs[True])

    def answered(self, response: Response) -> None:
        """Take note of an answer of a sequential run; nothing by default."""

    def sequential(self, name: str = "exec, one after the other") -> Run:
        repository, model = self.repository, self.model

        def run() -> None:
            with self._measured(name):
                for inputs in self.inputs:
                    if self._decoupled:
                        for _ in repository.stream(model, inputs):
                            pass
                    else:
                        self.answered(repository.infer(model, inputs))

        repository.run(run)
        return self._last

    def gathered(self) -> Run:
        repository, model = self.repository, self.model

        async def one(inputs: Inputs) -> None:
            if self._decoupled:
                async for _ in repository.stream_async(model, inputs):
                    pass
            else:
                await repository.infer_async(model, inputs)

        async def run() -> None:
            with self._measured("async_exec, gathered"):
                await asyncio.gather(*map(one, self.inputs))

        repository.run(run)
        return self._last

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        with profile(name=name) as session:
            began = time.perf_counter_ns()
            session.only_of(cast(Execution, caller_var.get()))
            yield
        found = session.record
        self._last = Run(found, found.cpu, found.cpu_waited, began)
        self.told.total = max(self.told.total, self.told.done + 1)  # more rounds than were thought of
        self.told.step()


def measure(workload: Workload, count: int, repeat: int | None, gil_share: float, warmed: Round) -> MeasuredSetting:
    # Requests that fail are quick or slow for reasons of their own: a round in which some do is the last, and
    # the only one.
    rounds: list[Round] = [warmed] if warmed.failed else []
    speeds: list[tuple[float, float]] = []
    threads = min(cores(), _THREADS)
    others = Others()
    ends = time.monotonic() + _LONGEST
    while not _enough(rounds, repeat, ends):
        rounds.append(workload.both())
        last = rounds[-1].sequential
        if rounds[-1].failed:
            rounds = rounds[-1:]
        elif count == 0 and last.used + last.waited > _BUSY * last.session.wall:
            # As long as the requests: a processor that had nothing to do takes a while to be quick.
            disturbed = _kept(last, others.share()) > DISTURBED * last.used
            seconds = _LONG if disturbed else min(max(_SHORT, rounds[-1].gathered.session.wall / 1e9), _LONG)
            speeds.append((rate(threads, seconds), rate(1, seconds)))
    share = others.share()
    sequential = _middle(each.sequential for each in rounds)
    gathered = _middle(each.gathered for each in rounds)
    walls = [each.walls for each in rounds]
    one, all_ = (tuple(each) for each in zip(*walls, strict=True))
    kept = _kept(sequential, share)
    measured = Measured(
        requests=sum(not s.parent for s in sequential.session.spans),
        sequential=sequential.session.wall,
        gathered=gathered.session.wall,
        cpu_sequential=sequential.used,
        cpu_gathered=gathered.used,
        waited_sequential=kept,
        waited_gathered=_kept(gathered, share),
        cores=cores(),
        parallel=_parallel(speeds, threads, kept > DISTURBED * sequential.used),
        gil_share=gil_share,
        of_rounds=ratio(walls),
        relative_error=relative_error(walls) if len(walls) > 2 else 0.0,
        failed=rounds[-1].failed,
    )
    return MeasuredSetting(
        count, sequential.session, gathered.session, measured, one, all_, quartiles(one), quartiles(all_),
    )  # fmt: skip


def _middle(runs: Iterable[Run]) -> Run:
    by_wall = sorted(runs, key=lambda run: run.session.wall)
    return by_wall[(len(by_wall) - 1) // 2]


def _kept(run: Run, share: float) -> int:
    """Return how long other programs kept a run's threads from working, ns, by their share of the processors.

    No longer than others had them, nor than this process had not: the rest threads waited for each other.
    """
    whole = cores() * run.session.wall
    return max(0, min(run.waited, round(share * whole), whole - run.used))


def _enough(rounds: Sequence[Round], repeat: int | None, ends: float) -> bool:
    """Whether there are rounds enough: as many as were asked for, or as it takes to tell the speed-up."""
    done = len(rounds)
    if done and rounds[-1].failed:
        return True
    if repeat is not None:
        return done >= repeat
    if done < LEAST:
        return False
    walls = [each.walls for each in rounds]
    return done >= _MOST or time.monotonic() > ends or relative_error(walls) < _SURE


def _parallel(speeds: list[tuple[float, float]], threads: int, disturbed: bool) -> float:
    """Return how many times as much as one thread several got done; 0 where that was not measured."""
    if not speeds:
        return 0.0
    # Beside other programs a thread gets much or nothing for a while, so that only the sums say something.
    together, alone = (sum(each) for each in zip(*speeds, strict=True))
    found = together / alone if disturbed else ratio(speeds)
    return min(max(1.0, found), float(threads))
