"""Measure the cost of a BLS call: a real tritonserver, the in-kernel engine and a direct Python call, in one run.

    python benchmarks/bls_call.py [--quick] [--check] [--json PATH] [--triton-env DIR] [--no-server]

Both sides run the same caller and callee (model_repository/ beside this script). These models measure the time
themselves, inside ``execute``. See README.md for what is timed and how the comparison is kept fair.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from bls_call_parts.sides import MIB, MODELS, WIDTH, Case, Direct, InKernel, RealServer, fail, memory_of_models
from bls_call_parts.table import table

import bls_notebook as bls
from bls_notebook.shipping.servers import tritonserver
from bls_notebook.shipping.servers.server_programs import is_supported

RESULTS = Path(__file__).resolve().parent / "results" / "bls_call.json"
CASES = (
    Case("sync call, 64 B, array kept", "bench_caller", "kept", 64, 2000, 6),
    Case("sync call, 64 B, array given", "bench_caller", "given", 64, 2000, 6),
    Case("sync call, 1 MB, array kept", "bench_caller", "kept", MIB, 300, 6),
    Case("sync call, 1 MB, array given", "bench_caller", "given", MIB, 300, 6),
    Case("sync call, 16 MB, array kept", "bench_caller", "kept", 16 * MIB, 40, 6),
    Case("sync call, 16 MB, array given", "bench_caller", "given", 16 * MIB, 40, 100),
    Case(f"gather of {WIDTH} async calls, 64 B", "bench_caller_async", f"gather:{WIDTH}", 64, 40, 6),
)
REDEFINE_TARGET_MS = 20.0
MEMORY_MODELS = 50


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def memory_in_fresh_process() -> float:
    command = [sys.executable, str(Path(__file__).resolve()), "--memory-of-models", str(MEMORY_MODELS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        fail(f"measuring memory failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return float(done.stdout)


def figures(rounds: list[np.ndarray], unit: float = 1e3) -> dict[str, Any]:
    everything = np.concatenate(rounds) / unit
    return {
        "median": float(np.median(everything)),
        "p99": float(np.percentile(everything, 99)),
        "calls": int(everything.size),
        "round_medians": [float(np.median(part)) / unit for part in rounds],
    }


def measure_calls(sides: dict[str, Any], rounds: int, quick: bool, order: random.Random) -> dict[Case, Any]:
    """Measure every case on every side in `rounds` rounds, with cases and sides in a new order each time."""
    times: dict[Case, dict[str, list[np.ndarray]]] = {case: {side: [] for side in sides} for case in CASES}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for case in order.sample(CASES, len(CASES)):
            calls = max(case.calls // 20, 5) if quick else case.calls
            for side in order.sample(sorted(sides), len(sides)):
                times[case][side].append(np.asarray(sides[side].measure(case, calls)))
    return {case: {side: figures(parts) for side, parts in row.items()} for case, row in times.items()}


def measure_redefinition(ways: dict[str, Callable[[int], float]], times: int) -> dict[str, Any]:
    spent: dict[str, list[np.ndarray]] = {way: [] for way in ways}
    for redefine in ways.values():
        redefine(-1)  # the very first definition is not a redefinition
    for answer in range(times):
        for way, redefine in ways.items():
            spent[way].append(np.array([redefine(answer)], np.int64))
    return {way: figures(parts, unit=1e6) for way, parts in spent.items()}


def machine() -> dict[str, Any]:
    model = platform.processor()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "bls_notebook": getattr(bls, "__version__", "unknown"),
    }


@contextlib.contextmanager
def real_server(options: argparse.Namespace, folder: Path) -> Iterator[RealServer | None]:
    if not options.no_server and not is_supported():
        say("tritonserver runs on Linux x86-64 only: measuring without it")
    if options.no_server or not is_supported():
        yield None
        return
    try:
        environment = tritonserver.make_environment(options.triton_env, progress=say)
        say("starting tritonserver")
        side = RealServer(folder, environment)
    except tritonserver.TritonServerError as error:
        fail(f"{error}\n(--no-server measures without it)")
    try:
        yield side
    finally:
        side.server.stop(graceful=False)


def run(options: argparse.Namespace) -> dict[str, Any]:
    random_order = random.Random(options.seed)
    rounds = options.rounds or (1 if options.quick else 8)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bls-call-")))
        for side in ("real", "kernel"):
            shutil.copytree(MODELS, folder / side, ignore=shutil.ignore_patterns("__pycache__"))
        real = stack.enter_context(real_server(options, folder / "real"))
        memory: dict[str, Any] = {"in-kernel": {"resident_kib": memory_in_fresh_process()}}
        kernel = InKernel(folder / "kernel")
        stack.callback(kernel.repo.close)
        sides: dict[str, Any] = {"in-kernel": kernel, "direct": Direct(True), "direct, built": Direct(False)}
        about = machine()
        if real is not None:
            sides["tritonserver"] = real
            memory["tritonserver"] = real.memory()
            about["tritonserver"] = real.version
            about["tritonserver_numpy"] = real.numpy()
        calls = measure_calls(sides, rounds, options.quick, random_order)
        say("redefining")
        redefinition = {"in-kernel": measure_redefinition({"in-kernel": kernel.redefine}, 20)["in-kernel"]}
        ways = {"in-kernel, from its folder": kernel.redefine_folder}
        if real is not None:
            ways["tritonserver"] = real.redefine
        redefinition |= measure_redefinition(ways, 1 if options.quick else 5)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "quick": options.quick,
        "rounds": rounds,
        "seed": options.seed,
        "machine": about,
        "calls_us": [row_of(case, got) for case, got in calls.items()],
        "redefinition_ms": redefinition_row(redefinition),
        "memory_of_a_model": memory_row(memory),
    }


def row_of(case: Case, got: dict[str, Any]) -> dict[str, Any]:
    """Return the figures (microseconds) of a case with the ratios of its medians."""
    kernel, server = got["in-kernel"]["median"], got.get("tritonserver", {}).get("median")
    faster = None if server is None else server / kernel
    return {
        "case": case.label,
        "bytes": case.size,
        **got,
        "server_over_kernel": faster,
        "kernel_over_direct": kernel / got["direct"]["median"],
        "target_times_faster": case.target,
        "target_met": None if case.target is None or faster is None else faster >= case.target,
    }


def redefinition_row(got: dict[str, Any]) -> dict[str, Any]:
    kernel, server = got["in-kernel"]["median"], got.get("tritonserver", {}).get("median")
    return {
        **got,
        "server_over_kernel": None if server is None else server / kernel,
        "target_ms": REDEFINE_TARGET_MS,
        "target_met": kernel < REDEFINE_TARGET_MS,
    }


def memory_row(got: dict[str, Any]) -> dict[str, Any]:
    kernel, server = got["in-kernel"]["resident_kib"], got.get("tritonserver")
    return {
        **got,
        "models": MEMORY_MODELS,
        "server_over_kernel": None if server is None else server["proportional_kib"] / max(kernel, 1.0),
    }


def targets_missed(result: dict[str, Any]) -> list[str]:
    missed = [row["case"] for row in result["calls_us"] if row["target_met"] is False]
    if not result["redefinition_ms"]["target_met"]:
        missed.append("redefine to first answer")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and calls: a trial, not a measurement")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a target is missed")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help=f"where to write the figures (default: {RESULTS.name}; nowhere if quick)",
    )
    parser.add_argument("--triton-env", metavar="DIR", help="the server's environment; created if missing")
    parser.add_argument("--no-server", action="store_true", help="skip the real server")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds (8; 1 with --quick)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the order")
    parser.add_argument("--memory-of-models", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of_models:
        print(memory_of_models(options.memory_of_models))
        return
    began = time.monotonic()
    result = run(options)
    path = options.json or (None if options.quick else RESULTS)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    say(f"{time.monotonic() - began:.0f} s")
    missed = targets_missed(result)
    if options.check and missed:
        fail(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
