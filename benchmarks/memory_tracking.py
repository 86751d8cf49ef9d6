"""Measure the cost of memory tracking: the same calls with tracking on and off, alternating in one run.

    python benchmarks/memory_tracking.py [--quick] [--json PATH]

For each kind of call, prints the time without tracking and the ratio of the time with tracking. See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from bls_call_parts.sides import MIB, Case, InKernel

import bls_notebook as bls

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "memory_tracking.json"
TARGET = 1.05
# The slowdown of a call on a real tritonserver, from one run of bls_call.py on one machine.
SERVER = HERE / "results" / "bls_call.json"
CASES = (
    Case("sync call, 64 B, array kept", "bench_caller", "kept", 64, 300),
    Case("sync call, 64 B, array given", "bench_caller", "given", 64, 300),
    Case("sync call, 64 KB, array kept", "bench_caller", "kept", 65536, 200),
    Case("sync call, 64 KB, array given", "bench_caller", "given", 65536, 200),
    Case("sync call, 1 MB, array kept", "bench_caller", "kept", MIB, 40),
    Case("sync call, 1 MB, array given", "bench_caller", "given", MIB, 40),
    Case("sync call, 16 MB, array kept", "bench_caller", "kept", 16 * MIB, 6),
)
CROSSINGS = 2  # tensors passed on in a call: the input and the output
DIGITS = "digits pipeline (3 or 4 models)"


def digits() -> Callable[[int], np.ndarray]:
    """The digits pipeline: reads a picture, calls a classifier, and an expert if the classifier is unsure."""
    repo = bls.ModelRepository(HERE.parent / "model_repository")
    for model in ("digit_preprocess", "digit_classifier", "digit_expert", "digit_reader"):
        repo.load(model)
    picture = np.zeros((40, 30), np.uint8)
    picture[5:35, 13:17] = 255

    def measure(calls: int) -> np.ndarray:
        times = []
        for _ in range(calls):
            began = perf_counter_ns()
            response = repo.infer("digit_reader", {"IMAGE": picture})
            times.append(perf_counter_ns() - began)
            if response.error is not None:
                raise SystemExit(response.error.message())
        return np.array(times)

    return measure


def compare(measure: Callable[[], np.ndarray], rounds: int) -> dict[str, Any]:
    """Measure calls without tracking, with it, and with it but without source lines, in alternating rounds.

    Of the median calls of the rounds, the fastest counts: a busy machine makes calls slower and never faster.
    """
    ways: dict[str, Callable[[], Any]] = {
        "off": contextlib.nullcontext,
        "on": bls.track_memory,
        "no lines": lambda: bls.track_memory(lines=False),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in list(ways)[:: 1 if number % 2 else -1]:
            with ways[way]():
                times[way].append(float(np.median(measure())) / 1e3)
    off, on, no_lines = times.values()
    return {
        "off_us": min(off),
        "on_us": min(on),
        "added_us": min(on) - min(off),
        "lines_us": min(on) - min(no_lines),
        "ratio": min(on) / min(off),
        "median_of_round_ratios": float(np.median(np.array(on) / np.array(off))),
        "rounds": rounds,
    }


def long_track(kernel: InKernel, calls: int) -> dict[str, float]:
    """Return the mean of very many calls, including garbage collections and drops of old log entries."""
    case = CASES[0]
    kernel.measure(case, calls)
    off = float(np.mean(kernel.measure(case, calls))) / 1e3
    with bls.track_memory(limit=5_000):
        kernel.measure(case, calls)
        on = float(np.mean(kernel.measure(case, calls))) / 1e3
    return {"calls": calls, "off_mean_us": off, "on_mean_us": on, "added_us": on - off, "ratio": on / off}


def server_over_kernel() -> float | None:
    """Return the slowdown of a 64-byte call on a real tritonserver, if bls_call.py has measured it."""
    if not SERVER.is_file():
        return None
    rows = json.loads(SERVER.read_text())["calls_us"]
    return next((row["server_over_kernel"] for row in rows if "server_over_kernel" in row), None)


def machine() -> dict[str, Any]:
    model = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a trial, not a measurement")
    parser.add_argument("--json", type=Path, metavar="PATH", help=f"default: {RESULTS.name}, none if quick")
    options = parser.parse_args()
    rounds = 1 if options.quick else 100
    kernel = InKernel(HERE / "model_repository")
    rows: dict[str, Any] = {}
    for case in CASES:
        calls = min(case.calls, 10) if options.quick else case.calls
        rows[case.label] = compare(lambda case=case, calls=calls: kernel.measure(case, calls), rounds)
        for what in ("added", "lines"):
            rows[case.label][f"{what}_ns_a_tensor"] = rows[case.label][f"{what}_us"] * 1e3 / CROSSINGS
    read = digits()
    rows[DIGITS] = compare(lambda: read(10), rounds)
    lasting = long_track(kernel, 500 if options.quick else 40_000)
    print(f"{'':34}{'off':>11}{'on':>11}{'added':>11}{'ratio':>8}{'a tensor':>11}{'of it lines':>13}")
    for label, row in rows.items():
        met = "" if row["ratio"] <= TARGET else f"   over {TARGET}"
        times = "".join(f"{row[key]:8.1f} us" for key in ("off_us", "on_us", "added_us"))
        each = (
            f"{row['added_ns_a_tensor']:8.0f} ns{row['lines_ns_a_tensor']:10.0f} ns"
            if "lines_ns_a_tensor" in row
            else " " * 24
        )
        print(f"{label:34}{times}{row['ratio']:8.3f}{each}{met}")
    print(f"\n{lasting['calls']:,} calls of 64 B, array kept, with a full recording: on average "
          f"{lasting['off_mean_us']:.1f} us without tracking, {lasting['on_mean_us']:.1f} us with it, "
          f"ratio {lasting['ratio']:.3f}.")  # fmt: skip
    times = server_over_kernel()
    small = rows[CASES[0].label]
    share = None if times is None else small["added_us"] / (small["off_us"] * times)
    if share is not None:
        print(f"A call of 64 B is {times:.0f}x slower on a real tritonserver (results/bls_call.json): "
              f"tracking adds {share:.1%} of its time.")  # fmt: skip
    path = options.json or (None if options.quick else RESULTS)
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "quick": options.quick,
        "machine": machine(),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "target": TARGET,
        "calls": rows,
        "long_track": lasting,
        "server_over_kernel": times,
        "share_of_a_servers_call": share,
    }
    path.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
