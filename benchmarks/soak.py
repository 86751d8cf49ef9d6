"""Send correct and hostile requests to an endpoint at once, and check its answers, memory, threads and files.

    python benchmarks/soak.py [--quick] [--minutes N] [--json PATH]

The exit status is 1 if a correct request gets a wrong answer or none, or if the endpoint keeps memory, threads, files
or shared memory after the load. See README.md.
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
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain
from pathlib import Path
from typing import Any

from soak_parts.attacks import BODY_MB, send_hostile
from soak_parts.clients import CLIENTS, PREFIX, send_correct

RESULTS = Path(__file__).resolve().parent / "results" / "soak.json"
PATIENCE = 30.0  # seconds that a client may take to send a request, even on a busy machine
KEPT_MB = 200  # of memory that the endpoint may keep after the load
RETURN_SECONDS = 180.0  # until it has returned everything else
MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.double(request.inputs()[0])]) for request in requests]
"""
DOUBLES = f"""{MODEL}
    def double(self, tensor):
        return pb_utils.Tensor("Y", 2 * tensor.as_numpy())
"""
CALLS = f"""{MODEL}
    def double(self, tensor):
        call = pb_utils.InferenceRequest(model_name="doubles", requested_output_names=["Y"], inputs=[tensor])
        return call.exec().output_tensors()[0]
"""
STREAMS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for part in np.array_split(2 * request.inputs()[0].as_numpy(), 4):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", part)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CONFIG = {
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}


def serve(is_quick: bool) -> None:
    """Serve the models until stdin ends; print the ports and the header with the token as JSON."""
    import resource

    import bls_notebook as bls
    from bls_notebook.engine.waiting import worker_threads

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # the endpoint accepts a quarter as many connections
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096 if most < 0 else min(most, 4096), most))
    if is_quick:
        worker_threads.IDLE_SECONDS = 0.5  # instead of 10, so that idle threads end soon
    with bls.ModelRepository() as repo:
        repo.define("doubles", DOUBLES, CONFIG)
        repo.define("calls", CALLS, CONFIG)
        repo.define("streams", STREAMS, {**CONFIG, "model_transaction_policy": {"decoupled": True}})
        with bls.endpoint(repo, body_limit=BODY_MB << 20, patience=PATIENCE, allow_client_shm=True) as endpoint:
            print(json.dumps([endpoint.http_port, endpoint.grpc_port, endpoint.headers]), flush=True)
            sys.stdin.read()


