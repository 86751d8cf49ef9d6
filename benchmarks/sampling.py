"""Measure the cost of time by line: the same requests profiled with the stack sampler and without, in one run.

    python benchmarks/sampling.py [--quick] [--check] [--json PATH]

A round sends the requests of a case in both ways, in random order. The wall time counts other programs, too; the
processor time of the process is less disturbed by them. The sampler's own processor time, as a share of the wall time,
is least disturbed: it is the time for which other threads of the process cannot have the GIL.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Any
from unittest.mock import patch

import numpy as np
from tracing import HERE, PIPELINE, about, pipeline

import bls_notebook as bls
from bls_notebook.profiling.analysis.line_times import model_lines
from bls_notebook.profiling.resource_time import STACK_SAMPLER, thread_times
from bls_notebook.profiling.stack_sampler import StackSampler

RESULTS = HERE / "results" / "sampling.json"
TARGET = 1.03  # with / without
CONFIG = """
input [{ name: "N", data_type: TYPE_INT64, dims: [1] }]
output [{ name: "N", data_type: TYPE_INT64, dims: [1] }]
"""
PYTHON = """
import triton_python_backend_utils as pb_utils


def compute(count):
    total = 0
    for number in range(count):
        total += number * number
    return total


class TritonPythonModel:
    def execute(self, requests):
        tensors = [request.inputs()[0] for request in requests]
        for tensor in tensors:
            compute(int(tensor.as_numpy()[0]))
        return [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
"""
WAITS = (
    PYTHON.replace("def execute", "async def execute")
    .replace("compute(int(tensor.as_numpy()[0]))", "await asyncio.sleep(int(tensor.as_numpy()[0]) / 1e6)")
    .replace("import triton", "import asyncio\n\nimport triton", 1)
)


def requests_to(repo: bls.ModelRepository, model: str, number: int) -> Callable[[int], None]:
    inputs = {"N": np.array([number])}

    def send(count: int) -> None:
        for _ in range(count):
            repo.infer(model, inputs)

    return send


def both_ways(send: Callable[[int], Any], count: int) -> dict[bool, tuple[int, int, float, Any]]:
    """Return wall time, processor time, the sampler's share and the session, with the sampler and without."""
    out = {}
    for sampled in random.sample((False, True), 2):
        gc.collect()
        start = StackSampler.start if sampled else StackSampler.stop
        with patch.object(StackSampler, "start", start), bls.profile() as profile:
            wall, cpu = perf_counter_ns(), process_time_ns()
            send(count)
            wall, cpu = perf_counter_ns() - wall, process_time_ns() - cpu
            threads = {thread.native_id for thread in threading.enumerate() if thread.name == STACK_SAMPLER}
            own = sum(times.worked for thread, times in thread_times().items() if thread in threads)
        out[sampled] = wall, cpu, own / wall, profile.record
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description="What time by line costs.")
    parser.add_argument("--quick", action="store_true", help="a trial, not a measurement")
    parser.add_argument("--check", action="store_true", help=f"exit status 1 if a ratio is over {TARGET}")
    parser.add_argument("--json", type=Path, default=None, help="default: in results, none if quick")
    options = parser.parse_args()
    repo = bls.ModelRepository(HERE.parent / "model_repository")
    for model in PIPELINE:
        repo.load(model)
    repo.define("python", PYTHON, CONFIG)
    repo.define("waits", WAITS, CONFIG)
    part = 10 if options.quick else 1
    cases = {
        "Python code, 20 ms": (requests_to(repo, "python", 400_000), 10),
        "awaits, 20 ms": (requests_to(repo, "waits", 20_000), 10),
        "digits pipeline": (pipeline(repo), 60),
    }
    figures: dict[str, Any] = {}
    print(f"{'':22}{'wall':>8}{'   quartiles':16}{'processor':>10}{'sampler':>10}{'samples':>10}")
    for label, (send, count) in cases.items():
        both_ways(send, max(1, count // part))  # warm up
        rounds = [both_ways(send, max(1, count // part)) for _ in range(2 if options.quick else 20)]
        wall, cpu = (sorted(one[True][i] / max(1, one[False][i]) for one in rounds) for i in (0, 1))
        samples = sum(model.samples for one in rounds for model in model_lines(one[True][3]))
        figures[label] = {
            "wall": median(wall), "wall_quartiles": [wall[len(wall) // 4], wall[-1 - len(wall) // 4]],
            "processor": median(cpu), "sampler": median(one[True][2] for one in rounds), "samples": samples,
            "rounds": len(rounds),
        }  # fmt: skip
        low, high = figures[label]["wall_quartiles"]
        own = f"{figures[label]['sampler']:10.1%}"
        print(f"{label:22}{median(wall):8.3f}   {low:.3f} .. {high:.3f}{median(cpu):10.3f}{own}{samples:10,}")
    repo.close()
    path = options.json or (None if options.quick else RESULTS)
    if path is not None:
        path.write_text(json.dumps({"about": about(), "cases": figures}, indent=1) + "\n")
    if options.check and any(case["sampler"] > TARGET - 1 or case["wall"] > TARGET for case in figures.values()):
        print(f"sampling.py: over {TARGET}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
