"""`tune` finds the fewest instances, and the batches, with which a workload is nearly as fast as possible.

Guarantees: models and their configurations are restored afterwards, also on an error and on Ctrl-C
(`instance_counts`). Nothing is predicted if more instances cannot help: instances that wait for each other,
answers from the cache, requests that fail.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from bls_notebook.devices import device_records, return_free_memory
from bls_notebook.engine import BatchRules, BLSError, DynamicBatcher, form, wait_until_closed
from bls_notebook.extending import Host, operation
from bls_notebook.records import DeviceRecord
from bls_notebook.repository import (
    ASK,
    Answer,
    Call,
    ModelRepository,
    Waiter,
    current_repository,
    with_count,
    with_fields,
)

from . import sync_vs_async
from .analysis.queue_simulation import UNLIMITED, Batcher, Queued, batches_seen
from .analysis.setting_search import MOST, Found, Setting, Space, search
from .analysis.span_tree import SpanTree
from .analysis.tuning_words import UNKNOWN, advice, config_lines, sentence
from .analysis.verdict import verdict
from .analysis.verdict_evidence import comparison_evidence
from .analysis.workload_simulation import SimulatedWorkload
from .profiler import profile
from .records.comparison import Verdict, failures
from .records.tuning import ModelSetting, TunedModel, Tuning, Walls
from .session import Session
from .sync_vs_async import Inputs, Judged, Workload

# Causes with which more instances bring nothing, or no prediction is possible.
NOTHING_TO_TUNE = ("failed", "contention", "cached", "one", "little", *UNKNOWN)
_NOTICED = 4 << 20  # bytes: a smaller change may have another cause in the process
_RELEASED = 10.0  # s, at most, until a measured instance has released its memory
_ROOM = 0.8  # fraction of the free memory that instances may fill


class InstanceMemory(NamedTuple):
    """The memory of an instance on the host and on a GPU (bytes), and how many more instances fit.

    -1 means unknown; 0 means too little to measure.
    """

    host: int = -1
    device: int = -1
    room: int = -1


def memory_of_instance(repository: ModelRepository, name: str) -> InstanceMemory:
    """Return the memory of one instance of a model; raise BLSError if none can be loaded."""
    group = repository.config(name).instance_group[0]
    gc.collect()
    return_free_memory()  # or the instance hides in it
    before = {device.name: device for device in device_records()}
    with with_fields(repository, {name: with_count(repository, name, 1)}) as variants:
        after = {device.name: device for device in device_records()}
        loaded = variants.models(name).values()
    # Memory that this instance releases later would be missing in the next measurement.
    wait_until_closed(loaded, monotonic() + _RELEASED)
    grown = {n: _used(after[n]) - _used(before[n]) for n in before if n in after and before[n].total >= 0}
    rooms = [
        int(_ROOM * (before[n].total - _used(before[n]) - max(0, before[n].others)) / taken)
        for n, taken in grown.items()
        if taken >= _NOTICED
    ]
    host = grown.pop("cpu", -1)
    device = max(grown.values()) if grown and group.gpus else -1
    sizes = [0 if -1 < size < _NOTICED else max(-1, size) for size in (host, device)]
    room = min(rooms) * max(1, len(group.gpus)) if rooms else -1
    return InstanceMemory(sizes[0], sizes[1], room)


def _used(device: DeviceRecord) -> int:
    return max(0, device.ours) + max(0, device.cached)


_KEPT_REQUESTS = 64  # requests kept for each model
_REPEATED = 3  # runs of each batch size
_PATIENCE = 500_000_000  # ns that the batcher waits until all requests of a batch have arrived
Request = tuple[dict[str, Any], int]
"""The inputs of a request by name, and its rows."""


class _KeptRequests:
    """A substitute that lets the real models answer and keeps the first requests to each."""

    def __init__(self, names: Sequence[str]) -> None:
        self.of: dict[str, list[Request]] = {name: [] for name in names}

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer]:
        kept = self.of[call.model]
        if len(kept) < _KEPT_REQUESTS:
            arrays = {name: tensor.as_numpy() for name, tensor in call.inputs.items()}
            kept.append((arrays, max((len(array) for array in arrays.values()), default=1)))
        yield ASK


class MeasuredBatches(NamedTuple):
    """The (rows, ns) of an `execute` for batches of several sizes, and the fraction of this time that it computed.

    ``batcher`` is the one of the largest batch: how a model that calls others serves the requests of a batch.
    """

    times: tuple[tuple[int, int], ...] = ()
    computed: float = 0.0
    batcher: Batcher | None = None


def batch_times(repository: ModelRepository, name: str, requests: Sequence[Request], most: int) -> MeasuredBatches:
    """Measure an `execute` for batches of 1, 2, 4 ... requests up to `most` rows.

    Sizes that the model answers with an error end the list; it is empty if nothing could be run.
    """
    rows = max((rows for _, rows in requests), default=0)
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if rows and size * rows <= most]
    if len(sizes) < 2:
        return MeasuredBatches()
    batcher = None
    fields: Mapping[str, Any] = {
        **with_count(repository, name, 1),
        "max_batch_size": max(sizes[-1] * rows, repository.config(name).max_batch_size),
        "dynamic_batching": {"max_queue_delay_microseconds": 1},
        "response_cache": None,
        "model_warmup": None,
    }
    out: list[tuple[int, int]] = []
    ran = computed = 0
    with with_fields(repository, {name: fields}):
        for size in sizes:
            batch = [requests[i % len(requests)] for i in range(size)]
            together = sum(rows for _, rows in batch)
            for model in Host(repository).versions(name).values():
                if isinstance(model.scheduler, DynamicBatcher):
                    model.scheduler.rule(BatchRules(together, frozenset({together}), _PATIENCE))
            took: list[int] = []
            while len(took) < _REPEATED and (not took or took[-1]):
                ns, record = _batch_run(repository, name, [inputs for inputs, _ in batch])
                took.append(ns)
                ran, computed = ran + ns, computed + record.cpu
            if not took[-1]:
                break
            batcher = next((each for key, each in batches_seen(record).items() if key[0] == name), batcher)
            # Without the first run, which includes the model's warm-up for a new size.
            out.append((together, round(median(took[1:]))))
    return MeasuredBatches(tuple(out), min(1.0, computed / max(1, ran)), batcher)


def _batch_run(repository: ModelRepository, name: str, batch: Sequence[Mapping[str, Any]]) -> tuple[int, Session]:
    """Run one batch; return the time of its `execute` (ns), 0 if it failed or was split, and the session."""

    async def run() -> list[Any]:
        with session:
            session.only_of_caller()
            return await asyncio.gather(*(repository.infer_async(name, inputs) for inputs in batch))

    session = profile(lines=False)
    failed = any(response.error is not None for response in repository.run(run))
    record = session.record
    tree = SpanTree.of(record)
    executions = {tree.execution(span.id) for span in tree.children.get(0, ())}
    if failed or len(executions) != 1:
        return 0, record
    members = tree.members[executions.pop()]
    return max(m.ended for m in members) - members[0].started, record


def batch_time(times: Sequence[tuple[int, int]], rows: int) -> int:
    """Return the time of a batch, ns: interpolated between measured sizes, proportional beyond them."""
    sizes, took = zip(*times, strict=True)
    between: float = np.interp(rows, sizes, took)
    return round(between * max(1.0, rows / times[-1][0]))


def setting_of(repository: ModelRepository, name: str) -> ModelSetting:
    config = repository.config(name)
    batching = config.dynamic_batching
    return ModelSetting(
        sum(group.count * max(1, len(group.gpus)) for group in config.instance_group),
        config.max_batch_size,
        config.HasField("dynamic_batching"),
        tuple(batching.preferred_batch_size),
        batching.max_queue_delay_microseconds,
    )


def group_as_written(repository: ModelRepository, name: str) -> str:
    """Return the first instance group in a model's config.pbtxt without its count, on one line."""
    from google.protobuf import text_format

    try:
        groups = Host(repository).source(name).parsed_config().instance_group
    except BLSError:  # the files were deleted, or are invalid now
        return ""
    if not groups:
        return ""
    groups[0].ClearField("count")
    return str(text_format.MessageToString(groups[0], as_one_line=True)).strip()


