"""Measure requests per second to one, two and three servers behind HAProxy, configured by an export for compose.

    python benchmarks/replicas.py [--quick] [--json PATH] [--triton-env DIR]

The servers, HAProxy and the clients are processes of one machine. See README.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "replicas.json"
CLIENTS = 16
MODEL = """
import time
import triton_python_backend_utils as pb_utils

def work():
    WORK

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            work()
            tensor = pb_utils.Tensor("Y", request.inputs()[0].as_numpy())
            answers.append(pb_utils.InferenceResponse([tensor]))
        return answers
"""
MODELS = {
    "waits": ("20 ms of waiting, as for a device", "time.sleep(0.02)"),
    "computes": ("5 ms of one processor", "end = time.thread_time() + 0.005\n    while time.thread_time() < end: pass"),
}
CONFIG = {
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}


def client(kind: str, url: str, model: str, seconds: float) -> None:
    """Send requests over the given number of connections, and print the responses per second."""
    triton = import_module(f"tritonclient.{kind}")
    given = triton.InferInput("X", [16], "FP32")
    given.set_data_from_numpy(np.ones(16, np.float32))
    counts = [0] * CLIENTS
    ready, over = threading.Barrier(CLIENTS + 1), threading.Event()

    def send(number: int) -> None:
        with triton.InferenceServerClient(url) as asking:
            asking.infer(model, [given])
            ready.wait()
            while not over.is_set():
                asking.infer(model, [given])
                counts[number] += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    time.sleep(seconds)
    found = sum(counts) / (time.perf_counter() - began)
    over.set()
    for thread in threads:
        thread.join()
    print(found)


def measured(
    most: int, models: list[str], kinds: list[str], seconds: float, folder: str | None
) -> list[dict[str, Any]]:
    """Measure each model over both protocols, with one server, two and so on."""
    sys.path.insert(0, str(ROOT))
    import bls_notebook as bls
    from bls_notebook.shipping.servers.server_programs import make_environment
    from tests.shipping.exports.replicas import serving, shared_out

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, bls.ModelRepository() as repo:
        for name in models:
            repo.define(name, MODEL.replace("WORK", MODELS[name][1]), CONFIG)
        exports = {number: Path(temporary) / str(number) for number in range(1, most + 1)}
        for number, place in exports.items():
            bls.export(place, target="compose", replicas=number, repo=repo)
        with serving(exports[1], most, make_environment(folder)) as servers:
            one = servers[0]
            direct = {"http": f"127.0.0.1:{one.http_port}", "grpc": f"127.0.0.1:{one.grpc_port}"}
            rows += asked(1, direct, models, kinds, seconds)
            for number in range(2, most + 1):
                with shared_out(exports[number], servers[:number]) as found:
                    at = {"http": found.http, "grpc": found.grpc}
                    rows += asked(number, at, models, kinds, seconds)
    return rows


def asked(
    replicas: int, at: dict[str, str], models: list[str], kinds: list[str], seconds: float
) -> list[dict[str, Any]]:
    """Return the responses per second of this number of servers."""
    rows = []
    for model in models:
        for kind in kinds:
            command = [sys.executable, __file__, "--client", kind, at[kind], model, str(seconds)]
            said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            rows.append({"model": model, "protocol": kind, "replicas": replicas, "per_second": float(said)})
    return rows


def table(rows: list[dict[str, Any]], most: int) -> str:
    """Return the figures as a Markdown table."""
    heads = ["one server", *(f"{number} behind HAProxy" for number in range(2, most + 1))]
    lines = [f"| a request takes | over | {' | '.join(heads)} |", "| --- | --- " + "| ---: " * most + "|"]
    for model, (told, _) in MODELS.items():
        for kind in ("http", "grpc"):
            found = [f"{r['per_second']:.0f}/s" for r in rows if (r["model"], r["protocol"]) == (model, kind)]
            lines += [f"| {told} | {kind} | {' | '.join(found)} |"] if found else []
    return "\n".join(lines)


def main() -> int:
    """Measure, print the figures and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short runs, two servers, nothing saved: a trial")
    parser.add_argument("--json", metavar="PATH", type=Path, help="save the figures in this file")
    parser.add_argument("--triton-env", metavar="DIR", help="the server's environment; created if missing")
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(*options.client[:3], float(options.client[3]))
        return 0
    sys.path.insert(0, str(ROOT))
    from bls_notebook.shipping.servers.server_programs import TritonServerError
    from tests.shipping.exports.replicas import HAPROXY

    if HAPROXY is None:
        print("replicas.py: HAProxy is not installed (on Debian: apt-get install haproxy); nothing is measured")
        return 0
    models, kinds = (["waits"], ["grpc"]) if options.quick else ([*MODELS], ["http", "grpc"])
    most, seconds = (2, 0.2) if options.quick else (3, 8.0)
    try:
        rows = measured(most, models, kinds, seconds, options.triton_env)
    except TritonServerError as error:
        print(f"replicas.py: {error}; nothing is measured")
        return 0
    cores = os.cpu_count()
    print(table(rows, most))
    print(f"\n{CLIENTS} clients in a separate process; everything on the {cores} cores of one machine.")
    if path := options.json or (None if options.quick else RESULTS):
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        path.write_text(json.dumps({"date": today, "cores": cores, "clients": CLIENTS, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
