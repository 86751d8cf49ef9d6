"""Check that `bls.tune` finds the result of an exhaustive search, and count the runs that it needs.

    python benchmarks/tuning.py [--unit SECONDS] [--only REGEX] [--quick] [--check] [--json PATH]

The callees of six graphs wait. For each graph, `tune` predicts the smallest setting for four requests at once. Then the
script runs every setting: all instance counts that the requests could use and, for models that batch, several batch
sizes and queue delays. See README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import bls_notebook as bls
from bls_notebook.profiling.sync_vs_async import Workload
from bls_notebook.profiling.tuner import fields_of
from bls_notebook.repository.variant import with_count, with_fields

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.profiling.tuning_graphs import GRAPHS, TuningGraph, define

TARGET = 1.10  # ratio to the best of all settings
REQUESTS = 4
FINALISTS = 5
Fields = dict[str, dict[str, Any]]


def settings(repo: bls.ModelRepository, graph: TuningGraph, most: dict[str, int]) -> Iterator[tuple[int, Fields]]:
    """Yield every setting up to a number of instances per model: its total of instances and its changes."""
    ways: list[dict[str, Any]] = [{}]
    if graph.batches:
        for size, delay in product((2, 4), (0, 5000, 20000)):
            batching = {"preferred_batch_size": [size], "max_queue_delay_microseconds": delay}
            ways.append({"dynamic_batching": batching})
    for counts in product(*(range(1, most[name] + 1) for name in graph.models)):
        for way in ways:
            fields = {
                name: {**with_count(repo, name, count), **(way if name == graph.batches else {})}
                for name, count in zip(graph.models, counts, strict=True)
            }
            yield sum(counts), fields


def wall(workload: Workload, fields: Fields, runs: int) -> int:
    """Return the duration (ns) of the concurrent requests with a setting: the median of runs after a warm-up."""
    with with_fields(workload.repository, fields):
        workload.gathered()
        return round(median(workload.gathered().wall for _ in range(runs)))


def measure(graph: TuningGraph, unit: float, runs: int, quick: bool) -> dict[str, Any] | None:
    """Tune a graph, then try every setting; None if `tune` does not know one, as on a busy machine."""
    with bls.ModelRepository() as repo:
        define(repo, graph, unit)
        workload = Workload(repo, "root", [graph.inputs] * REQUESTS)
        found = bls.tune("root", graph.inputs, n=REQUESTS, verify=False, repeat=1 if quick else None, repo=repo)
        if not found.models:
            return None
        most = {m.name: 1 if quick else m.most for m in found.models}
        changes = {model.name: fields_of(repo, model) for model in found.changed}
        tried = [(wall(workload, f, runs), count, f) for count, f in settings(repo, graph, most)]
        # Among many settings some are fast by chance, so measure the fastest again, beside the predicted one.
        tried.sort(key=lambda each: each[0])
        again = [wall(workload, fields, 2 * runs + 1) for _, _, fields in tried[:FINALISTS]]
        took = wall(workload, changes, 2 * runs + 1)
    best = min(again)
    return {
        "graph": graph.name,
        "found": {m.name: m.found.count for m in found.models},
        "predicted_ms": found.predicted.found / 1e6,
        "measured_ms": took / 1e6,
        "best_ms": best / 1e6,
        "ratio": took / best,
        "instances": sum(m.found.count for m in found.models),
        "fewest_within_target": min(count for ns, count, _ in tried if ns <= TARGET * tried[0][0]),
        "runs": found.runs,
        "exhaustive_runs": len(tried) * (1 + runs) + len(again) * (2 * runs + 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--unit", type=float, default=0.02, help="seconds of the shortest wait")
    parser.add_argument("--only", default="", help="graphs whose names match")
    parser.add_argument("--quick", action="store_true", help="short waits, few settings: a trial, not a measurement")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a ratio is over the target")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rows = []
    print(f"{'graph':<20}{'found':<38}{'took':>8}{'best':>8}{'ratio':>7}{'runs':>12}{'instances':>14}")
    for graph in GRAPHS:
        if not re.search(options.only, graph.name):
            continue
        if options.quick and graph.name not in ("fan-out", "batchable callee"):
            continue
        row = measure(graph, 0.003 if options.quick else options.unit, 1 if options.quick else 2, options.quick)
        if row is None:
            print(f"{graph.name:<20}unknown", flush=True)
            continue
        rows.append(row)
        counts = ", ".join(f"{name} {count}" for name, count in row["found"].items())
        print(
            f"{row['graph']:<20}{counts:<38}{row['measured_ms']:8.1f}{row['best_ms']:8.1f}{row['ratio']:7.2f}"
            f"{row['runs']:>5} of {row['exhaustive_runs']:<5}{row['instances']:>4}"
            f" ({row['fewest_within_target']})",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({"unit": options.unit, "graphs": rows}, indent=2) + "\n")
    if options.check and any(row["ratio"] > TARGET for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
