"""Where the time of one synchronous in-kernel BLS call of 64 bytes goes, stage by stage.

    python benchmarks/where_time_goes.py [--rounds N] [--json PATH]

Each stage of the engine is run by itself on objects as it gets them in a call, many times in a row, and the
whole call likewise; all in turn, round after round, and the median of the rounds counts. What the stages do
not add up to is shown as such. The stages call the engine's own functions, so this script follows them.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from asyncio.events import _get_running_loop
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import numpy as np

import bls_notebook as bls
from bls_notebook.engine.execution import Execution
from bls_notebook.engine.outputs import answer, check_returned
from bls_notebook.engine.receiving import received
from bls_notebook.pb_utils import InferenceRequest, Tensor, get_output_tensor_by_name
from bls_notebook.pb_utils._runtime import caller_var

CALLEE = Path(__file__).resolve().parent / "model_repository" / "bench_callee"
CALLS = 500  # of a stage in a row
PROBE_CONFIG = """backend: "python"
input { name: "IN" data_type: TYPE_UINT8 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_UINT8 dims: [ 1 ] }
"""
PROBE = """import __main__
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        __main__.measure()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.uint8))]) for _ in requests]
"""

Stage = tuple[str, Callable[[], Any], Callable[[Any], Any]]  # name, what makes its object, what is timed


class Result:
    """Nanoseconds of each stage, a figure a round."""

    rounds = 30
    stages: dict[str, list[float]]


def new_request(array: np.ndarray) -> InferenceRequest:
    return InferenceRequest(
        model_name="bench_callee", requested_output_names=["OUT"], inputs=[Tensor("IN", array)]
    )


def whole_call(array: np.ndarray) -> np.ndarray:
    response = InferenceRequest(
        model_name="bench_callee", requested_output_names=["OUT"], inputs=[Tensor("IN", array)]
    ).exec()
    if response.has_error():
        raise RuntimeError(response.error().message())
    return get_output_tensor_by_name(response, "OUT").as_numpy()


def stages_of_a_call() -> list[Stage]:
    """The stages in their order; runs inside a model's execute, as a caller does."""
    caller: Any = caller_var.get()
    server = caller.server
    model = server.find("bench_callee", -1)
    (instance,) = model.instances
    scheduler, execute = model.scheduler, instance.execute
    array = np.full(64, 7, np.uint8)

    def check(request: InferenceRequest) -> None:
        found = server.find(request._model_name, request._model_version)
        assert found.check.problem(request) is None

    def begin(request: InferenceRequest) -> None:
        execution = Execution(server, model, caller)
        request._answerable = execution
        with scheduler._lock:
            taken = scheduler._idle.pop()
            taken.holder = execution
        execution.instance = taken
        execution.request = request
        execution.thread = get_ident()
        _get_running_loop()
        caller_var.reset(caller_var.set(execution))
        execution.started = perf_counter_ns()
        scheduler._idle.append(taken)  # so that the next one finds it; counted with `end` otherwise

    def end(_: None) -> None:
        model.count(perf_counter_ns(), False)
        with scheduler._lock:
            scheduler._idle.pop()
        scheduler._release(instance)

    def outputs(returned: list[Any]) -> None:
        check_returned(returned, 1)
        answer(returned, 0, ("OUT",), model.declared, True)

    def everything() -> list[Any]:
        response = execute([arrived()])[0]
        mine = answer([response], 0, ("OUT",), model.declared, False)
        return [new_request(array), arrived(), response, mine, Execution(server, model, caller)]

    def read(response: Any) -> None:
        response.has_error()
        get_output_tensor_by_name(response, "OUT").as_numpy()

    def arrived() -> InferenceRequest:
        return received(model, new_request(array), True, "sync")

    return [
        ("the whole call", lambda: array, whole_call),
        ("caller: make the tensor", lambda: array, lambda a: Tensor("IN", a)),
        (
            "caller: make the request",
            lambda: [Tensor("IN", array)],
            lambda tensors: InferenceRequest(
                model_name="bench_callee", requested_output_names=["OUT"], inputs=tensors
            ),
        ),
        ("find the model, check the request", lambda: new_request(array), check),
        ("isolate the inputs", lambda: new_request(array), lambda r: received(model, r, True, "sync")),
        ("take an instance, enter its context", arrived, begin),
        ("callee: execute", lambda: [arrived()], execute),
        ("check the outputs, isolate them", lambda: execute([arrived()]), outputs),
        ("count, give the instance back", lambda: None, end),
        ("caller: read the answer", lambda: execute([arrived()])[0], read),
        ("free all that it made", everything, list.clear),
    ]


def measure() -> None:
    """Time every stage; called by the probe's execute."""
    stages = stages_of_a_call()
    Result.stages = {name: [] for name, _, _ in stages}
    for number in range(Result.rounds + 2):
        for name, make, stage in stages:
            things = [make() for _ in range(CALLS)]
            gc.collect()
            began = perf_counter_ns()
            for thing in things:
                stage(thing)
            spent = perf_counter_ns() - began
            began = perf_counter_ns()
            for thing in things:
                nothing(thing)
            spent -= perf_counter_ns() - began  # of the loop and the call, which are not in the engine
            if number >= 2:
                Result.stages[name].append(spent / CALLS)


def nothing(thing: Any) -> None:
    pass


def table(medians: dict[str, float]) -> str:
    whole = medians["the whole call"]
    width = max(map(len, medians))
    lines = []
    for name, nanoseconds in medians.items():
        share = nanoseconds / whole
        bar = "#" * round(max(share, 0.0) * 40)
        lines.append(
            f"{name:<{width}}{nanoseconds / 1000:8.2f} µs{share:7.0%}  {bar if share < 1 else ''}".rstrip()
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30, metavar="N")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures, in nanoseconds")
    options = parser.parse_args()
    Result.rounds = options.rounds
    with bls.ModelRepository() as repo:
        source = (CALLEE / "1" / "model.py").read_text()
        repo.define("bench_callee", source, config=(CALLEE / "config.pbtxt").read_text())
        repo.define("probe", PROBE, config=PROBE_CONFIG)
        response = repo.infer("probe", {"IN": np.zeros(1, np.uint8)})
        if response.error is not None:
            raise SystemExit(f"where_time_goes.py: {response.error.message()}")
    medians = {name: statistics.median(rounds) for name, rounds in Result.stages.items()}
    stages = sum(value for name, value in medians.items() if name != "the whole call")
    medians["the ways between them"] = medians["the whole call"] - stages
    print(table(medians))
    if options.json:
        options.json.write_text(json.dumps(medians, indent=1) + "\n")


if __name__ == "__main__":
    main()
