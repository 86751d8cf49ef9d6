"""`tune` finds the fewest instances, and the batches, that bring a workload near the best possible time.

Guarantees: models are restored afterwards, also on an error and on Ctrl-C (`with_fields`). Nothing is
predicted where more instances cannot help: instances that wait for each other, answers from the cache,
requests that fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.schedulers.batch_queue import BatchRules, form
from bls_notebook.repository.repository import ModelRepository, current_repository
from bls_notebook.repository.substitution.variant import with_fields

from .analysis.queue_simulation import UNLIMITED, Batcher, Machine, Queued
from .analysis.setting_search import (
    MOST,
    NOTHING_TO_TUNE,
    Found,
    Setting,
    Space,
    advice,
    config_lines,
    hop,
    search,
    sentence,
    uses,
)
from .analysis.span_tree import SpanTree
from .analysis.verdict import SimulatedWorkload, verdict
from .model_costs import InstanceMemory, batch_times, memory_of_instance, seen_requests, time_of
from .records.comparison import Verdict, failures
from .records.tuning import ModelSetting, TunedModel, Tuning, Walls
from .sync_vs_async import Judged, alone, check_numbers, judged, with_line
from .tuned_config import fields_of, group_as_written, model_analyzer_yaml, setting_of, shapes_of
from .workload import LEAST, Inputs, Workload, inputs_of_each, measure

_GAIN = 0.9  # of the time that as many requests take alone: so much less is worth a batch
_BUSY = ("gil", "cores")  # causes with which no number of instances helps in this kernel
_CONFIRMED = 1.25  # times as long as predicted, at most


def tune(
    model: str,
    inputs: Inputs | Sequence[Inputs],
    n: int = 8,
    verify: bool = False,
    repeat: int | None = None,
    repo: ModelRepository | None = None,
) -> Tuning:
    """Find the smallest setting with which requests that are sent at once take about as little as they can.

    The requests are run as `compare` runs them, and replayed with other instance counts (1 to 64, of every
    model that they reach) and, for models that take batches, other sizes, preferred sizes and delays. Found
    is the setting with the fewest instances that gets 95% of the best. It holds for this many requests at
    once: choose `n` as large as the load that you expect. `Tuning.on_server` is for a Triton server with as
    many processors, where each instance is a process with a Python of its own; the rest is for this kernel.

    It is a function of its own, and not an option of `compare`, as its result is a setting and no
    comparison: of what was measured with the models as they are it keeps the verdict.

    Parameters
    ----------
    model : str
        Name of the model that the requests go to; it may call others.
    inputs : mapping of str to array, or sequence of these
        As `ModelRepository.infer` takes them; of a sequence, the requests take one after the other.
    n : int
        How many requests are sent at once.
    verify : bool
        Whether to run what was found, and to compare predicted with measured.
    repeat : int, optional
        How often each is run; see `compare`.
    repo : ModelRepository, optional
        By default the current one.

    Returns
    -------
    Tuning
        Its ``sentence`` says it; ``pbtxt`` has what changes in config.pbtxt, ``model_analyzer`` a
        configuration for Model Analyzer. `save` writes either.

    Raises
    ------
    BLSError
        A bad argument, or a model that is not loaded.

    Notes
    -----
    Models that take batches, and call nobody, are loaded a second time with one instance, and asked for
    batches of 1, 2, 4 ... of the requests that they were seen to get. So is one instance of each model that
    would get more of them, to see what memory it takes.

    Examples
    --------
    >>> found = bls.tune("digit_reader", {"IMAGE": image}, n=16, verify=True)
    >>> print(found.sentence)
    >>> found.save("model_analyzer.yaml")
    """
    check_numbers("tune", n, repeat)
    repository = current_repository() if repo is None else repo
    repository.config(model)  # a name that is not there is told now
    workload = Workload(repository, model, inputs_of_each(inputs, n, "tune"))
    workload.told.what = f"tuning {model}"
    with alone("tune"), workload.told:
        return _tune(workload, verify, repeat)


def _tune(workload: Workload, verify: bool, repeat: int | None) -> Tuning:
    workload.told.total = (3 + verify) * (repeat or LEAST)
    seen = judged(workload, (), repeat)
    if seen.verdict.cause in NOTHING_TO_TUNE:
        return _result(workload, seen, None)
    found = _result(workload, seen, _Tuner(workload, seen))
    if verify and found.changed:
        found = _verified(workload, found, len(seen.setting.gathered_walls))
    return found


class _Tuner:
    def __init__(self, workload: Workload, seen: Judged) -> None:
        self._repository = workload.repository
        setting = seen.setting
        self._case = case = SimulatedWorkload(setting.sequential, setting.gathered, setting.measured)
        spans = setting.gathered.spans
        self._keys = [key for key, n in case.capacity.items() if n < UNLIMITED]
        names = dict.fromkeys(name for name, _ in self._keys)
        self.now: Setting = {name: setting_of(self._repository, name) for name in names}
        self._reached = {name: sum(s.model == name and s.ran for s in spans) for name in names}
        self._memory = dict.fromkeys(names, InstanceMemory())
        self.unseen: list[str] = []
        self._times = self._batch_times(workload)
        measured = setting.measured
        sampled = []
        for run, looks in seen.seen:
            since = run.began
            during = [x._replace(begin=x.begin - since, end=x.end - since) for x in looks]
            sampled.append((run.session, during))
        # Beside other programs, what several threads got done says little of the machine.
        processors = float(measured.cores if case.disturbed else measured.parallel or measured.cores)
        kept = measured.waited_sequential / max(1, measured.cpu_sequential)
        used = uses(sampled, kept)
        cpu = measured.cpu_sequential, measured.cpu_gathered
        each = hop(setting.sequential, setting.gathered, cpu, used)
        self._machine = Machine(processors, used, each)
        self._busy = seen.verdict.cause in _BUSY
        self.replays = 0
        found = self._found()
        self.walls = tuple(Walls(each.now, each.wall, each.best) for each in found)
        self.models = self._models(*found)

    def _found(self) -> tuple[Found, Found]:
        """What is found for this kernel, and for a server."""
        here = self._search(self._machine, self._busy)
        raised = [name for name, each in here.setting.items() if each.count > self.now[name].count]
        for name in raised:
            try:
                self._memory[name] = memory_of_instance(self._repository, name)
            except BLSError as error:
                self.unseen.append(f"what memory an instance of `{name}` takes was not seen: {error}")
        if any(here.setting[name].count > self._most(name) for name in raised):
            here = self._search(self._machine, self._busy)
        return here, self._search(self._machine.apart())

    def _models(self, here: Found, there: Found) -> tuple[TunedModel, ...]:
        out = []
        for name, version in self._keys:
            group = self._repository.config(name).instance_group[0]
            kind = type(group).Kind.Name(group.kind)
            memory = self._memory[name]
            settings = self.now[name], here.setting[name], there.setting[name]
            out.append(
                TunedModel(
                    name, version, *settings, kind, max(1, len(group.gpus)),
                    group_as_written(self._repository, name), self._times.get(name, ()),
                    memory.host, memory.device, self._most(name),
                )
            )  # fmt: skip
        return tuple(out)

    def _search(self, machine: Machine, busy: bool = False) -> Found:
        case = self._case
        self._space = space = Space(
            requests=case.requests,
            sent=(),  # what sending takes, the engine's part says
            capacity=case.capacity,
            now=self.now,
            ways={name: self._ways(name) for name in self.now},
            most={name: now.count if busy else self._most(name) for name, now in self.now.items()},
            batcher=self._batcher,
            machine=machine,
        )
        found = search(space)
        self.replays += space.replays
        return found

    def _most(self, name: str) -> int:
        """How many instances anybody could use, and there is memory for beside what others may take."""
        now, room = self.now[name].count, self._memory[name].room
        most = MOST if room < 0 else now + room // max(1, len(self.now))
        return max(now, min(MOST, self._reached[name], most))

    # -- batches ---------------------------------------------------------------------------------------

    def _batch_times(self, workload: Workload) -> dict[str, tuple[tuple[int, int], ...]]:
        names = [name for name in self.now if self._may_batch(name)]
        if not names:
            return {}
        with seen_requests(self._repository, names) as seen:
            workload.sequential()
        out = {}
        for name, requests in seen.items():
            if not requests:
                self.unseen.append(f"batches of `{name}` were not measured, as its inputs lie on a GPU")
                continue
            rows = max(rows for _, rows in requests)
            most = min(MOST, self._reached[name]) * rows
            try:
                times = batch_times(self._repository, name, requests, most)
            except BLSError as error:
                self.unseen.append(f"batches of `{name}` were not measured: {error}")
                continue
            if times:
                out[name] = times
        return out

    def _may_batch(self, name: str) -> bool:
        """Whether a model takes batches, and calls nobody: what a batch of callers takes is not known."""
        config = self._repository.config(name)
        tree = SpanTree(self._case.gathered)
        calls = any(tree.children.get(e) for e, m in tree.members.items() if m[0].model == name)
        other = config.HasField("sequence_batching") or config.model_transaction_policy.decoupled
        return config.max_batch_size > 0 and self._reached[name] > 1 and not calls and not other

    def _ways(self, name: str) -> list[ModelSetting]:
        now = self.now[name]
        times = self._times.get(name, ())
        ways = [now]
        if not times:
            return ways
        rows, alone_ns = times[0]
        for size, took in times[1:]:
            if took > _GAIN * size / rows * alone_ns:
                continue
            # Never less than now: somebody may send as many rows in one request.
            most = max(size, now.max_batch_size)
            base = replace(now, max_batch_size=most, batches=True, preferred=(size,), delay=0)
            delays = sorted({_rounded(alone_ns / part) for part in (8, 2)} - {0})
            ways += [base, *(replace(base, delay=delay) for delay in delays)]
            if size >= 4 * rows and delays:
                ways.append(replace(base, preferred=(size // 2, size), delay=delays[-1]))
        return ways

    def _batcher(self, name: str, setting: ModelSetting) -> Batcher | None:
        times = self._times.get(name)
        if times is None:
            # It was not asked for other sizes: where it batches now, as it was seen to.
            seen = next((each for key, each in self._case.batches.items() if key[0] == name), None)
            return None if seen is None else Batcher.greedy(*seen)
        if not setting.batches:
            return None
        rules = BatchRules(max(1, setting.max_batch_size), frozenset(setting.preferred), setting.delay * 1000)

        def formed(queue: Sequence[Queued], now: int) -> tuple[int, int | None]:
            plan = form(queue, now, rules)
            return plan.count, plan.wait_until

        return Batcher(formed, partial(time_of, times))


def _rounded(ns: float) -> int:
    """A delay in microseconds, as a person would write it."""
    return round(ns / 1e5) * 100


def _result(workload: Workload, seen: Judged, tuner: _Tuner | None) -> Tuning:
    setting = seen.setting
    session = setting.gathered
    here, there = (Walls(), Walls()) if tuner is None else tuner.walls
    models = () if tuner is None else tuner.models
    yaml = ""
    if models:
        shapes = shapes_of(workload)
        yaml = model_analyzer_yaml(session, workload.model, models, workload.count, shapes)
    found = Tuning(
        model=workload.model,
        requests=workload.count,
        sentence="",
        advice=(),
        models=models,
        predicted=here,
        on_server=there,
        measured=Walls(now=setting.measured.gathered),
        verdict=seen.verdict,
        gathered=session,
        runs=workload.told.done,
        replays=0 if tuner is None else tuner.replays,
        unseen=() if tuner is None else tuple(tuner.unseen),
        pbtxt=tuple((m.name, lines) for m in models if (lines := config_lines(m))),
        model_analyzer=yaml,
    )
    return replace(found, sentence=sentence(found), advice=advice(found))


def _verified(workload: Workload, found: Tuning, rounds: int) -> Tuning:
    changes = {m.name: fields_of(workload.repository, m) for m in found.changed}
    # Where all is slower than it was alone, so is this.
    slower = max(1.0, found.measured.now / max(1, found.predicted.now))
    why = None
    try:
        with with_fields(workload.repository, changes):
            workload.gathered()  # what is only slow at first
            sessions = sorted((workload.gathered().session for _ in range(rounds)), key=lambda s: s.wall)
            then = sessions[(len(sessions) - 1) // 2]
            failed = next((s for s in sessions if failures(s)), None)
            problem = "" if failed is None else f"{failures(failed)} of {found.requests} requests failed"
            confirmed = not problem and then.wall <= _CONFIRMED * slower * found.predicted.found
            if not confirmed and not problem:
                why = _waiting_for_each_other(workload)
    except BLSError as error:
        found = replace(found, problem=str(error), confirmed=False, pbtxt=(), runs=workload.told.done)
        return replace(found, sentence=sentence(found), advice=advice(found))
    wall = 0 if problem else then.wall
    # What did not bring what was predicted is worth being set where it brought something, and else is not.
    keep = confirmed or (not problem and wall < _GAIN * found.measured.now)
    found = replace(
        found,
        measured=replace(found.measured, found=wall),
        gathered=replace(found.gathered, name="as it is"),
        then=replace(then, name="with the setting found"),
        confirmed=confirmed,
        problem=problem,
        verdict=why or found.verdict,
        runs=workload.told.done,
        # Nor what was predicted with it for a server.
        pbtxt=found.pbtxt if keep else (),
        model_analyzer=found.model_analyzer if keep else "",
    )
    return replace(found, sentence=sentence(found), advice=advice(found))


def _waiting_for_each_other(workload: Workload) -> Verdict | None:
    """Whether instances do that as the models are now, which as many as there were could not show."""
    setting = measure(workload, 1, 1, -1.0, workload.both())
    found = verdict(setting.sequential, setting.gathered, setting.measured)
    return with_line(found, workload) if found.cause == "contention" else None
