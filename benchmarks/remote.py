"""Measure the cost of a BLS call to a model on a running server, compared with a bare tritonclient call.

    python benchmarks/remote.py [--quick] [--check] [--json PATH] [--triton-env DIR] [--no-server]

The callers of model_repository run in this process, and their callee is a model of the server (`bls.connect`). One run
measures both. See README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import gc
import json
import os
import platform
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.grpc import aio as grpc_async
from tritonclient.http import aio as http_async

import bls_notebook as bls
from bls_notebook.shipping.servers import tritonserver
from bls_notebook.shipping.servers.server_programs import is_supported

MODELS = Path(__file__).resolve().parent / "model_repository"
RESULTS = Path(__file__).resolve().parent / "results" / "remote.json"
TARGETS = {"grpc": 1.2, "http": 2.0}  # duration of a BLS call, divided by that of a bare call
CALLEE = "bench_callee"
SIZES = {"64 B": 64, "1 MB": 1 << 20}

Measure = Callable[[int, int], list[int]]  # bytes, calls -> nanoseconds of each


def bls_calls(repo: bls.ModelRepository, width: int) -> Measure:
    """Time sync or gathered calls inside the caller's execute."""
    model, mode = ("bench_caller_async", f"gather:{width}") if width else ("bench_caller", "kept")

    def measure(size: int, calls: int) -> list[int]:
        inputs = {"MODE": [mode], "BYTES": [size], "CALLS": [calls]}
        response = repo.infer(model, inputs)
        if response.error is not None:
            raise SystemExit(f"remote.py: {model} answered: {response.error.message()}")
        return [int(ns) for ns in response["NANOSECONDS"].as_numpy()]

    return measure


