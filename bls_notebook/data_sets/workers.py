"""Answer the parts of a data set in this kernel, or by the workers of a Dask cluster.

Guarantees: each part comes back exactly once. If a worker ends, its rows are sent again, by Dask or in smaller runs. A
row is blamed only after `KILLS` workers ended while they had it alone, the last ones while nothing else was running.
Leaving the iteration cancels the unfinished parts, and closes a local cluster.
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bls_notebook.engine import BLSError

from .batch_function import BatchFunction
from .rows import Array, RowAnswers, RowError, RowFailure, RowSender, together
from .sources import EXTRA, DataPart

KILLS = 3
"""Workers that one row may end before it has an error instead."""

CUTS = 16
"""Runs into which rows are cut whose worker has ended."""

SMALL = 1 << 20
"""Bytes of a function that travels with each part."""

AHEAD = 2
"""Parts that are sent per thread of the workers, so that none is idle."""


@dataclass(frozen=True)
class PartDone:
    """The answers to a part, and who computed them; times in seconds, `began` since the epoch."""

    part: DataPart
    answers: RowAnswers
    worker: str
    began: float
    seconds: float


def in_kernel(sender: RowSender, parts: Iterator[DataPart], stop: bool) -> Iterator[PartDone]:
    """Yield the answers of this kernel's models to each part, one after the other."""
    for part in parts:
        began = time.time()
        answers = sender.send(part.inputs, stop, part.first)
        yield PartDone(part, answers, "kernel", began, time.time() - began)


def answer_part(
    function: BatchFunction, inputs: dict[str, Array], first: int, rows: int
) -> tuple[RowAnswers, str, float, float]:
    """Return a part's answers, the worker and the times. Runs on a worker."""
    from distributed import get_worker

    began = time.time()
    answers = function.answers(inputs, first)
    assert answers.rows == rows
    worker = get_worker()
    return answers, str(worker.name), began, time.time() - began


@dataclass
class _Task:
    """A run of a part's rows that a worker answers."""

    part: DataPart
    start: int
    rows: int
    kills: int = 0  # workers that ended while they had this one row

    def smaller(self) -> Iterator[_Task]:
        """Yield up to `CUTS` runs of the same rows."""
        size = -(-self.rows // CUTS)
        for start in range(self.start, self.start + self.rows, size):
            yield _Task(self.part, start, min(size, self.start + self.rows - start))

    def inputs(self) -> dict[str, Array]:
        return {name: values[self.start : self.start + self.rows] for name, values in self.part.inputs.items()}


@dataclass
class _Pending:
    """The answers to a part so far."""

    rows: int = 0
    answers: list[RowAnswers] = field(default_factory=list)
    worker: str = ""
    began: float = 0.0
    seconds: float = 0.0


def on_client(client: Any, function: BatchFunction, parts: Iterator[DataPart]) -> Iterator[PartDone]:
    """Yield the answers of a Dask cluster's workers to each part, as they arrive."""
    from distributed import as_completed

    running: dict[Any, _Task] = {}
    pending: dict[int, _Pending] = {}
    suspects: list[_Task] = []
    sent: Any = function
    if len(pickle.dumps(function)) > SMALL:
        # As the result of a task it reaches each worker once, and again if a worker is lost. Dask prefers the workers
        # that have it.
        sent = client.submit(_same, function, pure=False)
        client.replicate([sent])
    arriving = as_completed(loop=client.loop)

    def start(task: _Task) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            inputs, first = task.inputs(), task.part.first + task.start
            future = client.submit(answer_part, sent, inputs, first, task.rows, pure=False)
        running[future] = task
        arriving.add(future)

    try:
        while True:
            room = AHEAD * max(1, sum(client.nthreads().values())) - len(running)
            for _ in range(room):
                part = next(parts, None)
                if part is None:
                    break
                start(_Task(part, 0, part.rows))
            if not running and suspects:  # alone, so that no other row can be to blame
                start(suspects.pop())
            if not running:
                return
            future = next(arriving)
            task = running.pop(future)
            so_far = pending.setdefault(task.part.number, _Pending())
            error = future.exception()
            if error is None:
                answers, worker, began, seconds = future.result()
                so_far.worker, so_far.began = worker, so_far.began or began
                so_far.seconds += seconds
            elif type(error).__name__ == "KilledWorker":
                if task.rows > 1:
                    for smaller in task.smaller():
                        start(smaller)
                    continue
                task.kills += 1
                if task.kills < KILLS:
                    suspects.append(task)
                    continue
                answers = _killed(function, task)
            else:
                raise explained(error)
            future.release()
            so_far.rows += task.rows
            so_far.answers.append(answers.shifted(task.start))
            if so_far.rows == task.part.rows:
                del pending[task.part.number]
                whole = together(task.part.rows, so_far.answers)
                yield PartDone(task.part, whole, so_far.worker, so_far.began, so_far.seconds)
    finally:
        client.cancel([*running, *([] if sent is function else [sent])])


def _same(function: BatchFunction) -> BatchFunction:
    return function


def _killed(function: BatchFunction, task: _Task) -> RowAnswers:
    words = f"its worker process ended each time it answered this row ({task.kills} times)"
    if function.errors == "raise":
        raise RowError(f"row {task.part.first + task.start:,}: model {function.name!r}: {words}")
    return RowAnswers(1, (), (RowFailure(0, words),))


def explained(error: BaseException) -> BaseException:
    if isinstance(error, ModuleNotFoundError) and error.name == "bls_notebook":
        return BLSError("map: the workers lack bls_notebook; install the same version there")
    if isinstance(error, (BLSError, KeyboardInterrupt)):
        return error
    return BLSError(f"map: a worker failed: {type(error).__name__}: {error}")


@contextmanager
def clients(on: Any) -> Iterator[Any]:
    """Yield the client of a cluster: `on` itself, or one of a new local cluster with that many worker processes."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise BLSError(f"map: on={on!r} needs dask.distributed, which is not installed; {EXTRA}") from error
    if isinstance(on, Client):
        yield on
        return
    if isinstance(on, bool) or not isinstance(on, int) or not 1 <= on <= 1024:
        raise BLSError(
            f"map: on: got {on!r}, expected None, a number of worker processes, or a dask.distributed.Client"
        )
    import dask

    # A worker that ends takes only the rows with it that it was answering: `on_client` sends them again.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=on, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        yield client
