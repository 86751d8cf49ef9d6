"""Measure the gain of dynamic batching, in the kernel and on a real tritonserver, in one run.

    python benchmarks/batching.py [--quick] [--json PATH] [--triton-env DIR] [--no-server]

One model (batching_parts/recurrent) is loaded twice: with the default scheduler and with the dynamic batcher. Another
model sends it gathered asynchronous BLS requests and measures the time itself, inside ``execute``. Both sides run the
same files. See README.md.
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
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bls_notebook as bls
from bls_notebook.shipping.servers import tritonserver
from bls_notebook.shipping.servers.server_programs import is_supported

PARTS = Path(__file__).resolve().parent / "batching_parts"
RESULTS = Path(__file__).resolve().parent / "results" / "batching.json"
REQUESTS = (1, 16, 64)
MAX_BATCH = 16
CONFIG = """backend: "python"
max_batch_size: {rows}
{scheduling}
input {{ name: "IN" data_type: TYPE_FP32 dims: [ 32 ] }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: [ 32 ] }}
instance_group {{ count: 1 kind: KIND_CPU }}
"""
SCHEDULING = {"recurrent_default": "", "recurrent_dynamic": "dynamic_batching { }"}

Measure = Callable[[str, int, int], np.ndarray]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def write_models(folder: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PARTS / "batch_caller", folder / "batch_caller", ignore=ignore)
    for name, scheduling in SCHEDULING.items():
        shutil.copytree(PARTS / "recurrent", folder / name, ignore=ignore)
        (folder / name / "config.pbtxt").write_text(CONFIG.format(rows=MAX_BATCH, scheduling=scheduling))


def inputs(model: str, requests: int, rounds: int) -> dict[str, Any]:
    return {
        "MODEL": np.array([model.encode()], np.object_),
        "REQUESTS": np.array([requests], np.int64),
        "ROUNDS": np.array([rounds], np.int64),
    }


def kernel_side(stack: contextlib.ExitStack, folder: Path) -> Measure:
    repo = stack.enter_context(bls.ModelRepository(folder))
    for name in ("batch_caller", *SCHEDULING):
        repo.load(name)

    def measure(model: str, requests: int, rounds: int) -> np.ndarray:
        response = repo.infer("batch_caller", inputs(model, requests, rounds))
        if response.error is not None:
            raise SystemExit(f"batching.py: {model} in the kernel answered: {response.error.message()}")
        return response["NANOSECONDS"].as_numpy()

    return measure


def real_side(stack: contextlib.ExitStack, folder: Path, environment: str | None) -> Measure:
    made = tritonserver.make_environment(environment, progress=say)
    server = stack.enter_context(tritonserver.TritonServer(folder, environment=made, load=["*"]))

    def measure(model: str, requests: int, rounds: int) -> np.ndarray:
        return server.infer("batch_caller", inputs(model, requests, rounds), wait=300)["NANOSECONDS"]

    return measure


def measure_all(sides: dict[str, Measure], quick: bool, order: random.Random) -> dict[Any, float]:
    """Return median milliseconds of a gather, by side, model and number of requests."""
    times: dict[Any, list[np.ndarray]] = {}
    for number in range(1 if quick else 6):
        say(f"round {number + 1}")
        cases = [(side, model, n) for side in sides for model in SCHEDULING for n in REQUESTS]
        order.shuffle(cases)
        for side, model, requests in cases:
            rounds = (1 if quick else 12) * (1 if requests > 1 else 4)
            times.setdefault((side, model, requests), []).append(sides[side](model, requests, rounds))
    return {case: float(np.median(np.concatenate(got))) / 1e6 for case, got in times.items()}


def row_of(requests: int, medians: dict[Any, float], sides: dict[str, Measure]) -> dict[str, Any]:
    row: dict[str, Any] = {"requests": requests}
    for side in sides:
        default, dynamic = (medians[side, model, requests] for model in SCHEDULING)
        row[side] = {
            "default_ms": default,
            "dynamic_ms": dynamic,
            "default_requests_per_second": 1e3 * requests / default,
            "dynamic_requests_per_second": 1e3 * requests / dynamic,
            "gain": default / dynamic,
        }
    if "tritonserver" in sides:
        server, kernel = row["tritonserver"], row["in-kernel"]
        row["server_over_kernel"] = {
            "default": server["default_ms"] / kernel["default_ms"],
            "dynamic": server["dynamic_ms"] / kernel["dynamic_ms"],
        }
    return row


def table(result: dict[str, Any]) -> str:
    lines = [f"{'requests':>8}  {'side':<14}{'default':>14}{'dynamic':>14}{'gain':>8}"]
    for row in result["gathers"]:
        for side in ("tritonserver", "in-kernel"):
            if side in row:
                got = row[side]
                times = f"{got['default_ms']:>11.2f} ms{got['dynamic_ms']:>11.2f} ms"
                lines.append(f"{row['requests']:>8}  {side:<14}{times}{got['gain']:>7.2f}x")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a trial, not a measurement")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help=f"where to write the figures (default: {RESULTS.name}; nowhere if quick)",
    )
    parser.add_argument("--triton-env", metavar="DIR", help="the server's environment; created if missing")
    parser.add_argument("--no-server", action="store_true", help="skip the real server")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the order")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bls-batching-")))
        sides: dict[str, Measure] = {}
        for side in ("kernel", "real"):
            (folder / side).mkdir()
            write_models(folder / side)
        sides["in-kernel"] = kernel_side(stack, folder / "kernel")
        if not options.no_server and is_supported():
            try:
                sides["tritonserver"] = real_side(stack, folder / "real", options.triton_env)
            except tritonserver.TritonServerError as error:
                raise SystemExit(f"batching.py: {error}\n(--no-server measures without it)") from None
        medians = measure_all(sides, options.quick, random.Random(options.seed))
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "quick": options.quick,
        "seed": options.seed,
        "max_batch_size": MAX_BATCH,
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "gathers": [row_of(n, medians, sides) for n in REQUESTS],
    }
    path = options.json or (None if options.quick else RESULTS)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
