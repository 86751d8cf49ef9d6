"""Measure models in processes beside models in the kernel and on a real tritonserver, in one run.

    python benchmarks/processes.py [--quick] [--json PATH] [--triton-env DIR] [--no-server]

BLS calls are timed by the caller, which is in the same place as its callee. "parallel" is the speedup of two instances
of a pure Python model over one, with two requests at a time; "restart" the time from a crash to the next answer,
on a server (which starts no instance again) with a load of the model.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from bls_call_parts.sides import MIB, MODELS, WIDTH, Case, InKernel, RealServer, fail

import bls_notebook as bls
from bls_notebook.shipping.servers import tritonserver
from bls_notebook.shipping.servers.server_programs import is_supported

RESULTS = Path(__file__).resolve().parent / "results" / "processes.json"
CASES = (
    Case("sync call, 64 B", "bench_caller", "kept", 64, 1000, 6),
    Case("sync call, 1 MB", "bench_caller", "kept", MIB, 200, 6),
    Case("sync call, 16 MB", "bench_caller", "kept", 16 * MIB, 20, 6),
    Case(f"gather of {WIDTH} async calls, 64 B", "bench_caller_async", f"gather:{WIDTH}", 64, 20, 6),
)
CONFIG = """
input {{ name: "N" data_type: TYPE_INT64 dims: [ 1 ] }}
output {{ name: "OUT" data_type: TYPE_INT64 dims: [ 1 ] }}
instance_group {{ count: {count} }}
"""
SOURCE = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            steps = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
            if steps < 0:
                os.abort()
            total = 0
            for number in range(steps):
                total += number & {factor}
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([total]))]))
        return out
"""


class InProcesses(InKernel):
    """The models in processes of their own."""

    name = "processes"

    def __init__(self, repository: Path) -> None:
        super().__init__(repository)
        self.repo.isolation = "process"
        for record in self.repo.index():
            self.repo.load(record.name, isolation="process")


def define(side: Any, name: str, count: int = 1, factor: int = 7) -> float:
    """Define the pure Python model on a side and return the seconds."""
    source, config = SOURCE.format(factor=factor), CONFIG.format(count=count)
    began = perf_counter()
    if hasattr(side, "repo"):
        side.repo.define(name, source, config)
    else:
        folder = side.repository / name / "1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.py").write_text(source)
        (folder.parent / "config.pbtxt").write_text(f'backend: "python"\n{config}')
        side.server.load(name)
    return perf_counter() - began


def is_answered(side: Any, name: str, steps: int) -> bool:
    """Send a request; return False if its response is an error."""
    inputs = {"N": np.array([steps])}
    if hasattr(side, "repo"):
        return side.repo.infer(name, inputs).error is None
    try:
        side.server.infer(name, inputs, wait=300)
    except bls.BLSError:
        return False
    return True


def busy(side: Any, name: str, steps: int) -> float:
    """Return the seconds of four requests, two at a time."""

    def send() -> None:
        if not all(is_answered(side, name, steps) for _ in range(2)):
            fail(f"{name} answered with an error")

    threads = [threading.Thread(target=send) for _ in range(2)]
    began = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return perf_counter() - began


def parallel(side: Any, steps: int) -> float:
    """Return the speedup of two instances over one."""
    for count in (1, 2):
        define(side, f"busy_{count}", count)
        busy(side, f"busy_{count}", 10)
    return float(np.median([busy(side, "busy_1", steps) / busy(side, "busy_2", steps) for _ in range(3)]))


def restart(side: Any) -> float:
    """Return the milliseconds from a crash to the next answer."""
    define(side, "crashing")
    is_answered(side, "crashing", 1)
    if is_answered(side, "crashing", -1):
        fail("a crash was answered without an error")
    began = perf_counter()
    if not hasattr(side, "repo"):
        define(side, "crashing")
    if not is_answered(side, "crashing", 1):
        fail(f"{side.name}: the model did not serve again after a crash")
    return 1e3 * (perf_counter() - began)


def main() -> int:
    """Measure, print the figures and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few calls, nothing saved: a trial")
    parser.add_argument("--json", metavar="PATH", type=Path, help="save the figures in this file")
    parser.add_argument("--triton-env", metavar="DIR", type=Path, help="the environment of tritonserver")
    parser.add_argument("--no-server", action="store_true", help="leave the real server out")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        shutil.copytree(MODELS, repository)
        sides: list[Any] = [InKernel(repository), InProcesses(repository)]
        if not options.no_server and is_supported():
            sides.append(RealServer(repository, tritonserver.make_environment(options.triton_env)))
        try:
            rounds = 1 if options.quick else 5
            for case in CASES:
                calls = 5 if options.quick else case.calls
                times: dict[str, list[float]] = {side.name: [] for side in sides}
                for _ in range(rounds):
                    for side in sides:
                        times[side.name].append(float(np.median(side.measure(case, calls))) / 1e3)
                figures[case.label] = {name: float(np.median(parts)) for name, parts in times.items()}
                print(case.label, {name: f"{micros:,.0f} µs" for name, micros in figures[case.label].items()})
            steps = 10**5 if options.quick else 10**7
            figures["parallel"] = {side.name: parallel(side, steps) for side in sides}
            figures["restart_ms"] = {
                side.name: float(np.median([restart(side) for _ in range(rounds)])) for side in sides[1:]
            }
            define(sides[1], "again", factor=1)
            figures["redefine_ms"] = 1e3 * float(np.median([define(sides[1], "again", factor=n) for n in range(2, 5)]))
            print({name: figures[name] for name in ("parallel", "redefine_ms", "restart_ms")})
        finally:
            for side in sides:
                (side.repo.close if hasattr(side, "repo") else side.server.stop)()
    if path := options.json or (None if options.quick else RESULTS):
        about = {
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "cores": os.cpu_count(),
            "python": platform.python_version(), "load": os.getloadavg()[0],
        }  # fmt: skip
        path.write_text(json.dumps({**about, **figures}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
