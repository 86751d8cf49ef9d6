"""`compare` runs one workload by sequential `exec` and by gathered `async_exec`, and says why one is faster.

Of two profiles, it says what became faster or slower.

Guarantees: models whose instance counts are changed are restored afterwards, also on an error and on Ctrl-C
(`with_instances`). Runs of both kinds alternate in random order, so that other load on the machine affects
both.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from statistics import mean, stdev
from typing import Any, NamedTuple, overload

from bls_notebook.engine import BLSError
from bls_notebook.extending import Host, operation
from bls_notebook.progress import Progress
from bls_notebook.records import quartiles
from bls_notebook.repository import (
    ModelRepository,
    Response,
    correlation_ids,
    current_repository,
    sequence_options,
    sequence_spec,
    with_instances,
)

from .analysis.before_after import before_after
from .analysis.line_times import loop_shares, model_lines
from .analysis.verdict import verdict
from .analysis.verdict_evidence import COUNTS, comparison_evidence
from .analysis.workload_simulation import DISTURBED
from .compared_profiles import Profiled, is_profile, side_of
from .gil import gil_share_of
from .profiler import profile
from .records.before_after import BeforeAfter
from .records.comparison import Comparison, Measured, MeasuredSetting, Verdict, Verification, failures
from .records.verdicts import WORTH
from .resource_time import OtherPrograms, cores, parallel_throughput
from .session import Session
from .stack_samples import usual_turns

log = logging.getLogger("bls_notebook")
Inputs = Mapping[str, Any]
Turns = Sequence[tuple[float, float]]  # of two alternating measurements
_THREADS = 8  # at most, to measure parallel throughput of the processors
_SHORT, _LONG = 0.02, 0.1  # seconds of that measurement, at least and at most
_BUSY = 0.2  # part of the wall time with a busy processor from which its parallel throughput matters
# Default number of rounds of both ways: until the relative error is below _SURE, or for _LONGEST seconds.
LEAST, _MOST, _SURE, _LONGEST = 5, 25, 0.03, 4.0


def inputs_of_each(inputs: Any, n: int, who: str = "compare") -> list[Inputs]:
    if isinstance(inputs, Mapping):
        return [inputs] * n
    if not isinstance(inputs, Sequence) or not inputs or not all(isinstance(i, Mapping) for i in inputs):
        raise BLSError(
            f"{who}: inputs: got {type(inputs).__name__}, expected a dict of names to arrays, or a list of such"
        )
    return [inputs[i % len(inputs)] for i in range(n)]


def _sequences(host: Host, model: str, inputs: Sequence[Inputs]) -> list[dict[str, Any]]:
    """Return correlation IDs and flags: different inputs are the steps of a sequence, which begins again after them.

    Empty options for a model without sequences.
    """
    spec = sequence_spec(model, lambda name: host.ready(name).spec)
    steps = max(1, len({id(each) for each in inputs}))
    ids = [next(correlation_ids) for _ in inputs[::steps]]
    return [
        sequence_options(spec, ids[i // steps], i % steps, min(steps, len(inputs) - i // steps * steps))
        for i in range(len(inputs))
    ]


class Round(NamedTuple):
    """The workload once in each way."""

    sequential: Session
    gathered: Session

    @property
    def walls(self) -> tuple[int, int]:
        return self.sequential.wall, self.gathered.wall

    @property
    def failed(self) -> int:
        return failures(self.sequential) + failures(self.gathered)


class Workload:
    """The requests of one caller, to be sent in either way; each returns the session of its run."""

    _last: Session

    def __init__(self, repository: ModelRepository, model: str, inputs: list[Inputs]) -> None:
        self.repository, self.model, self.inputs = repository, model, inputs
        self.count = len(inputs)
        self.options = _sequences(Host(repository), model, inputs)
        self.told = Progress(f"comparing {model}", unit="run")
        self._decoupled = repository.model(model).decoupled
        if Host(repository).ready(model).server.rate_limiter is not None:
            log.warning(
                "%s: the repository limits rates, and verdicts and predictions do not know waits for resources: more "
                "instances or other code may gain nothing. Compare in a repository without rate_limit",
                model,
            )

    def both(self) -> Round:
        """Send the requests in both ways, in random order."""
        runs: dict[bool, Session] = {}
        for together in random.sample((False, True), 2):
            runs[together] = self.gathered() if together else self.sequential()
        return Round(runs[False], runs[True])

    def answered(self, response: Response) -> None:
        """Receive a response of a run, in the order of the requests; nothing by default."""

    def sequential(self, name: str = "exec, one after the other") -> Session:
        repository, model = self.repository, self.model

        def run() -> None:
            with self._measured(name):
                for inputs, options in zip(self.inputs, self.options, strict=True):
                    if self._decoupled:
                        for response in repository.stream(model, inputs, **options):
                            self.answered(response)
                    else:
                        self.answered(repository.infer(model, inputs, **options))

        repository.run(run)
        return self._last

    def gathered(self, name: str = "async_exec, gathered") -> Session:
        repository, model = self.repository, self.model

        async def one(inputs: Inputs, options: dict[str, Any]) -> list[Response]:
            if self._decoupled:
                return [response async for response in repository.stream_async(model, inputs, **options)]
            return [await repository.infer_async(model, inputs, **options)]

        async def run() -> None:
            with usual_turns(), self._measured(name):
                answers = await asyncio.gather(*map(one, self.inputs, self.options))
            for response in chain.from_iterable(answers):
                self.answered(response)

        repository.run(run)
        return self._last

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        with profile(name=name) as session:
            session.only_of_caller()
            yield
        self._last = session.record
        self.told.total = max(self.told.total, self.told.done + 1)  # more rounds than were thought of
        self.told.step()


def measure(workload: Workload, count: int, repeat: int | None, gil_share: float, warmed: Round) -> MeasuredSetting:
    # The time of a failed request says nothing about async, so a round with failures is the only one.
    rounds: list[Round] = [warmed] if warmed.failed else []
    speeds: list[tuple[float, float]] = []
    threads = min(cores(), _THREADS)
    others = OtherPrograms()
    ends = time.monotonic() + _LONGEST
    while not _enough(rounds, repeat, ends):
        rounds.append(workload.both())
        last = rounds[-1].sequential
        if rounds[-1].failed:
            rounds = rounds[-1:]
        elif count == 0 and last.cpu + last.cpu_waited > _BUSY * last.wall:
            # As long as the requests: a processor that had nothing to do takes a while to be quick.
            disturbed = _kept(last, others.share()) > DISTURBED * last.cpu
            seconds = _LONG if disturbed else min(max(_SHORT, rounds[-1].gathered.wall / 1e9), _LONG)
            speeds.append((parallel_throughput(threads, seconds), parallel_throughput(1, seconds)))
    share = others.share()
    sequential = middle(each.sequential for each in rounds)
    gathered = middle(each.gathered for each in rounds)
    walls = [each.walls for each in rounds]
    one, all_ = zip(*walls, strict=True)
    kept = _kept(sequential, share)
    measured = Measured(
        requests=sum(not s.parent for s in sequential.spans),
        sequential=sequential.wall,
        gathered=gathered.wall,
        cpu_sequential=sequential.cpu,
        cpu_gathered=gathered.cpu,
        waited_sequential=kept,
        waited_gathered=_kept(gathered, share),
        cores=cores(),
        parallel=_parallel(speeds, threads, kept > DISTURBED * sequential.cpu),
        gil_share=gil_share,
        of_rounds=ratio(walls),
        relative_error=relative_error(walls) if len(walls) > 2 else 0.0,
        failed=rounds[-1].failed,
    )
    lines = model_lines(*(each.sequential for each in rounds))
    return MeasuredSetting(count, sequential, gathered, measured, quartiles(one), quartiles(all_), lines)


def ratio(turns: Turns) -> float:
    """Return the ratio first / second: the geometric mean over the middle half of the turns.

    Turns with a measurement that is not positive do not count; 0 if none is left.
    """
    logs = _logs(turns)
    if not logs:
        return 0.0
    outer = len(logs) // 4
    return math.exp(mean(logs[outer : len(logs) - outer]))


def relative_error(turns: Turns) -> float:
    """Return the relative standard error of `ratio`; infinite for fewer than three turns.

    This is the error of the mean over all turns, which outliers increase: an estimate on the safe side.
    """
    logs = _logs(turns)
    return stdev(logs) / math.sqrt(len(logs)) if len(logs) > 2 else math.inf


def _logs(turns: Turns) -> list[float]:
    return sorted(math.log(a / b) for a, b in turns if a > 0 and b > 0)


def middle(runs: Iterable[Session]) -> Session:
    """Return the run with the median wall time."""
    by_wall = sorted(runs, key=lambda run: run.wall)
    return by_wall[(len(by_wall) - 1) // 2]


def _kept(run: Session, share: float) -> int:
    """Return how long other programs kept a run's threads from working, ns, by their share of the processors.

    No longer than others had them, nor than this process had not: the rest threads waited for each other.
    """
    whole = cores() * run.wall
    return max(0, min(run.cpu_waited, round(share * whole), whole - run.cpu))


def _enough(rounds: Sequence[Round], repeat: int | None, ends: float) -> bool:
    """Return whether the requested number of rounds, or the wanted precision, is reached."""
    done = len(rounds)
    if done and rounds[-1].failed:
        return True
    if repeat is not None:
        return done >= repeat
    if done < LEAST:
        return False
    return done >= _MOST or time.monotonic() > ends or relative_error([each.walls for each in rounds]) < _SURE


def _parallel(speeds: list[tuple[float, float]], threads: int, disturbed: bool) -> float:
    """Return how much more work several threads did than one; 0 if that was not measured."""
    if not speeds:
        return 0.0
    # Other programs starve a thread for a while, so only the sums are meaningful.
    together, alone = (sum(each) for each in zip(*speeds, strict=True))
    found = together / alone if disturbed else ratio(speeds)
    return min(max(1.0, found), float(threads))


_comparing = threading.Lock()


@overload
def compare(
    model: str,
    inputs: Inputs | Sequence[Inputs],
    n: int | None = None,
    instances: Iterable[int] | None = None,
    repeat: int | None = None,
    verify: bool = False,
    against: Profiled | None = None,
    repo: ModelRepository | None = None,
) -> Comparison: ...


@overload
def compare(model: Profiled, inputs: Profiled, /) -> BeforeAfter: ...


@operation
def compare(
    model: Any,
    inputs: Any,
    n: int | None = None,
    instances: Iterable[int] | None = None,
    repeat: int | None = None,
    verify: bool = False,
    against: Profiled | None = None,
    repo: ModelRepository | None = None,
) -> Comparison | BeforeAfter:
    """Compare two profiles, ``compare(before, after)``; or `exec` with `async_exec`, ``compare(model, inputs)``.

    Two profiles: what became faster or slower, by model and line, and which differences are noise. A workload:
    sequential `exec` and gathered `async_exec`, and why the one is, or is not, faster.

    Parameters
    ----------
    model : str, or a profile
        Name of the model that the requests go to; it may call others. Or the profile before: a `Profile`, a
        `Session`, a `Comparison`, the path of a saved one, or a list of repeated runs.
    inputs : mapping of str to array, or sequence of these; or a profile
        As `ModelRepository.infer` takes them; of a sequence, the requests take one after the other; for a model
        that batches sequences, they are the steps of each sequence. Or the profile after. Two profiles take
        no other arguments.
    n : int, optional
        Number of requests of one caller; 8 by default.
    instances : iterable of int, optional
        Other instance counts to measure, such as ``(1, 2, 4)``, of the models that requests queue for, else of
        `model`. These models are reloaded and restored afterwards.
    repeat : int, optional
        Number of runs of each way. By default 5, and up to 25 within a few seconds if the speedup varies.
    verify : bool
        Whether to run with the instance count that is predicted to help most.
    against : profile, optional
        An earlier profile of the workload; `Comparison.change` says what became faster or slower since.
    repo : ModelRepository, optional
        By default the current one.

    Returns
    -------
    Comparison, or BeforeAfter for two profiles
        Its `verdict.sentence` says it; `sequential` and `gathered` are the sessions of the median runs. Of two
        profiles, `sentence` says it, and `changes` has the times.

    Raises
    ------
    BLSError
        A bad argument, or a model that is not loaded or cannot be loaded with other instance counts.

    See Also
    --------
    tune : looks for the smallest setting, with a count for each model.
    overlap : finds independent calls inside a model.

    Examples
    --------
    >>> found = bls.compare("digit_reader", {"IMAGE": image}, n=8, verify=True)
    >>> print(found.verdict.sentence)
    >>> found.save("before.json")  # then change the model
    >>> bls.compare("before.json", bls.compare("digit_reader", {"IMAGE": image}))
    """
    if is_profile(inputs) or (is_profile(model) and not isinstance(model, str)):
        if verify or not all(each is None for each in (n, instances, repeat, against, repo)):
            raise BLSError("compare: two profiles take no other arguments, as nothing is run")
        return before_after(side_of(model, "before"), side_of(inputs, "after"))
    earlier = None if against is None else side_of(against, "before")
    n = 8 if n is None else n
    check_numbers("compare", n, repeat)
    counts = _counts(instances)
    repository = current_repository() if repo is None else repo
    repository.config(model)  # raises for an unknown name
    workload = Workload(repository, model, inputs_of_each(inputs, n))
    with alone("compare"), Host(repository).uncounted(), workload.told:
        found = _compare(workload, counts, repeat, verify)
    return found if earlier is None else replace(found, change=before_after(earlier, side_of(found, "after")))


def check_numbers(who: str, n: object, repeat: object) -> None:
    """Raise a BLSError unless both are whole numbers from 1."""
    for name, value in ("n", n), ("repeat", LEAST if repeat is None else repeat):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BLSError(f"{who}: {name}: got {value!r}, expected a whole number from 1 on")


@contextmanager
def alone(who: str) -> Iterator[None]:
    """Allow one comparison at a time in this process."""
    if not _comparing.acquire(blocking=False):
        raise BLSError(
            f"{who}: another comparison is running in this process, and each would measure the other's "
            "requests; wait until it has ended"
        )
    try:
        yield
    finally:
        _comparing.release()


class Judged(NamedTuple):
    """The measurement of a workload with the present instance counts, and its verdict."""

    setting: MeasuredSetting
    verdict: Verdict
    gil_share: float


def judged(workload: Workload, counts: Iterable[int], repeat: int | None) -> Judged:
    """Measure a workload with the present instance counts, and return the verdict."""
    warmed = workload.both()
    gil_share = -1.0 if warmed.failed else gil_share_of(workload.sequential)
    now = measure(workload, 0, repeat, gil_share, warmed)
    if any(model.decoupled and model.is_async for model in now.gathered.models):
        now = replace(now, measured=replace(now.measured, loops=loop_shares(now.gathered)))
    found = verdict(comparison_evidence(now.sequential, now.gathered, now.measured, {*COUNTS, *counts}))
    if found.cause in ("contention", "shared_instance"):
        found = with_line(found, now.gathered)
    return Judged(now, found, gil_share)


def _compare(workload: Workload, counts: list[int], repeat: int | None, verify: bool) -> Comparison:
    told, each = workload.told, 2 * (1 + (repeat or LEAST))  # both ways; the first time is not measured
    told.total = each * (1 + len(counts))
    now, found, gil_share = judged(workload, counts, repeat)
    settings = {0: now}
    models = found.models or _with_instances(now.gathered, workload.model)
    for count in random.sample(counts, len(counts)):
        settings[count] = _measure_with(workload, models, count, repeat, gil_share)
    verification = None
    if verify and found.count:
        told.total += 0 if found.count in settings else each
        try:
            changed = settings.get(found.count) or _measure_with(workload, models, found.count, repeat, gil_share)
        except BLSError as error:
            # Keep the measurements made so far.
            verification = Verification(models, found.count, found.predicted, 0.0, str(error))
        else:
            # Against today's exec, as predicted: with more instances of its callees exec is faster, too.
            speedup = 0.0 if changed.problem else now.sequential.wall / changed.gathered.wall
            doubt = changed.measured.relative_error
            verification = Verification(models, found.count, found.predicted, speedup, changed.problem, doubt)
            found = _as_it_proved(found, verification, changed)
    every = tuple(settings[c] for c in sorted(settings))
    return Comparison(workload.model, workload.count, now.gathered_quartiles.count, every, found, verification)


def with_line(found: Verdict, session: Session) -> Verdict:
    """Add the line where instances wait for each other to the advice of a verdict."""
    lines = next((each.lines for each in model_lines(session) if each.model == found.model and each.known), ())
    if not lines or lines[0].own <= 0.5:
        return found
    return replace(found, advice=f"Most of them stood at {lines[0].place}. {found.advice}")


def _as_it_proved(found: Verdict, verification: Verification, changed: MeasuredSetting) -> Verdict:
    """Return the verdict of the run with more instances if these wait for each other."""
    if (found.predicted and verification.measured * WORTH > found.predicted) or changed.problem:
        return found
    then = verdict(comparison_evidence(changed.sequential, changed.gathered, changed.measured))
    if then.cause not in ("contention", "shared_instance") or verification.measured > WORTH * found.speedup:
        return found
    words = then.sentence[:1].lower() + then.sentence[1:]
    # Of an instance by itself, the advice to try more is refuted.
    advice, _, _ = then.advice.partition(" More instances help if")
    then = replace(then, cause="contention", advice=advice, count=0, models=())
    return replace(then, speedup=found.speedup, sentence=f"More instances do not help, as was tried: {words}")


def _with_instances(session: Session, model: str) -> tuple[str, ...]:
    """Return the model, or an ensemble's models, because an ensemble has no instances."""
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


def _measure_with(
    workload: Workload, models: Sequence[str], count: int, repeat: int | None, gil_share: float
) -> MeasuredSetting:
    with with_instances(workload.repository, models, count):
        return measure(workload, count, repeat, gil_share, workload.both())
