"""Measure the cost of recording spans, or of a watch: the same calls with it on and off, interleaved in one run.

    python benchmarks/tracing.py [--watch] [--quick] [--check] [--json PATH]

See README.md for what is timed and how the comparison is kept fair.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import os
import platform
import random
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np

import bls_notebook as bls
from bls_notebook.profiling import Profile

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "tracing.json"
TARGET = 1.05  # on / off
MODELS = ("bench_callee", "bench_caller", "bench_caller_async")
PIPELINE = ("digit_preprocess", "digit_classifier", "digit_expert", "digit_reader")

Measure = Callable[[int], list[int]]  # calls -> nanoseconds of each


def bls_calls(repo: bls.ModelRepository, model: str, mode: str) -> Measure:
    """Time calls of 64 bytes inside the caller's execute."""

    def measure(calls: int) -> list[int]:
        inputs = {
            "MODE": np.array([mode.encode()], np.object_),
            "BYTES": np.array([64], np.int64),
            "CALLS": np.array([calls], np.int64),
        }
        response = repo.infer(model, inputs)
        if response.error is not None:
            raise SystemExit(f"tracing.py: {model} answered: {response.error.message()}")
        return [int(ns) for ns in response["NANOSECONDS"].as_numpy()]

    return measure


def pipeline(repo: bls.ModelRepository) -> Measure:
    """Time whole requests to the digits pipeline, from outside."""
    image = np.random.default_rng(0).integers(0, 16, (8, 8)).astype(np.uint8)

    def measure(calls: int) -> list[int]:
        times = []
        for _ in range(calls):
            began = perf_counter_ns()
            response = repo.infer("digit_reader", {"IMAGE": image})
            times.append(perf_counter_ns() - began)
            if response.error is not None:
                raise SystemExit(f"tracing.py: digit_reader answered: {response.error.message()}")
        return times

    return measure


def profiled(lines: bool = True) -> Any:
    return bls.profile(lines=lines)


def watched(repo: bls.ModelRepository) -> Any:
    """Run the panel of `%blswatch` without the page that draws its data."""
    from bls_notebook.inspection.inspector_widget import WatchWidget

    return contextlib.closing(WatchWidget(bls.watch(repo=repo)))


def one_round(
    measure: Measure, calls: int, spans: dict[str, int], label: str, begin: Callable[[], Any]
) -> dict[str, list[int]]:
    """Measure the same calls with and without a profile (or a watch), in random order."""
    out = {}
    states = ["off", "on"]
    random.shuffle(states)
    for state in states:
        session = begin() if state == "on" else contextlib.nullcontext()
        gc.collect()
        with session:
            out[state] = measure(calls)
        if isinstance(session, Profile):
            spans[label] = len(session.record.spans)
            if session.record.dropped:
                raise SystemExit("tracing.py: the profile was full; what is timed then is not recording")
    return out


def summary(rounds: list[dict[str, list[int]]]) -> dict[str, Any]:
    """Return the medians of all calls, and the rounds' ratios of medians and of means (with pauses)."""
    both = {state: [ns for one in rounds for ns in one[state]] for state in ("off", "on")}
    medians = sorted(median(one["on"]) / median(one["off"]) for one in rounds)
    least = {state: min(median(one[state]) for one in rounds) / 1e3 for state in ("off", "on")}
    means = sorted(np.mean(one["on"]) / np.mean(one["off"]) for one in rounds)
    return {
        "off_us": median(both["off"]) / 1e3,
        "on_us": median(both["on"]) / 1e3,
        "ratio": median(medians),
        "ratio_quartiles": [medians[len(medians) // 4], medians[-1 - len(medians) // 4]],
        "ratio_of_means": float(median(means)),
        "added_us": least["on"] - least["off"],
        "rounds": len(rounds),
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What recording spans costs.")
    parser.add_argument("--watch", action="store_true", help="measure a watch instead of a profile")
    parser.add_argument("--no-lines", action="store_true", help="measure a profile without source lines")
    parser.add_argument("--quick", action="store_true", help="a trial, not a measurement")
    parser.add_argument("--check", action="store_true", help=f"exit status 1 if a ratio is over {TARGET}")
    parser.add_argument("--json", type=Path, default=None, help="default: in results, none if quick")
    return parser.parse_args()


def about() -> dict[str, str]:
    """Return the time and the machine of the measurement."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def main() -> int:
    options = parsed()
    repo = bls.ModelRepository(HERE / "model_repository", HERE.parent / "model_repository")
    for model in (*MODELS, *PIPELINE):
        repo.load(model)
    # A watch updates twice a second, so each measurement lasts at least that long.
    part = (4 if options.quick else 1) / 60 if options.watch else 12 if options.quick else 1
    begin = (lambda: watched(repo)) if options.watch else lambda: profiled(not options.no_lines)
    # Label, measure function, calls of a round, and calls that one figure counts.
    cases: list[tuple[str, Measure, int, int]] = [
        ("sync, 64 B", bls_calls(repo, "bench_caller", "kept"), round(400 / part), 1),
        ("gather of 64, 64 B each", bls_calls(repo, "bench_caller_async", "gather:64"), round(12 / part), 64),
        ("digits pipeline", pipeline(repo), round(60 / part), 1),
    ]
    rounds: dict[str, list[dict[str, list[int]]]] = {label: [] for label, *_ in cases}
    spans: dict[str, int] = {}
    for number in range(2 if options.quick else 12 if options.watch else 80):
        random.shuffle(cases)
        for label, measure, calls, _ in cases:
            found = one_round(measure, calls, spans, label, begin)
            if number:  # the first round warms up
                rounds[label].append(found)
    repo.close()
    print(f"{'':26}{'off':>12}{'on':>12}{'on / off':>10}   quartiles      of means   spans a call   added")
    missed = False
    figures = {}
    for label, _, calls, width in sorted(cases, key=lambda case: case[0], reverse=True):
        figures[label] = one = summary(rounds[label])
        one["spans_a_call"] = spans.get(label, 0) / calls / width
        missed |= one["ratio"] > TARGET
        low, high = one["ratio_quartiles"]
        print(
            f"{label:26}{one['off_us']:9.1f} µs{one['on_us']:9.1f} µs{one['ratio']:10.3f}"
            f"   {low:.3f} .. {high:.3f}{one['ratio_of_means']:9.3f}{one['spans_a_call']:12.1f}"
            f"{one['added_us']:9.2f} µs"
        )
    path = options.json or (
        None if options.quick or options.no_lines else RESULTS.with_stem("watching") if options.watch else RESULTS
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"about": about(), "cases": figures}, indent=1) + "\n")
    if options.check and missed:
        print(f"tracing.py: a ratio is over {TARGET}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
