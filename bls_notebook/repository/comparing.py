"""`compare`: one workload by `exec` one after the other, and by `async_exec` all at once; and why.

Guarantees: models whose instance counts are changed for it are as they were afterwards, also on an error and
on Ctrl-C (`instances`). The runs of both kinds alternate in random order, so that what else the machine does
hits both.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.recording.processor_time import Others, Processors, cores, held_part, rate
from bls_notebook.engine.recording.profile import profile
from bls_notebook.engine.waiting.ctrl_c import CtrlC
from bls_notebook.observe.analysis.quartiles import quartiles
from bls_notebook.observe.analysis.ratios import ratio, relative_error
from bls_notebook.observe.analysis.verdict import COUNTS, DISTURBED, verdict
from bls_notebook.observe.progress import Progress
from bls_notebook.observe.records.comparison import Comparison, Measured, Setting, Verification, failures
from bls_notebook.observe.records.session import Session

from .current import current_repository
from .instance_counts import with_instances
from .repository import ModelRepository

__all__ = ["compare"]

_Inputs = Mapping[str, Any]
_THREADS = 8  # at most, to see what the processors get done in parallel
_SHORT, _LONG = 0.02, 0.1  # seconds that this takes, at least and at most
_BUSY = 0.2  # of the time at work: that matters
# Rounds, each of both ways, where nobody said how many: until the doubt is so small, or for so many seconds.
_LEAST, _MOST, _SURE, _LONGEST = 5, 25, 0.03, 4.0
_comparing = threading.Lock()


def compare(
    model: str,
    inputs: _Inputs | Sequence[_Inputs],
    n: int = 8,
    instances: Iterable[int] | None = None,
    repeat: int | None = None,
    verify: bool = False,
    repo: ModelRepository | None = None,
) -> Comparison:
    """Compare sequential `exec` with gathered `async_exec`, and say why the one is, or is not, faster.

    Parameters
    ----------
    model : str
        Name of the model that the requests go to; it may call others.
    inputs : mapping of str to array, or sequence of these
        As `ModelRepository.infer` takes them; of a sequence, the requests take one after the other.
    n : int
        How many requests, from one caller.
    instances : iterable of int, optional
        Instance counts to measure too, such as ``(1, 2, 4)``: of the models that requests queue for, else of
        `model`. They are loaded again for it, and are as they were afterwards.
    repeat : int, optional
        How often each is run. By default five times, and where that leaves the speed-up in doubt, because
        what else the machine does changes it from run to run, up to 25 times within a few seconds.
    verify : bool
        Whether to run the change that is predicted to help most, if it is one of instance counts.
    repo : ModelRepository, optional
        By default the current one.

    Returns
    -------
    Comparison
        Its `verdict.sentence` says it; `sequential` and `gathered` are the sessions of the median runs.

    Raises
    ------
    BLSError
        A bad argument, or a model that is not loaded or cannot be loaded with other instance counts.

    Examples
    --------
    >>> found = bls.compare("digit_reader", {"IMAGE": image}, n=8, verify=True)
    >>> print(found.verdict.sentence)
    """
    for name, value in ("n", n), ("repeat", _LEAST if repeat is None else repeat):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BLSError(f"compare: {name}: got {value!r}, expected a whole number from 1 on")
    counts = _counts(instances)
    repository = current_repository() if repo is None else repo
    repository.config(model)  # a name that is not there is told now
    workload = _Workload(repository, model, _each(inputs, n))
    # Within this, Ctrl-C ends models and waits, and nothing between them.
    with CtrlC():
        if not _comparing.acquire(blocking=False):
            raise BLSError(
                "compare: another comparison is running in this process, and each would measure the other's "
                "requests; wait until it has ended"
            )
        try:
            with workload.told:
                return _compare(workload, counts, repeat, verify)
        finally:
            _comparing.release()


def _compare(workload: _Workload, counts: list[int], repeat: int | None, verify: bool) -> Comparison:
    told, each = workload.told, 2 * (1 + (repeat or _LEAST))  # both ways; the first time is not measured
    told.total = each * (1 + len(counts))
    warmed = workload.both()
    gil_share = -1.0 if warmed.failed else held_part(workload.sequential)
    now = _measure(workload, 0, repeat, gil_share, warmed)
    found = verdict(now.sequential, now.gathered, now.measured, {*COUNTS, *counts})
    settings = {0: now}
    models = found.models or _with_instances(now.gathered, workload.model)
    for count in random.sample(counts, len(counts)):
        settings[count] = _measure_with(workload, models, count, repeat, gil_share)
    verification = None
    if verify and found.count:
        told.total += 0 if found.count in settings else each
        try:
            changed = settings.get(found.count) or _measure_with(
                workload, models, found.count, repeat, gil_share
            )
        except BLSError as error:
            # What was measured until now is worth being seen.
            verification = Verification(models, found.count, found.predicted, 0.0, str(error))
        else:
            # Against exec at the same time: what else the machine does may have changed since.
            speedup = 0.0 if changed.problem else changed.measured.speedup
            doubt = changed.measured.relative_error
            verification = Verification(models, found.count, found.predicted, speedup, changed.problem, doubt)
    every = tuple(settings[c] for c in sorted(settings))
    rounds = len(now.gathered_walls)
    return Comparison(workload.model, workload.count, rounds, every, found, verification)


def _with_instances(session: Session, model: str) -> tuple[str, ...]:
    """The model, or of an ensemble, which has no instances, those of its steps."""
    seen = {m.name: bool(m.instances) for m in session.models}
    return (model,) if seen.get(model, True) else tuple(name for name, has in seen.items() if has)


def _counts(instances: Iterable[int] | None) -> list[int]:
    if instances is None:
        return []
    try:
        counts = sorted(set(instances))
        good = all(isinstance(c, int) and not isinstance(c, bool) and 1 <= c <= 64 for c in counts)
    except TypeError:
        good = False
    if not good:
        raise BLSError(f"compare: instances: got {instances!r}, expected counts from 1 to 64, as (1, 2, 4)")
    return counts


def _each(inputs: Any, n: int) -> list[_Inputs]:
    if isinstance(inputs, Mapping):
        return [inputs] * n
    if not isinstance(inputs, Sequence) or not inputs or not all(isinstance(i, Mapping) for i in inputs):
        raise BLSError(
            f"compare: inputs: got {type(inputs).__name__}, expected a dict of names to arrays, or a list of "
            "such"
        )
    return [inputs[i % len(inputs)] for i in range(n)]


class _Run(NamedTuple):
    """A session, the processor time that it took, and what its threads waited for processors (ns)."""

    session: Session
    used: int
    waited: int


class _Round(NamedTuple):
    """The workload once in each way."""

    sequential: _Run
    gathered: _Run

    @property
    def walls(self) -> tuple[int, int]:
        return self.sequential.session.wall, self.gathered.session.wall

    @property
    def failed(self) -> int:
        """How many of its requests failed."""
        return failures(self.sequential.session) + failures(self.gathered.session)


class _Workload:
    """The requests of one caller, to be sent in either way; each returns the session of its run."""

    _last: _Run

    def __init__(self, repository: ModelRepository, model: str, inputs: list[_Inputs]) -> None:
        self.repository, self.model, self._inputs = repository, model, inputs
        self.count = len(inputs)
        self.told = Progress(f"comparing {model}", unit="run")
        self._decoupled = repository.record(model).decoupled

    def both(self) -> _Round:
        """Send them in both ways, either first."""
        runs: dict[bool, _Run] = {}
        for together in random.sample((False, True), 2):
            runs[together] = self.gathered() if together else self.sequential()
        return _Round(runs[False], runs[True])

    def sequential(self) -> _Run:
        """Send one after the other."""
        repository, model = self.repository, self.model

        def run() -> None:
            with self._measured("exec, one after the other"):
                for inputs in self._inputs:
                    if self._decoupled:
                        for _ in repository.stream(model, inputs):
                            pass
                    else:
                        repository.infer(model, inputs)

        repository.run(run)
        return self._last

    def gathered(self) -> _Run:
        """Send all at once."""
        repository, model = self.repository, self.model

        async def one(inputs: _Inputs) -> None:
            if self._decoupled:
                async for _ in repository.stream_async(model, inputs):
                    pass
            else:
                await repository.infer_async(model, inputs)

        async def run() -> None:
            with self._measured("async_exec, gathered"):
                await asyncio.gather(*map(one, self._inputs))

        repository.run(run)
        return self._last

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        # Not within the profile: reading what threads have waited takes milliseconds.
        processors = Processors()
        with profile(name=name) as session:
            session.only_of(self.repository._sender.caller())
            yield
        used, waited = processors.used(), processors.waited()
        self._last = _Run(session.record, used, waited)
        self.told.total = max(self.told.total, self.told.done + 1)  # more rounds than were thought of
        self.told.step()


def _measure_with(
    workload: _Workload, models: Sequence[str], count: int, repeat: int | None, gil_share: float
) -> Setting:
    with with_instances(workload.repository, models, count):
        return _measure(workload, count, repeat, gil_share, workload.both())


def _measure(
    workload: _Workload, count: int, repeat: int | None, gil_share: float, warmed: _Round
) -> Setting:
    # Requests that fail are quick or slow for reasons of their own: a round in which some do is the last, and
    # the only one.
    rounds: list[_Round] = [warmed] if warmed.failed else []
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
    return Setting(
        count, sequential.session, gathered.session, measured, one, all_, quartiles(one), quartiles(all_),
    )  # fmt: skip


def _middle(runs: Iterable[_Run]) -> _Run:
    """Return the median run."""
    by_wall = sorted(runs, key=lambda run: run.session.wall)
    return by_wall[(len(by_wall) - 1) // 2]


def _kept(run: _Run, share: float) -> int:
    """Return how long other programs kept a run's threads from working, ns, by their share of the processors.

    No longer than others had them, nor than this process had not: the rest threads waited for each other.
    """
    whole = cores() * run.session.wall
    return max(0, min(run.waited, round(share * whole), whole - run.used))


def _enough(rounds: Sequence[_Round], repeat: int | None, ends: float) -> bool:
    """Whether there are rounds enough: as many as were asked for, or as it takes to tell the speed-up."""
    done = len(rounds)
    if done and rounds[-1].failed:
        return True
    if repeat is not None:
        return done >= repeat
    if done < _LEAST:
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
