"""Measure each stage of one synchronous in-kernel BLS call of 64 bytes.

    python benchmarks/where_time_goes.py [--quick] [--check] [--rounds N] [--json PATH]

The caller and the callee read the clock during the same call: the caller before and after each of its steps, the callee
at the begin and end of its `execute`. The time between belongs to the engine. The script alternates these calls with
calls that do not read the clock; the medians of the stages must add up to the duration of the latter. A timer samples
the engine's part. The script uses no knowledge of the engine.
"""

from __future__ import annotations

import argparse
import collections
import gc
import itertools
import json
import signal
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from types import FrameType

import numpy as np

import bls_notebook as bls
from bls_notebook.pb_utils import InferenceRequest, Tensor, get_output_tensor_by_name

CALLEE = Path(__file__).resolve().parent / "model_repository" / "bench_callee"
PACKAGE = str(Path(bls.__file__).resolve().parent)
CALLS = 500  # calls of a round
WITHIN = 0.15  # largest difference between the stages and the whole call
SAMPLE_EVERY = 0.0005  # seconds
LEAST = 0.01  # share of the samples that gives a module its own line
STAGES = (
    "caller: make the tensor", "caller: make the request", "engine: until execute begins", "callee: execute",
    "engine: until the answer is back", "caller: read the answer", "caller: let go of all of it",
)  # fmt: skip
CONFIG = """backend: "python"
input { name: "IN" data_type: TYPE_UINT8 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_UINT8 dims: [ -1 ] }
"""
# Runs `measure` inside a model's execute, like any caller.
PROBE = """import __main__
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        __main__.measure()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.uint8))]) for _ in requests]
"""
# bench_callee with timestamps.
CLOCKED = """import __main__
import triton_python_backend_utils as pb_utils

look = __main__.look


class TritonPythonModel:
    def execute(self, requests):
        look()
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
        look()
        return responses
"""

moments: list[int] = []


def look() -> None:
    """Record the current time."""
    moments.append(perf_counter_ns())


class Result:
    """The result of `measure`: nanoseconds, one figure for each round."""

    rounds: int
    seconds: float  # duration of the sampling
    whole: list[float]
    stages: list[list[float]]
    samples: collections.Counter[str]


def whole_call(array: np.ndarray) -> None:
    response = InferenceRequest(
        model_name="bench_callee", requested_output_names=["OUT"], inputs=[Tensor("IN", array)]
    ).exec()
    if response.has_error():
        raise RuntimeError(response.error().message())
    get_output_tensor_by_name(response, "OUT").as_numpy()


def clocked_call(array: np.ndarray) -> None:
    """The same call, with clock readings between the stages; the callee reads the clock twice."""
    look()
    tensor = [Tensor("IN", array)]
    look()
    request = InferenceRequest(model_name="clocked", requested_output_names=["OUT"], inputs=tensor)
    look()
    response = request.exec()
    look()
    if response.has_error():
        raise RuntimeError(response.error().message())
    answer = get_output_tensor_by_name(response, "OUT").as_numpy()
    look()
    del tensor, request, response, answer
    look()


def moments_of(call: Callable[[np.ndarray], None], array: np.ndarray) -> list[int]:
    """Return the clock readings of a call: its begin, its stages, its end."""
    moments.clear()
    look()
    call(array)
    look()
    return moments[:]


def cost_of_looking() -> float:
    """Return the nanoseconds between two immediate clock readings."""
    moments.clear()
    for _ in range(CALLS):
        look()
    return statistics.median(b - a for a, b in itertools.pairwise(moments))


def measure() -> None:
    """Time the call and its stages. The probe's execute calls this."""
    array = np.full(64, 7, np.uint8)
    Result.whole, Result.stages = [], [[] for _ in STAGES]
    for number in range(Result.rounds + 2):
        gc.collect()
        # Alternate call by call, so that other work of the machine affects both.
        both = [(moments_of(whole_call, array), moments_of(clocked_call, array)) for _ in range(CALLS)]
        looking = cost_of_looking()
        if number < 2:  # warm-up
            continue
        # Medians, because other processes and the garbage collector interrupt some calls.
        Result.whole.append(statistics.median(whole[1] - whole[0] for whole, _ in both) - looking)
        for i, stage in enumerate(Result.stages, start=1):
            stage.append(statistics.median(call[i + 1] - call[i] for _, call in both) - looking)
    Result.samples = sampled(lambda: whole_call(array), Result.seconds)


def sampled(call: Callable[[], None], seconds: float) -> collections.Counter[str]:
    """Count the package's modules in which a timer finds the call."""
    seen: collections.Counter[str] = collections.Counter()
    if not hasattr(signal, "setitimer"):
        return seen

    def take(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(PACKAGE):
                seen[Path(file).relative_to(PACKAGE).as_posix()] += 1
                return
            if frame.f_code is whole_call.__code__:
                break
            frame = frame.f_back
        seen["the models"] += 1

    before = signal.signal(signal.SIGALRM, take)
    signal.setitimer(signal.ITIMER_REAL, SAMPLE_EVERY, SAMPLE_EVERY)
    ends = perf_counter_ns() + seconds * 1e9
    try:
        while perf_counter_ns() < ends:
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return seen


def table(whole: float, figures: dict[str, float]) -> str:
    width = max(map(len, figures), default=0) + 1
    lines = []
    for name, nanoseconds in figures.items():
        share = nanoseconds / whole
        bar = "#" * round(min(max(share, 0.0), 1.0) * 40)
        lines.append(f"{name:<{width}}{nanoseconds / 1000:8.2f} µs{share:7.0%}  {bar}".rstrip())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a trial, not a measurement")
    parser.add_argument(
        "--check", action="store_true", help=f"exit status 1 if the stages are off by more than {WITHIN:.0%}"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="30; 5 with --quick")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures, in nanoseconds")
    options = parser.parse_args()
    Result.rounds = options.rounds or (5 if options.quick else 30)
    Result.seconds = 0.3 if options.quick else 3.0
    with bls.ModelRepository() as repo:
        source = (CALLEE / "1" / "model.py").read_text()
        repo.define("bench_callee", source, config=(CALLEE / "config.pbtxt").read_text())
        repo.define("clocked", CLOCKED, config=CONFIG)
        repo.define("probe", PROBE, config=CONFIG)
        response = repo.infer("probe", {"IN": np.zeros(1, np.uint8)})
        if response.error is not None:
            raise SystemExit(f"where_time_goes.py: {response.error.message()}")
    whole = statistics.median(Result.whole)
    stages = dict(zip(STAGES, map(statistics.median, Result.stages), strict=True))
    total = sum(stages.values())
    print(table(whole, {"the whole call": whole, **stages, "all stages": total}))
    count = sum(Result.samples.values())
    modules = {name: n / count * whole for name, n in Result.samples.most_common() if n >= LEAST * count}
    if modules:
        print(f"\nBy module, of {count:,} samples:\n{table(whole, modules)}")
    if options.json:
        figures = {"whole": whole, "stages": stages, "modules": modules}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    off = abs(total - whole) / whole
    if off > WITHIN:
        print(f"\nThe stages are {off:.0%} off the whole call. Measure again on a quiet machine.")
        raise SystemExit(int(options.check))


if __name__ == "__main__":
    main()