class Server:
    """The process of the endpoint."""

    def __init__(self, is_quick: bool) -> None:
        command = [sys.executable, __file__, "--server", *(["--quick"] if is_quick else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("soak.py: the endpoint did not start")
        self.address = json.loads(line)

    def state(self) -> dict[str, int]:
        """Return the resources of the process; shared memory counts its mappings and the files of the clients."""
        if (status := self.process.poll()) is not None:
            raise SystemExit(f"soak.py: the process of the endpoint ended with status {status}")
        folder = Path(f"/proc/{self.process.pid}")
        mapped = sum("/dev/shm/" in line for line in (folder / "maps").read_text().splitlines())
        return {
            "memory_mb": int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20,
            "threads": len(os.listdir(folder / "task")),
            "files": len(os.listdir(folder / "fd")),
            "shared_memory": mapped + len(list(Path("/dev/shm").glob(f"{PREFIX}*"))),
        }

    def stop(self) -> int:
        """Stop the endpoint; return the exit status of its process."""
        self.process.communicate()
        return self.process.returncode


def load(server: Server, minutes: float, is_quick: bool) -> dict[str, Any]:
    """Run all clients for this time; return their counts, and the highest use of each resource."""
    began = time.monotonic()
    attacks_over, load_over = threading.Event(), threading.Event()
    states = [server.state()]
    with ThreadPoolExecutor(2 * CLIENTS) as pool:
        correct, hostile = (
            [pool.submit(send, over, number, is_quick, *server.address) for number in range(CLIENTS)]
            for send, over in ((send_correct, load_over), (send_hostile, attacks_over))
        )
        try:
            while wait(hostile, timeout=1).not_done:
                states.append(server.state())
                if len(states) % 60 == 0:
                    print(f"after {(time.monotonic() - began) / 60:.0f} minutes: {states[-1]}", flush=True)
                is_late = time.monotonic() - began > 60 * minutes
                if is_late or any(client.done() for client in correct + hostile):  # which has raised
                    attacks_over.set()
        finally:
            attacks_over.set()
            load_over.set()
        counts, failures = zip(*(client.result() for client in correct), strict=True)
        attacks, outcomes = zip(*(client.result() for client in hostile), strict=True)
    answered = sum(counts, Counter[str]())
    return {
        "minutes": (time.monotonic() - began) / 60,
        "tried_again": answered.pop("tried again", 0),
        "answered": answered,
        "failed": list(chain(*failures)),
        "attacks": sum(attacks, Counter[str]()),
        "outcomes": sum(outcomes, Counter[str]()),
        "most": {name: max(state[name] for state in states) for name in states[0]},
    }


def kept(start: dict[str, int], state: dict[str, int]) -> list[str]:
    """Return the resources of which the endpoint uses more than at the start; it may keep some memory."""
    return [name for name, count in state.items() if count > start[name] + (KEPT_MB if name == "memory_mb" else 0)]


def send_each_kind(server: Server, is_quick: bool) -> list[str]:
    """Send a correct request of each kind; return the failures."""
    over = threading.Event()
    over.set()
    return list(chain(*(send_correct(over, number, is_quick, *server.address)[1] for number in range(CLIENTS))))


def measured(minutes: float, is_quick: bool) -> dict[str, Any]:
    """Serve the models, run the clients, and wait until the endpoint has returned what it used."""
    server = Server(is_quick)
    try:
        failures = send_each_kind(server, is_quick)
        time.sleep(1 if is_quick else 15)  # idle threads end after 10 seconds
        start = server.state()
        print("start:", start, flush=True)
        found = load(server, minutes, is_quick)
        ended = time.monotonic()
        while kept(start, end := server.state()) and time.monotonic() < ended + RETURN_SECONDS:
            # Before Python 3.13, `SimpleQueue.get` may miss its timeout, and then an idle thread waits for a request.
            failures += send_each_kind(server, is_quick)
            pause = time.monotonic() + 20
            while kept(start, server.state()) and time.monotonic() < pause:
                time.sleep(0.5)
        returned = time.monotonic() - ended
    finally:
        status = server.stop()
    found["failed"] += failures
    found |= {"start": start, "end": end, "kept": kept(start, end), "seconds_until_returned": returned}
    return {**found, "exit_status": status}


def main() -> int:
    """Run the load, print the figures and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="seconds of small requests, nothing saved: a trial")
    parser.add_argument("--minutes", type=float, default=30.0, help="duration of the load (default: %(default)s)")
    parser.add_argument("--json", metavar="PATH", type=Path, help="save the figures in this file")
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.server:
        serve(options.quick)
        return 0
    if sys.platform != "linux":
        print("soak.py: reads /proc, which only Linux has; nothing is measured")
        return 0
    found = measured(0 if options.quick else options.minutes, options.quick)
    for name in ("answered", "attacks", "outcomes"):
        print(f"{found[name].total():,} {name}:", *(f"{count} {key}," for key, count in sorted(found[name].items())))
    print("most:", found["most"])
    print(f"{found['seconds_until_returned']:.0f} s after the load: {found['end']}")
    print(f"{found['tried_again']} requests were refused and tried again")
    print(f"{len(found['failed'])} correct requests failed", *found["failed"][:10], sep="\n")
    if found["kept"]:
        print(f"the endpoint keeps {', '.join(found['kept'])}")
    if path := options.json or (None if options.quick else RESULTS):
        about = {
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
            "python": platform.python_version(),
        }
        path.write_text(json.dumps({"about": about, **found}, indent=1) + "\n")
    return 1 if found["failed"] or found["kept"] or found["exit_status"] else 0


if __name__ == "__main__":
    sys.exit(main())
