"""`sweep` measures throughput and latency of a model under loads and with instance counts.

Guarantees: instance counts and statistics are restored afterwards, also on an error and on Ctrl-C, which ends the sweep
with the points so far. On a server, the sweep's requests stay in its statistics.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import isfinite
from operator import sub
from time import perf_counter_ns
from typing import Any

import numpy as np

from bls_notebook.engine import BLSError, LoadedModel, WaitInterruptedError, caller_var, perform, system_clock
from bls_notebook.extending import Host
from bls_notebook.network.connection import connect
from bls_notebook.network.endpoints.endpoint import Endpoint
from bls_notebook.profiling.resource_time import OtherPrograms, ProcessorUse, workers
from bls_notebook.profiling.sync_vs_async import Inputs, alone, inputs_of_each
from bls_notebook.progress import Progress
from bls_notebook.records import first_line, size
from bls_notebook.repository import (
    ModelRepository,
    correlation_ids,
    current_repository,
    sequence_options,
    sequence_spec,
    statistics_of,
    with_count,
    with_fields,
)
from bls_notebook.shipping.servers.serving import LocalServer

from .load_generator import Load, closed_loop, open_loop, percentiles
from .records import ModelLoad, Sweep, SweepPoint
from .resource_watch import ResourceWatch, growth

_ERRORS = 5  # messages of failed requests in a point
_SERVER_SECONDS = 5.0  # timeout of a query for a server's statistics
_WARM_UP = 4  # requests at once before a load of arrivals


def sweep(
    model: str,
    inputs: Inputs | Sequence[Inputs],
    *,
    rows: Iterable[int] = (),
    concurrency: Iterable[int] = (),
    rate: Iterable[float] = (),
    instances: Mapping[str, Iterable[int]] | None = None,
    seconds: float = 5.0,
    budget: float = 0.0,
    server: str | LocalServer | Endpoint = "",
    repo: ModelRepository | None = None,
) -> Sweep:
    """Measure throughput and latency of a model for each load, number of rows and instance count.

    Ctrl-C ends the sweep and returns the points so far.

    Parameters
    ----------
    model : str
        The model that gets the requests; it may call others.
    inputs : mapping of str to array, or sequence of these
        Inputs as for `ModelRepository.infer`; the requests use the items of a sequence in turn.
    rows : iterable of int
        Rows of a request, for models that batch: the given rows are repeated. By default as given.
    concurrency : iterable of int
        Numbers of clients that wait for each response. By default 1, 2, 4 and 8 if there is no `rate`.
    rate : iterable of float
        Requests per second that arrive at random times, whatever the responses. A latency counts from the scheduled
        arrival.
    instances : mapping of str to iterable of int, optional
        Instance counts to try, by model: every combination is measured. They are restored afterwards.
    seconds : float
        Duration of each point.
    budget : float
        The latency (s) within which 95% of the requests must be answered in the best point; 0 for none.
    server : str, LocalServer or Endpoint
        Send the requests to this server, given by its address, such as ``grpc://host:8001``, or as the result of
        `bls.serve` or `bls.endpoint`. By default, they go to the repository's model.
    repo : ModelRepository, optional
        By default the current repository.

    Returns
    -------
    Sweep
        A point for each combination; ``best`` is the one with the most rows per second within the budget.

    Raises
    ------
    BLSError
        An argument is invalid, or the first request fails.

    Examples
    --------
    >>> found = bls.sweep("add_sub", {"INPUT0": a, "INPUT1": b}, concurrency=(1, 8), rate=(50,), budget=0.05)
    >>> found.best.throughput
    """
    sizes, clients, rates = _whole("rows", rows), _whole("concurrency", concurrency), tuple(rate)
    for name, values in (("rate", rates), ("seconds", (seconds,)), ("budget", (budget,) if budget else ())):
        if not all(isinstance(each, (int, float)) and isfinite(each) and each > 0 for each in values):
            raise BLSError(f"sweep: {name}: got {values!r}, expected numbers greater than 0")
    counts = {name: _whole(f"instances of {name!r}", each) for name, each in (instances or {}).items()}
    loads = [(each, 0.0) for each in clients or (() if rates else (1, 2, 4, 8))] + [(0, each) for each in rates]
    examples = inputs_of_each(inputs, 1 if isinstance(inputs, Mapping) else len(inputs), "sweep")

    def measure() -> Sweep:
        with ExitStack() as stack:
            repository = repo or current_repository()
            if server:
                repository = stack.enter_context(ModelRepository())
                url = server if isinstance(server, str) else f"grpc://{server.grpc_url}"
                headers = None
                if isinstance(server, Endpoint):
                    headers = server.headers
                    stack.enter_context(Host(server.repository).uncounted())
                stack.enter_context(connect(url, model, repo=repository, headers=headers))
            stack.enter_context(alone("sweep"))
            sweeper = _Sweeper(repository, model, server, examples, sizes or (0,), counts, seconds)
            return replace(sweeper.run(loads), budget=budget)

    return perform(measure, partial_result=True)


def _whole(name: str, values: Iterable[int]) -> tuple[int, ...]:
    numbers = tuple(values)
    if not all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in numbers):
        raise BLSError(f"sweep: {name}: got {numbers!r}, expected whole numbers from 1, such as (1, 2, 4)")
    return numbers


class _SweepProgress(Progress):
    """Progress in points, with the resources of now."""

    __slots__ = ("_watch",)

    def __init__(self, what: str, total: int, watch: ResourceWatch) -> None:
        super().__init__(what, total, "point")
        self._watch = watch

    def __str__(self) -> str:
        now = self._watch.samples[-1:]
        words = [f"{size(s.memory)}, {size(s.shm)} in /dev/shm, {s.files} open files" for s in now]
        return " · ".join([super().__str__(), *words])


class _Sweeper:
    """Measures one model, here or on a server."""

    def __init__(
        self, repository: ModelRepository, model: str, server: object, inputs: Sequence[Inputs], rows: Sequence[int],
        instances: Mapping[str, Sequence[int]], seconds: float,
    ) -> None:  # fmt: skip
        self._repository, self._model, self._host, self._seconds = repository, model, Host(repository), seconds
        loaded = self._host.ready(model)
        self._spec, self._address = loaded.spec, loaded.seen.remote
        self._sequence = sequence_spec(model, lambda name: self._host.ready(name).spec)
        self._server = server if isinstance(server, LocalServer) else None
        self._link: Any = loaded.instances[0].backend.link if self._address else None  # type: ignore[attr-defined]
        self._process = None if self._server is None else self._server.pid  # the one to watch, if it is known
        if not self._address or isinstance(server, Endpoint):
            self._process = os.getpid()
        if instances and self._address and self._server is None:
            remedy = "pass what it returned as server, not the address" if isinstance(server, str) else ""
            problem = "sweep: instances: only those of a server that bls.serve started can be changed"
            raise BLSError(f"{problem}; {remedy}" if remedy else problem)
        for name in () if self._address else instances:
            self._host.ready(name)  # raises for an unknown name
        self._inputs = {size: [self._with_rows(each, size) for each in inputs] for size in rows}
        settings = (zip(instances, each, strict=True) for each in itertools.product(*instances.values()))
        self._settings = [tuple(setting) for setting in settings]
        self._points: list[SweepPoint] = []

    def _with_rows(self, inputs: Inputs, rows: int) -> dict[str, Any]:
        """Return inputs with so many rows, 0 for as given."""
        most = self._spec.max_batch_size
        if rows > most:
            what = f"at most {most}, its max_batch_size" if most else "none, because its max_batch_size is 0"
            raise BLSError(f"sweep: rows: got {rows}, expected {what}")
        arrays = {name: value if hasattr(value, "shape") else np.asarray(value) for name, value in inputs.items()}
        return {name: np.resize(array, (rows, *array.shape[1:])) if rows else array for name, array in arrays.items()}

    def run(self, loads: Sequence[tuple[int, float]]) -> Sweep:
        """Measure the points of all loads and settings."""
        given = next(iter(self._inputs[next(iter(self._inputs))][0].values()), np.zeros(1))
        as_given = len(given) if self._spec.max_batch_size and given.ndim else 1
        planned = [(rows, *load) for rows in self._inputs for load in loads]
        number = len(planned) * len(self._settings)
        with (
            self._host.uncounted(),
            ResourceWatch(self._process, number * self._seconds) as self._watch,
            _SweepProgress(f"sweeping {self._model}", number, self._watch) as bar,
        ):
            error = self._repository.run(partial(self._send, itertools.cycle(next(iter(self._inputs.values())))))
            if error:
                raise BLSError(f"sweep: model {self._model!r} fails: {error}; use inputs that succeed")
            try:
                for setting in self._settings:
                    points = [(rows, SweepPoint(setting, rows or as_given, *load)) for rows, *load in planned]  # type: ignore[arg-type]
                    with ExitStack() as stack:
                        try:
                            stack.enter_context(self._with_instances(dict(setting)))
                        except BLSError as why:  # there may be no memory for so many
                            self._points += [replace(point, problem=str(why)) for _, point in points]
                            continue
                        for rows, point in points:
                            self._points.append(self._measured(point, rows))
                            bar.step()
            except WaitInterruptedError:
                if not self._points:
                    raise
        return Sweep(
            self._model, self._place(), tuple(self._points), address=self._address, planned=number,
            samples=tuple(self._watch.samples),
        )  # fmt: skip

    def _place(self) -> str:
        """Return where the models ran, as `Sweep.place`."""
        if self._address:
            return "endpoint" if "bls_notebook" in self._link.extensions else "server"
        names = {self._model, *(model.name for point in self._points for model in point.models)}
        models = [model for model in self._models() if model.name in names and model.spec.in_python]
        return "processes" if models and all("process" in model.options for model in models) else "kernel"

    @contextmanager
    def _with_instances(self, counts: Mapping[str, int]) -> Iterator[None]:
        """Serve with these instance counts during the ``with``."""
        if self._server is None:
            with with_fields(self._repository, {n: with_count(self._repository, n, c) for n, c in counts.items()}):
                yield
            return
        configs = {name: self._server.config(name) for name in counts}
        try:
            for name, count in counts.items():
                group = (configs[name].get("instance_group") or [{}])[0]
                self._server.load(name, {**configs[name], "instance_group": [{**group, "count": count}]})
            yield
        finally:
            for name, config in configs.items():
                self._server.load(name, config)

    def _models(self) -> list[LoadedModel]:
        """Return the models in service here, whose latencies are known; none of a server."""
        return [] if self._address else [model for name in self._host.names() if (model := self._host.find(name))]

    def _counts(self) -> dict[str, tuple[int, int, int]]:
        """Return each model's requests, and the ns that they waited and computed."""
        rows = self._link.all_statistics(_SERVER_SECONDS) if self._address else map(statistics_of, self._models())
        counted = {}
        for row in rows:
            of = row["inference_stats"].get
            ns = [int(of(key, {}).get("ns", 0)) for key in ("queue", "compute_infer")]
            counted[str(row["name"])] = int(of("success", {}).get("count", 0)), ns[0], ns[1]
        return counted

    def _measured(self, point: SweepPoint, rows: int) -> SweepPoint:
        """Run the load of a point, after a few requests at once that are not measured."""
        send = partial(self._send, itertools.cycle(self._inputs[rows]))

        async def warm_up() -> None:
            await asyncio.gather(*(send() for _ in range(point.concurrency or _WARM_UP)))

        async def load() -> Load:
            if point.concurrency:
                return await closed_loop(send, point.concurrency, self._seconds)
            return await open_loop(send, point.rate, self._seconds, partial(_stop, caller_var.get()), _sleep)

        self._repository.run(warm_up)
        models, first = self._models(), len(self._watch.samples)
        for model in models:
            model.statistics.keep_latencies(True)
        others, processes = OtherPrograms(), [ProcessorUse(pid) for pid in workers()]
        try:
            before, since = self._counts(), perf_counter_ns()
            done: Load = self._repository.run(load)
            share = 0.0 if self._address else others.share(sum(process.used() for process in processes))
            after = self._counts()
            latest = {model.name: model.statistics.latest_durations(since) for model in models}
        finally:
            for model in models:
                model.statistics.keep_latencies(False)
        loads = []
        for name, counts in after.items():
            requests, queued, computed = map(sub, counts, before.get(name, (0, 0, 0)))
            if requests > 0:
                known = percentiles([durations[0] / 1e9 for durations in latest.get(name, ())])
                loads.append(ModelLoad(name, requests, queued / requests / 1e9, computed / requests / 1e9, known))
        failed = done.failed.most_common(_ERRORS)
        if more := done.failed.total() - sum(number for _, number in failed):
            failed.append(("other errors", more))
        return replace(
            point, seconds=done.seconds, latency=percentiles(done.latencies), late=done.lateness,
            failed=tuple(failed), problem=done.problem, models=tuple(loads),
            grown=tuple(growth(self._watch.samples[first:])), others=share,
        )  # fmt: skip

    async def _send(self, inputs: Iterator[Inputs]) -> str:
        """Send the next request; return the error, or an empty text."""
        options = sequence_options(self._sequence, next(correlation_ids))  # each request is a sequence
        if self._spec.decoupled:
            stream = self._repository.stream_async(self._model, next(inputs), **options)
            responses = [response async for response in stream]
        else:
            responses = [await self._repository.infer_async(self._model, next(inputs), **options)]
        error = next((response.error for response in responses if response.error is not None), None)
        return "" if error is None else first_line(error.message(), 200) or "error"


def _stop(sender: Any) -> None:
    """Interrupt the unanswered requests of an execution."""
    for ticket in list(sender.children):
        ticket.interrupt()


async def _sleep(seconds: float) -> None:
    """Sleep with the precision of the engine's clock; an event loop has one of 1 ms."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def wake() -> None:
        loop.call_soon_threadsafe(lambda: None if over.done() else over.set_result(None))

    alarm = system_clock.call_at(system_clock.now() + int(seconds * 1e9), wake)
    try:
        await over
    finally:
        alarm.cancel()
