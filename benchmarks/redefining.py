"""Send 10,000 requests over 32 connections to the endpoint while their model is redefined again and again.

    python benchmarks/redefining.py [--quick] [--json PATH]

The exit status is 1 if a request gets no answer, or the answer of a version that never existed. See README.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results" / "redefining.json"
CONNECTIONS, REQUESTS = 32, 10_000
MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", FACTOR * request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""
CONFIG = {
    "input": [{"name": "X", "data_type": "TYPE_INT64", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_INT64", "dims": [-1]}],
}


def client(http: str, grpc: str, requests: int) -> None:
    """Send the requests, half over each protocol, and print the counts of their outcomes as JSON."""
    factors: Counter[int] = Counter()
    failed: Counter[str] = Counter()
    times: list[float] = []
    lock = threading.Lock()

    def send(kind: str, url: str) -> None:
        triton = import_module(f"tritonclient.{kind}")
        given = triton.InferInput("X", [4], "INT64")
        given.set_data_from_numpy(np.array([1, 1, 1, 1]))
        with triton.InferenceServerClient(url) as asking:
            for _ in range(requests // CONNECTIONS):
                began = time.perf_counter()
                try:
                    answer = asking.infer("factor", [given]).as_numpy("Y").tolist()
                    outcome = answer[0] if len(set(answer)) == 1 else f"a mixed answer: {answer}"
                except Exception as error:  # every failure is counted
                    outcome = f"{type(error).__name__}: {error}"
                with lock:
                    times.append(time.perf_counter() - began)
                    (failed if isinstance(outcome, str) else factors)[outcome] += 1

    sides = [("http", http), ("grpc", grpc)]
    threads = [threading.Thread(target=send, args=sides[n % 2]) for n in range(CONNECTIONS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    print(json.dumps({
        "requests": len(times), "answered": factors.total(), "failed": failed,
        "versions_seen": len(factors), "newest_seen": max(factors, default=0),
        "median_ms": 1e3 * median(times), "p99_ms": 1e3 * times[len(times) * 99 // 100],
        "longest_ms": 1e3 * times[-1],
        "seconds": time.perf_counter() - began,
    }))  # fmt: skip


def measured(requests: int) -> dict[str, Any]:
    """Serve the model, redefine it until the client has ended, and return the figures."""
    import bls_notebook as bls

    with bls.ModelRepository() as repo:
        repo.define("factor", MODEL.replace("FACTOR", "1"), CONFIG)
        with bls.endpoint(repo, token="") as made:
            asking = subprocess.Popen(
                [sys.executable, __file__, "--client", made.url.removeprefix("http://"), made.grpc_url,
                 "--requests", str(requests)],
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            newest = 1
            while asking.poll() is None:
                newest += 1
                repo.define("factor", MODEL.replace("FACTOR", str(newest)), CONFIG)
                time.sleep(0.002)  # so that the clients get the CPU on few cores
            said = asking.communicate()[0]
    if asking.returncode:
        raise SystemExit(f"redefining.py: the client exited with status {asking.returncode}")
    return {**json.loads(said), "definitions": newest}


def main() -> int:
    """Measure, print the figures and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few requests, nothing saved: a trial")
    parser.add_argument("--json", metavar="PATH", type=Path, help="save the figures in this file")
    parser.add_argument("--client", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, default=REQUESTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(*options.client, options.requests)
        return 0
    requests = CONNECTIONS * (10 if options.quick else -(-REQUESTS // CONNECTIONS))
    found = measured(requests)
    failed = sum(found["failed"].values())
    print(f"{requests:,} requests over {CONNECTIONS} connections, {found['definitions']:,} definitions")
    print(f"{found['answered']:,} answered by {found['versions_seen']:,} of them")
    print(f"{failed} failed", *found["failed"])
    times = (found[f"{name}_ms"] for name in ("median", "p99", "longest"))
    print("median {:.1f} ms, 99% within {:.1f} ms, longest {:.1f} ms".format(*times))
    if path := options.json or (None if options.quick else RESULTS):
        about = {
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "cores": os.cpu_count(),
            "python": platform.python_version(), "connections": CONNECTIONS,
        }  # fmt: skip
        path.write_text(json.dumps({**about, **found}, indent=1) + "\n")
    well = found["answered"] == found["requests"] == requests and found["newest_seen"] <= found["definitions"]
    return 0 if well and found["versions_seen"] > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