def fields_of(repository: ModelRepository, model: TunedModel) -> dict[str, Any]:
    """Return the fields of a model's configuration that its setting changes, for `with_fields`."""
    now, found = model.now, model.found
    fields: dict[str, Any] = {}
    if found.count != now.count:
        fields |= with_count(repository, model.name, -(-found.count // model.devices))
    if replace(found, count=now.count) != now:
        fields["max_batch_size"] = found.max_batch_size
        fields["dynamic_batching"] = {
            "preferred_batch_size": list(found.preferred),
            "max_queue_delay_microseconds": found.delay,
        }
    return fields


_GAIN = 0.9  # a batch, or a setting, is worth it if it takes at most this fraction of the time without it
_BUSY = ("gil", "cores")  # causes with which no number of instances helps in this kernel
_CONFIRMED = 1.15  # ratio of measured and predicted time up to which a prediction is confirmed


@operation
def tune(
    model: str,
    inputs: Inputs | Sequence[Inputs],
    n: int = 8,
    verify: bool = True,
    repeat: int | None = None,
    repo: ModelRepository | None = None,
) -> Tuning:
    """Find the smallest setting with which concurrent requests are nearly as fast as possible.

    The requests run as in `compare`. Then they are simulated with other instance counts (1 to 64, of every
    model that they reach) and, for models that batch, with other sizes, preferred sizes and delays. The
    result is the setting with the fewest instances that reaches 95% of the best speed. It holds for `n`
    requests at once: choose `n` as large as the load that you expect. `Tuning.on_server` holds for a Triton
    server with as many processors, where each instance is a process; the rest holds for this kernel.

    Parameters
    ----------
    model : str
        The model that gets the requests; it may call others.
    inputs : mapping of str to array, or sequence of these
        Inputs as for `ModelRepository.infer`; the requests use the items of a sequence in turn.
    n : int
        The number of requests to send at once.
    verify : bool
        Whether to run the setting found, and one with more instances, and compare the times with the predictions.
    repeat : int, optional
        The number of runs of each kind; see `compare`.
    repo : ModelRepository, optional
        By default the current repository.

    Returns
    -------
    Tuning
        Its ``sentence`` is the result in words; ``pbtxt`` has the changed lines of config.pbtxt, which `save` writes.

    Raises
    ------
    BLSError
        An argument is invalid, or a model is not loaded.

    Notes
    -----
    A model that takes batches is loaded again with one instance, which then runs batches of 1, 2, 4 ... of the
    recorded requests. One more instance of each model that would get more of them is loaded
    too, to measure its memory.

    Examples
    --------
    >>> tuning = bls.tune("digit_reader", {"IMAGE": image}, n=16)
    >>> print(tuning.sentence)
    >>> tuning.save("changes.pbtxt")
    """
    sync_vs_async.check_numbers("tune", n, repeat)
    repository = current_repository() if repo is None else repo
    repository.config(model)  # raises for an unknown name
    workload = Workload(repository, model, sync_vs_async.inputs_of_each(inputs, n, "tune"))
    workload.told.what = f"tuning {model}"
    with sync_vs_async.alone("tune"), Host(repository).uncounted(), workload.told:
        return _tune(workload, verify, repeat)


def _tune(workload: Workload, verify: bool, repeat: int | None) -> Tuning:
    workload.told.total = (3 + verify) * (repeat or sync_vs_async.LEAST)
    seen = sync_vs_async.judged(workload, (), repeat)
    if seen.verdict.cause in NOTHING_TO_TUNE:
        return _result(workload, seen, None)
    found = _result(workload, seen, _Tuner(workload, seen))
    rounds = seen.setting.gathered_quartiles.count
    if verify:
        found = _verified(workload, found, rounds) if found.changed else found
        return _with_more(workload, found, rounds)
    return found if found.explained else _in_words(replace(found, pbtxt=()))


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
        self._computed: dict[str, float] = {}  # fraction of the time of an `execute` that it computes
        self._callers: dict[str, Batcher] = {}  # how callers serve a batch
        self._times = self._batch_times(workload)
        self._busy = seen.verdict.cause in _BUSY
        self.replays = 0
        results = self._results()
        self.walls = tuple(Walls(result.now, result.wall, result.best) for result in results)
        self.models = self._models(*results)

    def _results(self) -> tuple[Found, Found]:
        """Return the result for this kernel, and for a server."""
        here = self._search(self._busy)
        raised = [name for name, setting in here.setting.items() if setting.count > self.now[name].count]
        for name in raised:
            try:
                self._memory[name] = memory_of_instance(self._repository, name)
            except BLSError as error:
                self.unseen.append(f"the memory of an instance of `{name}` is unknown: {error}")
        if any(here.setting[name].count > self._most(name) for name in raised):
            here = self._search(self._busy)
        return here, self._search(on_server=True)

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

    def _search(self, busy: bool = False, on_server: bool = False) -> Found:
        case = self._case
        space = Space(
            requests=case.requests,
            capacity=case.capacity,
            now=self.now,
            ways={name: self._ways(name) for name in self.now},
            most={name: now.count if busy else self._most(name) for name, now in self.now.items()},
            batcher=self._batcher,
            bound=partial(self._bound, on_server),
            needs=case.needs.apart if on_server else case.needs,
        )
        result = search(space)
        self.replays += space.replays
        return result

    def _bound(self, on_server: bool, setting: Setting) -> int:
        """Return the shortest time that the processors and the GIL allow, ns; batches compute less."""
        case = self._case
        if case.computes_once:  # the cost of requests one by one is unknown
            return 0
        bound: float = case.own_cpu if on_server else max(case.python, case.own_cpu)
        for name, each in setting.items():
            if each.batches and name in self._times and name not in self._callers:
                rows, alone_ns = self._times[name][0]
                size = max(each.preferred, default=each.max_batch_size)
                batches = self._reached[name] * rows / size
                saved = self._reached[name] * alone_ns - batches * batch_time(self._times[name], size)
                bound -= self._computed[name] * max(0.0, saved)
        return max(0, round(bound))

    def _most(self, name: str) -> int:
        """Return the largest useful count of instances that memory allows."""
        now, room = self.now[name].count, self._memory[name].room
        most = MOST if room < 0 else now + room // max(1, len(self.now))
        return max(now, min(MOST, self._reached[name], most))

    def _batch_times(self, workload: Workload) -> dict[str, tuple[tuple[int, int], ...]]:
        names = [name for name in self.now if self._may_batch(name)]
        if not names:
            return {}
        seen = _KeptRequests(names)
        with Host(self._repository).substitute(dict.fromkeys(names, seen)):
            workload.sequential()
        out = {}
        tree = SpanTree.of(self._case.gathered)
        callers = {m[0].model for e, m in tree.members.items() if tree.children.get(e)}
        for name, requests in seen.of.items():
            rows = max(rows for _, rows in requests)
            most, own = min(MOST, self._reached[name]) * rows, self._repository.config(name).max_batch_size
            for limit in dict.fromkeys((most, min(most, own))):  # the code of a model may refuse more than its own
                try:
                    times, computed, batcher = batch_times(self._repository, name, requests, limit)
                    break
                except BLSError as error:
                    failure = error
            else:
                self.unseen.append(f"batches of `{name}` were not measured: {failure}")
                continue
            if not times or (name in callers and batcher is None):
                continue
            out[name], self._computed[name] = times, computed
            if name in callers and batcher is not None:
                self._callers[name] = batcher
        return out

    def _may_batch(self, name: str) -> bool:
        """Return whether a model takes batches of requests that are sent at once."""
        config = self._repository.config(name)
        other = config.HasField("sequence_batching") or config.model_transaction_policy.decoupled
        return config.max_batch_size > 0 and self._reached[name] > 1 and not other

    def _ways(self, name: str) -> list[ModelSetting]:
        now = self.now[name]
        times = self._times.get(name, ())
        ways = [now]
        if not times:
            return ways
        rows, alone_ns = times[0]
        for size, took in times[1:]:
            if took > _GAIN * size / rows * alone_ns and name not in self._callers:
                continue  # the time of callers depends on the instances of their callees
            # Never less than now: clients may send requests with that many rows.
            most = max(size, now.max_batch_size)
            base = replace(now, max_batch_size=most, batches=True, preferred=(size,), delay=0)
            delays = sorted({round(alone_ns / part / 1e5) * 100 for part in (8, 2)} - {0})  # µs, as people round them
            ways += [base, *(replace(base, delay=delay) for delay in delays)]
        return ways

    def _batcher(self, name: str, setting: ModelSetting) -> Batcher | None:
        times = self._times.get(name)
        if times is None:
            # No other sizes were measured: keep the observed batching, if any.
            return next((each for key, each in self._case.batches.items() if key[0] == name), None)
        if not setting.batches:
            return None
        rules = BatchRules(max(1, setting.max_batch_size), frozenset(setting.preferred), setting.delay * 1000)

        def formed(queue: Sequence[Queued], now: int) -> tuple[int, int | None]:
            plan = form(queue, now, rules)
            return plan.count, plan.wait_until

        caller = self._callers.get(name)
        batcher = Batcher(formed, partial(batch_time, times))
        if caller is None:
            return batcher
        return batcher._replace(way=caller.way, parts=caller.parts, wholes=caller.wholes)


def _result(workload: Workload, seen: Judged, tuner: _Tuner | None) -> Tuning:
    setting = seen.setting
    here, there = (Walls(), Walls()) if tuner is None else tuner.walls
    models = () if tuner is None else tuner.models
    return _in_words(Tuning(
        workload.model, workload.count, sentence="", advice=(), models=models, predicted=here, on_server=there,
        measured=Walls(now=setting.measured.gathered),
        verdict=seen.verdict,
        gathered=setting.gathered,
        runs=workload.told.done,
        replays=0 if tuner is None else tuner.replays,
        unseen=() if tuner is None else tuple(tuner.unseen),
        pbtxt=tuple((m.name, lines) for m in models if (lines := config_lines(m))),
    ))  # fmt: skip


def _in_words(found: Tuning) -> Tuning:
    return replace(found, sentence=sentence(found), advice=advice(found))


def _verified(workload: Workload, found: Tuning, rounds: int) -> Tuning:
    changes = {m.name: fields_of(workload.repository, m) for m in found.changed}
    # If the current setting took longer than predicted, allow the new one as much.
    slower = max(1.0, found.measured.now / max(1, found.predicted.now))
    why = None
    try:
        with with_fields(workload.repository, changes):
            workload.gathered()  # warm up
            sessions = [workload.gathered() for _ in range(rounds)]
            then = sync_vs_async.middle(sessions)
            failed = next((s for s in sessions if failures(s)), None)
            problem = "" if failed is None else f"{failures(failed)} of {found.requests} requests failed"
            confirmed = not problem and then.wall <= _CONFIRMED * slower * found.predicted.found
            if not confirmed and not problem:
                why = _waiting_for_each_other(workload)
    except BLSError as error:
        return _in_words(replace(found, problem=str(error), confirmed=False, pbtxt=(), runs=workload.told.done))
    wall = 0 if problem else then.wall
    # A setting that missed its prediction is still worth setting if it was faster.
    keep = confirmed or (not problem and wall < _GAIN * found.measured.now)
    return _in_words(replace(
        found,
        measured=replace(found.measured, found=wall),
        gathered=replace(found.gathered, name="as it is"),
        then=replace(then, name="with the setting found"),
        confirmed=confirmed,
        problem=problem,
        verdict=why or found.verdict,
        runs=workload.told.done,
        pbtxt=found.pbtxt if keep else (),
    ))  # fmt: skip


def _with_more(workload: Workload, found: Tuning, rounds: int) -> Tuning:
    """Run the requests with up to twice the instances of the setting found, unless it has one for each request."""
    counts = {m.name: min(2 * m.found.count, m.most) for m in found.models}
    more = [replace(m, found=replace(m.found, count=max(m.found.count, counts[m.name]))) for m in found.models]
    if found.problem or not (found.confirmed and found.explained) or more == [*found.models]:
        return found
    try:
        with with_fields(workload.repository, {m.name: fields_of(workload.repository, m) for m in more if m.changed}):
            workload.gathered()  # warm up
            sessions = [workload.gathered() for _ in range(rounds)]
    except BLSError:  # there may be no memory for so many
        return found
    best = 0 if any(map(failures, sessions)) else sync_vs_async.middle(sessions).wall
    return _in_words(replace(found, measured=replace(found.measured, best=best), runs=workload.told.done))


def _waiting_for_each_other(workload: Workload) -> Verdict | None:
    """Return the verdict if the instances of the present setting wait for each other."""
    setting = sync_vs_async.measure(workload, 1, 1, -1.0, workload.both())
    found = verdict(comparison_evidence(setting.sequential, setting.gathered, setting.measured))
    return sync_vs_async.with_line(found, setting.gathered) if found.cause == "contention" else None
