"""Measure how fast tensors move to a GPU and back, and the cost of a hop between two models on a GPU.

    python benchmarks/device_transfers.py [--rounds N] [--json FILE] [--check]
    python benchmarks/device_transfers.py --simulated    # test the script without a GPU

Needs a CUDA GPU and CuPy; without them the script reports it and ends. The claims: `preferred_memory` moves outputs at
90% or more of the bandwidth of CuPy's own copy from (or to) pinned memory. A hop between two models on one GPU copies
nothing if the sender keeps no reference, and takes under 30 microseconds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bls_notebook as bls
from bls_notebook.devices.device import NoDeviceError
from bls_notebook.devices.registry import need_gpu

MIB = 1 << 20
SIZES = (1 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
LARGE = 64 * MIB  # the bandwidth claim holds from this size on
SHARE, HOP_US = 0.9, 30.0

CONFIG = """
input {{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }}
output {{ name: "OUT" data_type: TYPE_UINT8 dims: [ -1 ] }}
instance_group {{ kind: KIND_GPU gpus: [ 0 ] }}
parameters {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS" value {{ string_value: "no" }} }}
"""
GIVES = """
import numpy as np
import triton_python_backend_utils as pb_utils
import cupy

SIZE = {size}

def memory():
    if "{kind}" == "gpu":
        return cupy.zeros(SIZE, cupy.uint8)
    if "{kind}" == "pinned":
        return np.frombuffer(cupy.cuda.alloc_pinned_memory(SIZE), np.uint8, SIZE)
    return np.zeros(SIZE, np.uint8) + 1

class TritonPythonModel:
    def initialize(self, args):
        self.memory = memory()

    def execute(self, requests):
        make = pb_utils.Tensor if "{kind}" != "gpu" else pb_utils.Tensor.from_dlpack
        return [pb_utils.InferenceResponse([make("OUT", self.memory)]) for _ in requests]
"""
IDENTITY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", r.inputs()[0])]) for r in requests
        ]
"""
HOPS = """
import json, time
import numpy as np
import triton_python_backend_utils as pb_utils
import cupy

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            count, size, keep = (int(n) for n in request.inputs()[0].as_numpy())
            took, moved = [], 0
            for _ in range(count):
                array = cupy.zeros(size, cupy.uint8)
                cupy.cuda.Device(0).synchronize()
                at = array.data.ptr
                kept = array if keep else None
                begun = time.perf_counter_ns()
                tensors = [pb_utils.Tensor.from_dlpack("IN", array)]
                del array
                # Only the request refers to the tensor, and nothing refers to the request.
                response = pb_utils.InferenceRequest(
                    model_name="identity", inputs=[tensors.pop()], requested_output_names=["OUT"]
                ).exec()
                took.append(time.perf_counter_ns() - begun)
                moved += cupy.from_dlpack(response.output_tensors()[0]).data.ptr == at
            told = np.frombuffer(json.dumps([took, int(moved)]).encode(), np.uint8)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", told)]))
        return out
"""


def seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def transfers(repo: bls.ModelRepository, cupy: Any, rounds: int, simulated: bool) -> list[dict[str, Any]]:
    """Return medians of GB/s: CuPy's own copies between pinned memory and the GPU, and outputs of requests."""
    rows = []
    for size in SIZES[:2] if simulated else SIZES:
        there = cupy.zeros(size, cupy.uint8)
        pinned = np.zeros(size, np.uint8)
        if not simulated:
            pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)
        for kind in ("ordinary", "gpu") if simulated else ("ordinary", "pinned", "gpu"):
            repo.define(kind, GIVES.format(size=size, kind=kind), CONFIG.format())
        device = cupy.cuda.Device(0)

        def copy_in(there: Any = there, pinned: Any = pinned, device: Any = device) -> None:
            there.set(pinned)
            device.synchronize()

        def copy_out(there: Any = there, pinned: Any = pinned) -> None:
            there.get(out=pinned)

        def ask(model: str, memory: str) -> Callable[[], None]:
            def send() -> None:
                response = repo.infer(model, {"IN": [0]}, preferred_memory=memory)
                assert response.error is None, response.error

            return send

        sides: dict[str, Callable[[], None]] = {"CuPy, pinned to GPU": copy_in}
        if not simulated:
            sides["preferred_memory, pinned to GPU"] = ask("pinned", "gpu:0")
        sides["preferred_memory, ordinary to GPU"] = ask("ordinary", "gpu:0")
        sides["CuPy, GPU to pinned"] = copy_out
        sides["preferred_memory, GPU to ordinary"] = ask("gpu", "cpu")
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for side in sides.values():  # fills pools, pinned blocks and page tables
            side()
            side()
        for _ in range(rounds):
            for name in random.sample(list(sides), len(sides)):
                taken[name].append(seconds(sides[name]))
        median = {name: statistics.median(times) for name, times in taken.items()}
        for name, took in median.items():
            base = median["CuPy, pinned to GPU" if name.endswith("to GPU") else "CuPy, GPU to pinned"]
            rows.append({"bytes": size, "side": name, "gb_per_s": size / took / 1e9, "of_cupy": base / took})
    return rows


