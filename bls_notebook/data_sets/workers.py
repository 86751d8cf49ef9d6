"""Answer the parts of a data set in this kernel, or by the workers of a Dask cluster.

Guarantees: each part comes back exactly once. If a worker ends, its rows are sent again, by Dask or in smaller runs. A
row is blamed only after `KILLS` workers ended while they had it alone, the last ones while nothing else was running.
Leaving the iteration cancels the unfinished parts, and closes a local cluster.
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

from bls_notebook.engine import BLSError

from .batch_function import BatchFunction
from .rows import InputRows, RowAnswers, RowError, RowSender, together, unanswered
from .sources import EXTRA, DataPart

KILLS = 3  # workers that one row may end before it has an error instead
CUTS = 16  # runs into which rows are cut whose worker has ended
SMALL = 1 << 20  # bytes of a function that travels with each part
AHEAD = 2  # parts that are sent per thread of the workers, so that none is idle


@dataclass(frozen=True)
class Answered:
    """The answers to a part or a run of its rows, and who computed them; times in seconds, `began` since the epoch."""

    part: DataPart
    answers: RowAnswers
    worker: str
    began: float
    seconds: float


def in_kernel(sender: RowSender, parts: Iterator[DataPart], stop: bool) -> Iterator[Answered]:
    """Yield the answers of this kernel's models to each part, one after the other."""
    for part in parts:
        began = time.time()
        answers = sender.send(part.rows, stop)
        yield Answered(part, answers, "kernel", began, time.time() - began)


def answer_rows(function: BatchFunction, rows: InputRows) -> tuple[RowAnswers, str, float, float]:
    """Return the answers to rows, the worker and the times. Runs on a worker."""
    from distributed import get_worker

    began = time.time()
    answers = function.answers(rows)
    return answers, str(get_worker().name), began, time.time() - began


def on_client(client: Any, function: BatchFunction, parts: Iterator[DataPart]) -> Iterator[Answered]:
    """Yield the answers of a Dask cluster's workers to each part, as they arrive."""
    from distributed import as_completed

    # A task is a part, a run of its rows, and the number of workers that ended while they had this one row.
    running: dict[Any, tuple[DataPart, InputRows, int]] = {}
    suspects: list[tuple[DataPart, InputRows, int]] = []
    answered: dict[int, dict[int, Answered]] = defaultdict(dict)  # by part and first row
    sent: Any = function
    if len(pickle.dumps(function)) > SMALL:
        # As the result of a task it reaches each worker once, and again if a worker is lost. Dask prefers the workers
        # that have it.
        sent = client.submit(copy, function, pure=False)
        client.replicate([sent])
    arriving = as_completed(loop=client.loop)

    def start(part: DataPart, rows: InputRows, kills: int = 0) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            future = client.submit(answer_rows, sent, rows, pure=False)
        running[future] = part, rows, kills
        arriving.add(future)

    try:
        while True:
            for _ in range(AHEAD * max(1, sum(client.nthreads().values())) - len(running)):
                if (part := next(parts, None)) is None:
                    break
                start(part, part.rows)
            if not running and suspects:  # alone, so that no other row can be to blame
                start(*suspects.pop())
            if not running:
                return
            future = next(arriving)
            part, rows, kills = running.pop(future)
            error = future.exception()
            if error is None:
                done = Answered(part, *future.result())
            elif type(error).__name__ != "KilledWorker":
                raise explained(error)
            elif rows.count > 1:
                for some in rows.cut(-(-rows.count // CUTS)):
                    start(part, some)
                continue
            elif kills + 1 < KILLS:
                suspects.append((part, rows, kills + 1))
                continue
            else:
                done = Answered(part, _killed(function, rows), str(error.last_worker.name), time.time(), 0.0)
            future.release()
            runs = answered[part.number]
            runs[rows.first] = done
            if sum(run.answers.count for run in runs.values()) == part.rows.count:
                del answered[part.number]
                each = [runs[first] for first in sorted(runs)]
                began, seconds = min(run.began for run in each), sum(run.seconds for run in each)
                yield Answered(part, together([run.answers for run in each]), done.worker, began, seconds)
    finally:
        client.cancel([*running, *([] if sent is function else [sent])])


def _killed(function: BatchFunction, row: InputRows) -> RowAnswers:
    words = f"its worker process ended each time it answered this row ({KILLS} times)"
    if function.errors == "raise":
        raise RowError(f"row {row.first:,}: model {function.name!r}: {words}")
    return unanswered(function.outputs, {0: words})


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
        raise BLSError(f"map: on: got {on!r}, expected None, a number of worker processes, or a Dask Client")
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