def request_of(library: Any, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the arguments of a call of tritonclient's `infer`."""
    tensor = library.InferInput("IN", list(array.shape), "UINT8")
    tensor.set_data_from_numpy(array)
    return {
        "model_name": CALLEE, "inputs": [tensor], "outputs": [library.InferRequestedOutput("OUT")],
    }  # fmt: skip


def checked(answer: np.ndarray[Any, Any], size: int) -> None:
    if answer.shape != (size,) or answer[0] != 7:
        raise SystemExit("remote.py: the callee answered with something else than its input")


def bare_calls(library: Any, client: Any) -> Measure:
    """Time sync calls of tritonclient."""

    def measure(size: int, calls: int) -> list[int]:
        times, array = [], np.full(size, 7, np.uint8)
        gc.collect()
        for _ in range(calls + 5):
            began = perf_counter_ns()
            answer = client.infer(**request_of(library, array)).as_numpy("OUT")
            times.append(perf_counter_ns() - began)
            checked(answer, size)
        return times[5:]

    return measure


def bare_gathers(library: Any, half: Any, address: str, width: int) -> Measure:
    """Time gathers of tritonclient's asyncio API."""

    async def gathers(size: int, calls: int) -> list[int]:
        times, array = [], np.full(size, 7, np.uint8)
        async with half.InferenceServerClient(address) as client:
            for _ in range(calls + 2):
                began = perf_counter_ns()
                sent = [client.infer(**request_of(library, array)) for _ in range(width)]
                answers = [result.as_numpy("OUT") for result in await asyncio.gather(*sent)]
                times.append(perf_counter_ns() - began)
                for answer in answers:
                    checked(answer, size)
        return times[2:]

    def measure(size: int, calls: int) -> list[int]:
        gc.collect()
        return asyncio.run(gathers(size, calls))

    return measure


@contextlib.contextmanager
def serving(options: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    """Serve the callee; yield the server's name and its gRPC and HTTP ports."""
    if options.no_server or not is_supported():
        with bls.ModelRepository(MODELS) as repo:
            repo.load(CALLEE)
            with bls.endpoint(repo, token="") as endpoint:
                yield "endpoint of this process", endpoint.grpc_port, endpoint.http_port
        return
    try:
        made = tritonserver.make_environment(options.triton_env)
        with tritonserver.TritonServer(MODELS, environment=made, load=[CALLEE]) as server:
            yield "tritonserver", server.grpc_port, server.http_port
    except tritonserver.TritonServerError as error:
        raise SystemExit(f"remote.py: {error}\n(--no-server measures without it)") from None


def measured(grpc_port: int, http_port: int, quick: bool) -> list[dict[str, Any]]:
    """Return a row for each case: protocol, kind of call, size, and microseconds of both sides."""
    cases: list[tuple[str, str, int, Measure, Measure]] = []
    with contextlib.ExitStack() as stack:
        halves = (("grpc", grpc_port, grpc_client, grpc_async), ("http", http_port, http_client, http_async))
        for protocol, port, library, half in halves:
            repo = stack.enter_context(bls.ModelRepository(MODELS))
            bls.connect(f"{protocol}://127.0.0.1:{port}", CALLEE, repo=repo)
            for model in ("bench_caller", "bench_caller_async"):
                repo.load(model)
            address = f"127.0.0.1:{port}"
            client = stack.enter_context(library.InferenceServerClient(address))
            cases.append((protocol, "sync", 0, bls_calls(repo, 0), bare_calls(library, client)))
            for width in (1,) if quick else (1, 16):
                bare = bare_gathers(library, half, address, width)
                cases.append((protocol, f"gather of {width}", width, bls_calls(repo, width), bare))
        rounds: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
        todo = [(case, size) for case in cases for size in (list(SIZES)[:1] if quick else SIZES)]
        for number in range(2 if quick else 30):
            random.shuffle(todo)
            for (protocol, kind, width, ours, bare), size in todo:
                calls = (2 if quick else 24) // (4 if width > 1 else 1) or 1
                calls = max(1, calls // (2 if size == "1 MB" else 1))
                sides = [ours, bare]
                random.shuffle(sides)
                got = {side: median(side(SIZES[size], calls)) / 1e3 for side in sides}
                if number:  # the first round warms up
                    rounds.setdefault((protocol, kind, size), []).append((got[ours], got[bare]))
    return [_row(case, found) for case, found in sorted(rounds.items())]


def _row(case: tuple[str, str, str], found: list[tuple[float, float]]) -> dict[str, Any]:
    ratios = sorted(ours / bare for ours, bare in found)
    return {
        "protocol": case[0],
        "call": case[1],
        "size": case[2],
        "bls_us": median(ours for ours, _ in found),
        "bare_us": median(bare for _, bare in found),
        "ratio": median(ratios),
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="What a BLS call to a model of a running server costs.")
    parser.add_argument("--quick", action="store_true", help="a trial, not a measurement")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a ratio is over its target")
    parser.add_argument("--json", type=Path, default=None, help="default: in results, none if quick")
    parser.add_argument("--triton-env", metavar="DIR", help="the server's environment")
    parser.add_argument("--no-server", action="store_true", help="the endpoint of this process instead")
    options = parser.parse_args()
    with serving(options) as (server, grpc_port, http_port):
        rows = measured(grpc_port, http_port, options.quick)
    print(f"on {server}\n{'protocol':<10}{'call':<14}{'size':<7}{'BLS':>10}{'bare':>10}{'ratio':>8}")
    for row in rows:
        times = f"{row['bls_us']:>7,.0f} us{row['bare_us']:>7,.0f} us"
        print(f"{row['protocol']:<10}{row['call']:<14}{row['size']:<7}{times}{row['ratio']:>8.2f}")
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "server": server,
        "machine": {
            "cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version(),
        },
        "targets": TARGETS,
        "calls": rows,
    }  # fmt: skip
    path = options.json or (None if options.quick else RESULTS)
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")
    missed = [row for row in rows if row["ratio"] > TARGETS[row["protocol"]]]
    if options.check and missed:
        print(f"remote.py: {len(missed)} ratios are over their targets", file=sys.stderr)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
