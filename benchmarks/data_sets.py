"""Measure a data set's overhead per row beside a loop over `infer`, and one worker beside two.

    python benchmarks/data_sets.py [--quick] [--json PATH]

Each row is a request of its own (`max_batch_size: 0`), so that both sides send the same requests. "scaling" runs a pure
Python model on one and on two local worker processes that are already open. "first batch" is the first call of a
function on a new worker: it loads the models.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import bls_notebook as bls

RESULTS = Path(__file__).resolve().parent / "results" / "data_sets.json"
CONFIG = """
max_batch_size: {batch}
input {{ name: "IN" data_type: TYPE_FP32 dims: [ 16 ] }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: [ 16 ] }}
"""
SOURCE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            for number in range({steps}):
                number & 7
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
        return out
"""
LEAST_SCALING = 1.7


def looped(repo: bls.ModelRepository, rows: Any) -> float:
    """Return the seconds of a loop over `infer`."""
    began = perf_counter()
    out = [repo.infer("light", {"IN": row})["OUT"].as_numpy() for row in rows]
    np.stack(out)
    return perf_counter() - began


def mapped(repo: bls.ModelRepository, rows: Any, **options: Any) -> float:
    """Return the seconds of `map`."""
    began = perf_counter()
    assert bls.map("light", {"IN": rows}, repo=repo, **options)["OUT"].shape == rows.shape
    return perf_counter() - began


def scaling(repo: bls.ModelRepository, rows: Any, rounds: int) -> dict[str, float]:
    """Return the seconds of one and of two workers, their ratio, and the seconds of a worker's first batch."""
    from distributed import Client, LocalCluster

    function = bls.batch_function("heavy", repo)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    first: list[float] = []
    for workers in (1, 2) * rounds:
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            began = perf_counter()
            client.run(function, {"IN": rows[:4]})  # on each worker
            first.append(perf_counter() - began)
            began = perf_counter()
            bls.map("heavy", {"IN": rows}, batch=max(1, len(rows) // 40), on=client, repo=repo)
            seconds[workers].append(perf_counter() - began)
    one, two = (float(np.median(seconds[workers])) for workers in (1, 2))
    return {"one_s": one, "two_s": two, "scaling": one / two, "first_batch_s": float(np.median(first))}


def main() -> int:
    """Measure, print the figures and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few rows, nothing saved: a trial")
    parser.add_argument("--json", metavar="PATH", type=Path, help="save the figures in this file")
    options = parser.parse_args()
    rounds, count, steps = (1, 100, 1000) if options.quick else (5, 10_000, 20_000)
    rows = np.random.default_rng(0).random((count, 16), np.float32)
    with bls.ModelRepository() as repo:
        repo.define("light", SOURCE.format(steps=0), CONFIG.format(batch=0))
        repo.define("heavy", SOURCE.format(steps=steps), CONFIG.format(batch=0))
        mapped(repo, rows[:100])  # which imports what it needs
        runs = [(looped(repo, rows), mapped(repo, rows)) for _ in range(rounds)]
        loop, kernel = (float(np.median(times)) for times in zip(*runs, strict=True))
        figures: dict[str, float] = {
            "loop_us_per_row": 1e6 * loop / count,
            "map_us_per_row": 1e6 * kernel / count,
            "overhead": float(np.median([b / a for a, b in runs])),
            **scaling(repo, rows, rounds),
        }
    print(json.dumps(figures, indent=1))
    if path := options.json or (None if options.quick else RESULTS):
        about = {
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "cores": os.cpu_count(),
            "python": platform.python_version(), "load": os.getloadavg()[0],
        }  # fmt: skip
        path.write_text(json.dumps({**about, **figures}, indent=1) + "\n")
    if not options.quick and figures["scaling"] < LEAST_SCALING:
        print(f"two workers are {figures['scaling']:.2f} times as fast as one, expected {LEAST_SCALING}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
