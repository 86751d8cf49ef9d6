"""The three sides that bls_call.py compares: a real tritonserver, the in-kernel engine, a direct call."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

import bls_notebook as bls
from bls_notebook.shipping.servers import tritonserver

MODELS = Path(__file__).resolve().parents[1] / "model_repository"
KIB, MIB = 1024, 1024 * 1024
WIDTH = 64  # requests of one gather
REDEFINED = "bench_redefined"
REDEFINED_CONFIG = """backend: "python"
input { name: "IN" data_type: TYPE_INT64 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT64 dims: [ 1 ] }
instance_group { count: 1 kind: KIND_CPU }
"""
REDEFINED_SOURCE = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answer = pb_utils.Tensor("OUT", np.array([{answer}], np.int64))
        return [pb_utils.InferenceResponse([answer]) for _ in requests]
"""


@dataclass(frozen=True)
class Case:
    """A case to time, and its target: the required speedup over the real server."""

    label: str
    model: str
    mode: str
    size: int
    calls: int  # timed in one round
    target: float | None = None


def fail(message: str) -> None:
    raise SystemExit(f"bls_call.py: {message}")


def inputs_of(case: Case, calls: int) -> dict[str, Any]:
    return {
        "MODE": np.array([case.mode.encode()], np.object_),
        "BYTES": np.array([case.size], np.int64),
        "CALLS": np.array([calls], np.int64),
    }


class RealServer:
    """The models on a tritonserver."""

    name = "tritonserver"

    def __init__(self, repository: Path, environment: tritonserver.ServerEnvironment) -> None:
        self.repository = repository
        models = sorted(folder.name for folder in MODELS.iterdir())
        self.server = tritonserver.TritonServer(repository, environment=environment, load=models)
        self.server.start()
        self.version = self.server.metadata()["version"]

    def measure(self, case: Case, calls: int) -> np.ndarray:
        return self.server.infer(case.model, inputs_of(case, calls), wait=300)["NANOSECONDS"]

    def redefine(self, answer: int) -> float:
        began = perf_counter_ns()
        write_model(self.repository, answer)
        self.server.load(REDEFINED)
        got = self.server.infer(REDEFINED, {"IN": np.array([0], np.int64)})["OUT"]
        spent = perf_counter_ns() - began
        expect(self.name, got, answer)
        return spent

    def numpy(self) -> str:
        """The version of NumPy that models on this server import."""
        script = "import numpy; print(numpy.__version__)"
        assert self.server.environment is not None
        command = [str(self.server.environment.python), "-c", script]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def memory(self) -> dict[str, float]:
        """Return the memory of the process of one model before its first request."""
        assert self.server.pid is not None
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):  # processes come and go
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"bench_callee_0_0" in words and os.getpgid(int(entry.name)) == self.server.pid:
                    text = (entry / "smaps_rollup").read_text()
                    sizes = dict(re.findall(r"^(Rss|Pss): +(\d+) kB$", text, re.MULTILINE))
                    return {"resident_kib": float(sizes["Rss"]), "proportional_kib": float(sizes["Pss"])}
        raise SystemExit("bls_call.py: the process of bench_callee is not there")


class InKernel:
    """The models in this process."""

    name = "in-kernel"

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.repo = bls.ModelRepository(repository)
        for folder in sorted(MODELS.iterdir()):
            self.repo.load(folder.name)

    def infer(self, model: str, inputs: dict[str, Any]) -> Any:
        response = self.repo.infer(model, inputs)
        if response.error is not None:
            fail(f"{model} in the kernel answered: {response.error.message()}")
        return response

    def measure(self, case: Case, calls: int) -> np.ndarray:
        return self.infer(case.model, inputs_of(case, calls))["NANOSECONDS"].as_numpy()

    def redefine(self, answer: int) -> float:
        source = REDEFINED_SOURCE.format(answer=answer)
        began = perf_counter_ns()
        self.repo.define(REDEFINED + "_cell", source, config=REDEFINED_CONFIG)
        got = self.infer(REDEFINED + "_cell", {"IN": np.array([0], np.int64)})["OUT"].as_numpy()
        spent = perf_counter_ns() - began
        expect(self.name, got, answer)
        return spent

    def redefine_folder(self, answer: int) -> float:
        began = perf_counter_ns()
        write_model(self.repository, answer)
        self.repo.load(REDEFINED)
        got = self.infer(REDEFINED, {"IN": np.array([0], np.int64)})["OUT"].as_numpy()
        spent = perf_counter_ns() - began
        expect(self.name, got, answer)
        return spent


class Direct:
    """The callee's execute as a plain Python call: no repository, no checks, no copies."""

    name = "direct"

    def __init__(self, built: bool) -> None:
        self.built = built  # whether the request exists before the timing starts
        spec = importlib.util.spec_from_file_location("bench_callee", MODELS / "bench_callee" / "1" / "model.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.callee = module.TritonPythonModel()

    def measure(self, case: Case, calls: int) -> np.ndarray:
        array = np.full(case.size, 7, np.uint8)
        width = WIDTH if case.mode.startswith("gather") else 1
        self.run(array, min(calls, 5), width)
        gc.collect()
        return np.array(self.run(array, calls, width), np.int64)

    def run(self, array: np.ndarray, calls: int, width: int) -> list[int]:
        from triton_python_backend_utils import InferenceRequest, Tensor, get_output_tensor_by_name

        execute, times = self.callee.execute, []

        def request() -> Any:
            return InferenceRequest(
                model_name="bench_callee", requested_output_names=["OUT"], inputs=[Tensor("IN", array)]
            )

        for _ in range(calls):
            if self.built:
                requests = [request() for _ in range(width)]
                began = perf_counter_ns()
                for item in requests:
                    execute([item])
                times.append(perf_counter_ns() - began)
            else:
                began = perf_counter_ns()
                for _ in range(width):
                    get_output_tensor_by_name(execute([request()])[0], "OUT").as_numpy()
                times.append(perf_counter_ns() - began)
        return times


def write_model(repository: Path, answer: int) -> None:
    folder = repository / REDEFINED / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "config.pbtxt").write_text(REDEFINED_CONFIG)
    (folder / "model.py").write_text(REDEFINED_SOURCE.format(answer=answer))


def expect(side: str, got: np.ndarray, answer: int) -> None:
    if got.tolist() != [answer]:
        fail(f"{side} answered {got.tolist()} after the redefinition, expected [{answer}]")


def resident() -> int:
    """Return the resident memory of this process in bytes, or its peak on systems that report nothing else."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * KIB


def memory_of_models(count: int) -> float:
    """Return the memory (KiB) that each of `count` models adds. Run it in a fresh process."""
    source = (MODELS / "bench_callee" / "1" / "model.py").read_text()
    config = (MODELS / "bench_callee" / "config.pbtxt").read_text()
    array = np.zeros(64, np.uint8)
    with bls.ModelRepository() as repo:

        def define(name: str) -> None:
            repo.define(name, source, config=config)
            response = repo.infer(name, {"IN": array})
            if response.error is not None:
                fail(f"{name} answered: {response.error.message()}")

        for index in range(5):  # exclude the one-time costs of the first models
            define(f"first_{index}")
        gc.collect()
        before = resident()
        for index in range(count):
            define(f"model_{index}")
        gc.collect()
        return (resident() - before) / count / KIB
