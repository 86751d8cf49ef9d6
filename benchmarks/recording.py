"""Measure the cost of `bls.record`: the same calls with recording on and off, interleaved in one run.

    python benchmarks/recording.py [--quick] [--check] [--json PATH]

The calls are those of tracing.py. The script also replays the recorded requests; the answers must be equal bit for bit.
See README.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from tracing import HERE, MODELS, PIPELINE, Measure, about, bls_calls, one_round, pipeline, summary

import bls_notebook as bls

RESULTS = HERE / "results" / "recording.json"
TARGET = 1.05  # on / off, for the digits pipeline
DIGITS = "digits pipeline"
WAYS: dict[str, Callable[[], Any]] = {"every tensor": lambda: bls.record(tensors="all"), "from outside": bls.record}


def saved_and_sent_again(repo: bls.ModelRepository, calls: int) -> dict[str, Any]:
    """Measure writing and reading a recording and its size, and check that a replay is equal."""
    measure = pipeline(repo)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.blsrec"
        with bls.record(tensors="all") as recorder:
            measure(calls)
        began = perf_counter()
        recorder.recording.save(path)
        wrote = perf_counter()
        recording = bls.open_file(path)
        read = perf_counter()
        again = bls.replay(recording, repo=repo)
        if not again.equal or len(again.requests) != calls:
            raise SystemExit(f"recording.py: a replay differs:\n{again}")
        return {
            "requests": calls, "hops": len(recording), "file_bytes": path.stat().st_size,
            "save_ms": 1e3 * (wrote - began), "load_ms": 1e3 * (read - wrote), "equal": again.equal,
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="What bls.record costs.")
    parser.add_argument("--quick", action="store_true", help="a trial, not a measurement")
    parser.add_argument("--check", action="store_true", help=f"exit status 1 if {DIGITS} is over {TARGET}")
    parser.add_argument("--json", type=Path, default=None, help="default: in results, none if quick")
    options = parser.parse_args()
    repo = bls.ModelRepository(HERE / "model_repository", HERE.parent / "model_repository")
    for model in (*MODELS, *PIPELINE):
        repo.load(model)
    part = 6 if options.quick else 1
    cases: list[tuple[str, Measure, int]] = [
        ("sync, 64 B", bls_calls(repo, "bench_caller", "kept"), round(120 / part)),
        (DIGITS, pipeline(repo), round(12 / part)),
    ]
    rounds: dict[tuple[str, str], list[dict[str, list[int]]]] = {}
    gc.collect()
    gc.freeze()  # so that the garbage collection before each short round is fast
    for number in range(2 if options.quick else 240):
        random.shuffle(cases)
        for label, measure, calls in cases:
            for way, begin in WAYS.items():
                found = one_round(measure, calls, {}, label, begin)
                if number:  # the first round warms up
                    rounds.setdefault((label, way), []).append(found)
    figures: dict[str, Any] = {}
    print(f"{'':34}{'off':>12}{'on':>12}{'on / off':>10}   quartiles      of means    added")
    for (label, way), each in sorted(rounds.items()):
        figures[f"{label}, {way}"] = one = summary(each)
        low, high = one["ratio_quartiles"]
        print(
            f"{label + ', ' + way:34}{one['off_us']:9.1f} µs{one['on_us']:9.1f} µs{one['ratio']:10.3f}"
            f"   {low:.3f} .. {high:.3f}{one['ratio_of_means']:9.3f}{one['added_us']:9.2f} µs"
        )
    file = saved_and_sent_again(repo, 10 if options.quick else 1000)
    print(
        f"{file['requests']} requests ({file['hops']} hops): {file['file_bytes'] / 1e3:.0f} kB, written in "
        f"{file['save_ms']:.0f} ms, read in {file['load_ms']:.0f} ms, sent again: equal bit for bit"
    )
    repo.close()
    path = options.json or (None if options.quick else RESULTS)
    if path is not None:
        path.write_text(json.dumps({"about": about(), "cases": figures, "file": file}, indent=1) + "\n")
    missed = figures[f"{DIGITS}, every tensor"]["ratio"] > TARGET
    if options.check and missed:
        print(f"recording.py: {DIGITS}: over {TARGET}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
