"""Compare requests to the kernel's endpoint with the same requests to a real tritonserver, in one run.

    python benchmarks/endpoint.py [--quick] [--json PATH] [--triton-env DIR] [--no-server]

One client, tritonclient in a separate process, sends requests to both sides alternately. See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "endpoint.json"
MODELS = HERE.parent / "model_repository"
MODEL = "add_sub"
# Protocol, connections at once, floats of each of two inputs, requests of a measurement.
CASES = (
    ("grpc", 1, 16, 400),
    ("http", 1, 16, 400),
    ("grpc", 32, 16, 1600),
    ("http", 32, 16, 1600),
    ("grpc", 1, 1 << 18, 60),
    ("http", 1, 1 << 18, 60),
)


def client() -> None:
    """For each line of stdin, send its requests; print a line with the seconds of each request and of all."""
    for line in sys.stdin:
        print(json.dumps(sent(*json.loads(line))), flush=True)


def sent(
    kind: str, url: str, headers: dict[str, str], connections: int, floats: int, requests: int
) -> tuple[list[float], float]:
    """Send requests over several connections at once; return the seconds of each request and of all."""
    triton = import_module(f"tritonclient.{kind}")
    array = np.ones(floats, np.float32)
    inputs = [triton.InferInput(f"INPUT{i}", [floats], "FP32") for i in range(2)]
    for each in inputs:
        each.set_data_from_numpy(array)
    times: list[float] = []
    ready = threading.Barrier(connections + 1)

    def send() -> None:
        with triton.InferenceServerClient(url) as asking:
            asking.infer(MODEL, inputs, headers=headers)
            ready.wait()
            for _ in range(requests // connections):
                began = time.perf_counter()
                answer = asking.infer(MODEL, inputs, headers=headers)
                times.append(time.perf_counter() - began)
            if answer.as_numpy("OUTPUT0")[-1] != 2:
                raise SystemExit("endpoint.py: a wrong answer")

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return times, time.perf_counter() - began


class Client:
    """The client process that sends the requests."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--client"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def measure(self, *what: Any) -> tuple[list[float], float]:
        """Send requests; return the seconds of each request and of all."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("endpoint.py: the client has ended")
        times, took = json.loads(answer)
        return times, took

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def sides(stack: contextlib.ExitStack, options: argparse.Namespace) -> dict[str, tuple[str, str, dict]]:
    """Yield the addresses of each side: HTTP, gRPC and headers."""
    import bls_notebook as bls
    from bls_notebook.shipping.servers import tritonserver
    from bls_notebook.shipping.servers.server_programs import is_supported

    repo = stack.enter_context(bls.ModelRepository(MODELS))
    repo.load(MODEL)
    made = stack.enter_context(bls.endpoint(repo))
    found = {"endpoint": (made.url.removeprefix("http://"), made.grpc_url, made.headers)}
    if not options.no_server and is_supported():
        try:
            environment = tritonserver.make_environment(options.triton_env)
            server = tritonserver.TritonServer(MODELS, environment=environment, load=[MODEL])
            stack.enter_context(server)
        except tritonserver.TritonServerError as error:
            raise SystemExit(f"endpoint.py: {error}\n(--no-server measures without it)") from None
        found["tritonserver"] = (
            f"127.0.0.1:{server.http_port}", f"127.0.0.1:{server.grpc_port}", {},
        )  # fmt: skip
    return found


def measured(asked: dict[str, tuple[str, str, dict]], quick: bool) -> list[dict[str, Any]]:
    """Measure every case on both sides alternately; return the medians of the rounds."""
    rows = []
    with contextlib.closing(Client()) as process:
        for kind, connections, floats, requests in CASES:
            found: dict[str, list[tuple[float, float, float]]] = {side: [] for side in asked}
            for _ in range(1 if quick else 15):
                for side in random.sample(sorted(asked), len(asked)):
                    http, grpc, headers = asked[side]
                    url = http if kind == "http" else grpc
                    number = max(connections, requests // 40) if quick else requests
                    times, took = process.measure(kind, url, headers, connections, floats, number)
                    times.sort()
                    late = times[len(times) * 99 // 100]
                    found[side].append((median(times), late, len(times) / took))
            row: dict[str, Any] = {"protocol": kind, "connections": connections, "bytes": 8 * floats}
            for side, rounds in found.items():
                p50, p99, rate = (median(column) for column in zip(*rounds, strict=True))
                row[side] = {"p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3, "requests_a_second": rate}
            if len(found) == 2:
                pairs = zip(found["endpoint"], found["tritonserver"], strict=True)
                ratios = [(ours[0] / theirs[0], ours[2] / theirs[2]) for ours, theirs in pairs]
                row["latency_ratio"], row["throughput_ratio"] = (median(column) for column in zip(*ratios, strict=True))
            rows.append(row)
    return rows


def told(rows: list[dict[str, Any]]) -> str:
    """Return the figures as a text table."""
    lines = [f"{'':26}{'side':>14}{'p50':>10}{'p99':>10}{'a second':>11}   ratios"]
    for row in rows:
        name = f"{row['protocol']}, {row['connections']} at once, {row['bytes']:,} B"
        for side in ("endpoint", "tritonserver"):
            if side in row:
                one = row[side]
                lines.append(
                    f"{name:26}{side:>14}{one['p50_ms']:7.2f} ms{one['p99_ms']:7.2f} ms"
                    f"{one['requests_a_second']:11,.0f}"
                )
                name = ""
        if "latency_ratio" in row:
            lines[-1] += f"   latency {row['latency_ratio']:.2f}, throughput {row['throughput_ratio']:.2f}"
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="The endpoint beside a real tritonserver.")
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="a trial, not a measurement")
    parser.add_argument("--json", type=Path, help=f"default: {RESULTS.name} in results, none if quick")
    parser.add_argument("--triton-env", metavar="DIR", help="the server's environment; created if missing")
    parser.add_argument("--no-server", action="store_true", help="skip the real server")
    options = parser.parse_args()
    if options.client:
        client()
        return 0
    with contextlib.ExitStack() as stack:
        rows = measured(sides(stack, options), options.quick)
    print(told(rows))
    path = options.json or (None if options.quick or options.no_server else RESULTS)
    if path is not None:
        about = {
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
            "python": platform.python_version(),
        }
        path.write_text(json.dumps({"about": about, "cases": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
