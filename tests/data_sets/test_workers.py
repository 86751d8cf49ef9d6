"""`map` on a Dask cluster: equal answers, workers that end, rows that end them, clusters of others."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.data_sets import RowError
from tests.waiting import LIMIT

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Sockets that Dask leaves to the garbage collector are closed here, where their warnings are ignored."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of a local cluster with two worker processes."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_workers_answer_as_the_kernel(repo: bls.ModelRepository, client: Any, tmp_path: Path) -> None:
    rows = np.where(np.arange(3000) % 100 == 7, 13, np.arange(3000) + 1000).astype(np.float32)
    here = bls.map("reader", {"IN": rows}, batch=100, errors="column", repo=repo)
    there = bls.map("reader", {"IN": rows}, batch=100, errors="column", on=client, into=tmp_path, check=5, repo=repo)
    for name in ("OUT", "NAME", "error"):
        assert here[name].tolist() == there[name].tolist()
    assert (there.record.checked, there.record.differences) == (5, ())
    assert [part.number for part in there.record.parts] == list(range(30))
    again = bls.map("reader", {"IN": rows}, batch=100, errors="column", on=client, into=tmp_path, repo=repo)
    assert again.record.computed == ()
    assert "on 2 workers" in str(there) or "on 1 worker" in str(there)


def test_an_error_of_a_row_ends_the_job(repo: bls.ModelRepository, client: Any) -> None:
    rows = np.full(300, 1, np.float32)
    rows[250] = 13
    with pytest.raises(RowError, match=r"row 250: model 'reader': .*thirteen$"):
        bls.map("reader", {"IN": rows}, batch=100, on=client, repo=repo)


def test_a_row_that_ends_its_workers_has_an_error_and_the_others_have_answers(repo: bls.ModelRepository) -> None:
    rows = np.arange(1000, 2000, dtype=np.float32)
    rows[::77] = 13  # 13 rows that fail in the callee
    rows[[5, 995]] = 77  # and 2 in the caller
    rows[500] = 666
    result = bls.map("reader", {"IN": rows}, batch=200, on=2, errors="column", repo=repo)
    expected = sorted({*range(0, 1000, 77), 5, 995, 500})
    assert [failure.row for failure in result.failures] == expected
    messages = {failure.row: failure.message for failure in result.failures}
    assert "worker process ended each time it answered this row" in messages[500]
    assert result["OUT"].count() == 984
    assert result["OUT"].compressed().tolist() == [2 * v for row, v in enumerate(rows) if row not in expected]


def scheduler(log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a scheduler of its own; return it with its address."""
    file = log / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen([*command, "--no-dashboard", "--scheduler-file", str(file)], stderr=subprocess.DEVNULL)
    return process, str(file)


@pytest.mark.extra
def test_100_000_rows_on_a_separate_scheduler_whose_worker_is_killed_twice(
    repo: bls.ModelRepository, tmp_path: Path
) -> None:
    rows = np.arange(1000, 101000, dtype=np.float32)
    process, file = scheduler(tmp_path)
    command = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", file, "--nthreads", "1"]
    command += ["--no-dashboard", "--local-directory", str(tmp_path)]
    workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        with distributed.Client(scheduler_file=file, timeout=LIMIT, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=LIMIT)
            batches = killing(client, [{"IN": rows[at : at + 1000]} for at in range(0, len(rows), 1000)])
            result = bls.map("reader", batches, batch=500, on=client, repo=repo)
            assert result["OUT"].ravel().tolist() == (rows * 2).tolist()
            assert len(result.record.workers) >= 3
    finally:
        for each in (*workers, process):
            each.kill()
            each.wait()


def killing(client: Any, batches: list[Any]) -> Iterator[Any]:
    """Yield the batches, and kill a worker after a third and after two thirds of them."""
    pid: Callable[[], int] = os.getpid
    for number, batch in enumerate(batches):
        if number in (len(batches) // 3, 2 * len(batches) // 3):
            os.kill(next(iter(client.run(pid).values())), signal.SIGKILL)
        yield batch


def test_workers_without_the_package_are_named(repo: bls.ModelRepository, client: Any) -> None:
    from bls_notebook.data_sets.workers import explained

    told = explained(ModuleNotFoundError("No module named 'bls_notebook'", name="bls_notebook"))
    assert str(told) == "map: the workers lack bls_notebook; install the same version there"