def hops(repo: bls.ModelRepository, rounds: int) -> list[dict[str, Any]]:
    """Return medians of a BLS call with a GPU tensor to a model that returns it."""
    repo.define("identity", IDENTITY, CONFIG.format().replace("TYPE_INT32", "TYPE_UINT8"))
    repo.define("hops", HOPS, CONFIG.format())
    rows = []
    for size in (4096, 16 * MIB):
        for keep in (0, 1):
            for count in (20, rounds * 20):  # the first warms up
                response = repo.infer("hops", {"IN": np.array([count, size, keep], np.int32)})
                assert response.error is None, response.error
                took, moved = json.loads(response["OUT"].as_numpy().tobytes())
            rows.append(
                {
                    "bytes": size,
                    "giver": "keeps its array" if keep else "lets go",
                    "us": statistics.median(took) / 1e3,
                    "without_a_copy": moved / count,
                }
            )
    return rows


def failures(found: dict[str, Any]) -> list[str]:
    """Return the claims that these figures miss."""
    out = [
        f"{row['side']}, {row['bytes'] // MIB} MiB: {row['of_cupy']:.0%} of CuPy's, claimed {SHARE:.0%}"
        for row in found["transfers"]
        if row["bytes"] >= LARGE and row["side"].startswith("preferred") and row["of_cupy"] < SHARE
    ]
    for row in found["hops"]:
        if row["giver"] == "lets go":
            if row["without_a_copy"] < 1:
                out.append(f"hop of {row['bytes']:,} bytes: copied")
            if row["us"] >= HOP_US:
                out.append(f"hop of {row['bytes']:,} bytes: {row['us']:.1f} us, claimed under {HOP_US:.0f}")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="two rounds: a trial, not a measurement")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a claim does not hold")
    parser.add_argument("--simulated", action="store_true", help="a simulated GPU; its figures mean nothing")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 2
    bls.simulate_gpus(int(arguments.simulated), "1 GiB", even_with_cuda=True)
    try:
        gpus = need_gpu()
    except NoDeviceError as error:
        print(f"Nothing was measured: {error}.\nTo test this script: --simulated")
        return 0
    name = gpus.usage(0).hardware
    print(f"gpu:0: {name}" + (" - a simulated GPU: these figures mean nothing" if gpus.simulated else ""))
    with bls.ModelRepository() as repo:
        found = {
            "gpu": name,
            "simulated": gpus.simulated,
            "transfers": transfers(repo, gpus.array_module(), arguments.rounds, gpus.simulated),
            "hops": hops(repo, arguments.rounds),
        }
    print("\n     size  transfer                              GB/s  of CuPy's")
    for row in found["transfers"]:
        print(f"{row['bytes'] // MIB:5} MiB  {row['side']:34} {row['gb_per_s']:7.2f} {row['of_cupy']:10.0%}")
    print("\n      bytes  hop on the GPU, giver        us  without a copy")
    for row in found["hops"]:
        print(f"{row['bytes']:11,}  {row['giver']:22} {row['us']:7.1f} {row['without_a_copy']:15.0%}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    missed = [] if gpus.simulated else failures(found)
    print("\n" + ("\n".join(f"missed: {m}" for m in missed) or "Every claim holds." * (not gpus.simulated)))
    return int(arguments.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
