"""What the memory ledger costs: the same calls with a memory track on and off, in turns, in one run.

    python benchmarks/memory_tracking.py [--quick] [--json PATH]

Prints, for each kind of call, the time without a track and the ratio to that with one. See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
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
# A sync call of 64 bytes between two models on a real tritonserver, microseconds; see results/bls_call.json.
SERVER = HERE / "results" / "bls_call.json"
CASES = (
    Case("sync call, 64 B, array kept", "bench_caller", "kept", 64, 800),
    Case("sync call, 64 B, array given", "bench_caller", "given", 64, 800),
    Case("sync call, 64 KB, array kept", "bench_caller", "kept", 65536, 400),
    Case("sync call, 64 KB, array given", "bench_caller", "given", 65536, 400),
    Case("sync call, 1 MB, array kept", "bench_caller", "kept", MIB, 100),
    Case("sync call, 1 MB, array given", "bench_caller", "given", MIB, 100),
)


def digits() -> Callable[[int], np.ndarray]:
    """The digits pipeline: reads a picture, asks a classifier, and an expert where that is unsure."""
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
    """The median call of each round, without and with a track in turns; and of these the quietest round.

    A busy machine makes calls slower and never quicker, so the quietest rounds are what there is to compare.
    """
    off, on = [], []
    for number in range(rounds):
        for tracked in (False, True) if number % 2 else (True, False):
            with bls.track_memory() if tracked else contextlib.nullcontext():
                (on if tracked else off).append(float(np.median(measure())) / 1e3)
    return {
        "off_us": min(off),
        "on_us": min(on),
        "added_us": min(on) - min(off),
        "ratio": min(on) / min(off),
        "median_of_round_ratios": float(np.median(np.array(on) / np.array(off))),
        "rounds": rounds,
    }


def server_call_us() -> float | None:
    """What such a call of 64 bytes takes on a real tritonserver, where that has been measured."""
    if not SERVER.is_file():
        return None
    rows = json.loads(SERVER.read_text())["calls_us"]
    return next((row["tritonserver"]["median"] for row in rows if "tritonserver" in row), None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a measurement")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    options = parser.parse_args()
    rounds = 6 if options.quick else 30
    kernel, server = InKernel(HERE / "model_repository"), server_call_us()
    rows: dict[str, Any] = {}
    for case in CASES:
        rows[case.label] = compare(lambda case=case: kernel.measure(case, case.calls), rounds)
    read = digits()
    rows["digits pipeline (3 or 4 models)"] = compare(lambda: read(40), rounds)
    print(f"{'':34}{'off':>10}{'on':>10}{'added':>10}{'ratio':>8}")
    for label, row in rows.items():
        met = "" if row["ratio"] <= TARGET else f"   over {TARGET}"
        times = "".join(f"{row[key]:8.1f} us"[-10:].rjust(10) for key in ("off_us", "on_us", "added_us"))
        print(f"{label:34}{times}{row['ratio']:8.3f}{met}")
    if server is not None:
        added = rows[CASES[0].label]["added_us"]
        print(f"\nOn a real tritonserver the call of 64 B takes {server:.0f} us; {added:.1f} us of that are "
              f"{added / server:.1%}.")  # fmt: skip
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(
        json.dumps({"target": TARGET, "server_call_us": server, "calls": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
