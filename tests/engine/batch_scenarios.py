"""Scenarios of batching, the same for a real tritonserver and for the in-kernel runtime.

`python -m tests.engine.batch_scenarios` runs them on a real server and records its answers in
recorded_batches.json. A scenario holds the model with a first request, queues others one by one, and lets go:
what is compared is which requests ran together, in which order, and the errors. Times are far enough
apart that neither side can mix them up.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).with_name("recorded_batches.json")
START, END = 1, 2
LIMIT = 20.0

MODEL = """
import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils


def value(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().ravel().tolist()[0]


def text(x):
    return x.decode() if isinstance(x, bytes) else x


class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])
        self.controls = [c["name"] for c in self.config.get("sequence_batching", {}).get("control_input", [])]
        self.controls += [s["input_name"] for s in self.config.get("sequence_batching", {}).get("state", [])]
        self.runs = 0

    def execute(self, requests):
        self.runs += 1
        batch = []
        for request in requests:
            entry = [value(request, "LABEL")]
            if self.controls:
                ready = value(request, "READY")
                if not ready:
                    entry = [None, len(request.requested_output_names()), request.flags(),
                             list(pb_utils.get_input_tensor_by_name(request, "LABEL").shape())]
                entry += [text(value(request, c)) for c in self.controls]
            batch.append(entry if self.controls else entry[0])
        for request in requests:
            gate = value(request, "GATE")
            deadline = time.time() + 15
            while gate and (gate[:1] == b"/" or b":" in gate) and not os.path.exists(gate.decode()):
                assert time.time() < deadline
                time.sleep(0.002)
        report = json.dumps([self.runs, batch]).encode()
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("BATCH", np.full((r.inputs()[0].shape()[0], 1), report, np.object_))])
            for r in requests
        ]
"""

ITERATIVE = '''
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Asks to see its request again until it has seen it three times; answers with what it saw."""

    def initialize(self, args):
        self.seen = {}

    def execute(self, requests):
        out = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "LABEL").as_numpy()
            start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy().ravel().tolist()[0]
            seen = self.seen.setdefault(request.correlation_id(), [])
            seen.append([int(tensor.ravel()[0]), start, request.flags()])
            tensor += 100
            if len(seen) < 3:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                out.append(None)
            else:
                report = str(self.seen.pop(request.correlation_id())).encode()
                out.append(pb_utils.InferenceResponse(
                    [pb_utils.Tensor("BATCH", np.array([[report]], np.object_))]))
        return out
'''

_IO = """
input [ { name: "LABEL" data_type: TYPE_INT32 dims: [ %s ] %s },
        { name: "GATE" data_type: TYPE_STRING dims: [ 1 ] }%s ]
output [ { name: "BATCH" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
_CONTROLS = """
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: %s } ] }
  ]
"""


def _config(
    scheduling: str,
    rows: int = 8,
    dims: str = "1",
    ragged: bool = False,
    optional: bool = False,
    count: int = 1,
) -> str:
    more = ', { name: "MORE" data_type: TYPE_INT32 dims: [ 1 ] optional: true }' if optional else ""
    return (
        f'backend: "python"\nmax_batch_size: {rows}\n{scheduling}\n'
        + _IO % (dims, "allow_ragged_batch: true" if ragged else "", more)
        + f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n"
    )


def _sequence(
    strategy: str, corrid: str = "TYPE_UINT64", rows: int = 4, more: str = "", **options: Any
) -> str:
    body = f"max_sequence_idle_microseconds: 10000000\n{strategy}{_CONTROLS % corrid}{more}"
    return _config(f"sequence_batching {{ {body} }}", rows, **options)


_ITERATIVE_CONFIG = _config(
    """sequence_batching { iterative_sequence: true control_input [
      { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }""",
    2,
)
_POLICY = "dynamic_batching {{ default_queue_policy {{ {} }} }}".format

CONFIGS = {
    "preferred": _config("dynamic_batching { preferred_batch_size: [ 2, 4 ] }"),
    "preferred_three": _config("dynamic_batching { preferred_batch_size: [ 3 ] }"),
    "preferred_delay": _config(
        "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 400000 }"
    ),
    "plain": _config("dynamic_batching { }"),
    "variable": _config("dynamic_batching { }", dims="-1"),
    "ragged": _config("dynamic_batching { }", dims="-1", ragged=True),
    "optional": _config("dynamic_batching { }", optional=True),
    "unbatched": _config("dynamic_batching { }", 0).replace("preferred", ""),
    "priorities": _config("dynamic_batching { priority_levels: 3 default_priority_level: 2 }", 2),
    "level_policies": _config(
        """dynamic_batching { priority_levels: 2 default_priority_level: 2
        priority_queue_policy { key: 1 value { max_queue_size: 1 } } }""", 1),
    "small_queue": _config(_POLICY("max_queue_size: 2")),
    "no_timeout_of_its_own": _config(_POLICY("allow_timeout_override: true")),
    "rejects": _config(_POLICY("default_timeout_microseconds: 8000000 allow_timeout_override: true")),
    "delays": _config(_POLICY("timeout_action: DELAY default_timeout_microseconds: 8000000 "
                              "allow_timeout_override: true"), 2),
    "ordered": _config("dynamic_batching { preserve_ordering: true }", 1, count=2),
    "unordered": _config("dynamic_batching { }", 1, count=2),
    "direct": _sequence("direct { }"),
    "direct_variable": _sequence("direct { }", dims="-1"),
    "direct_text": _sequence("direct { }", "TYPE_STRING", rows=0),
    "direct_int32": _sequence("direct { }", "TYPE_INT32"),
    "direct_utilization": _sequence(
        "direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 600000 }"
    ),
    "direct_one_slot": _sequence("direct { }", rows=1),
    "direct_state": _sequence("direct { }", more="""
      state [ { input_name: "STATE" output_name: "NEXT" data_type: TYPE_INT32 dims: [ 1 ]
                initial_state: { name: "zero" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } ]"""),
    "oldest": _sequence("oldest { max_candidate_sequences: 4 }"),
    "oldest_two": _sequence("oldest { max_candidate_sequences: 2 preferred_batch_size: [ 2 ] }"),
    "iterative": _ITERATIVE_CONFIG,
}  # fmt: skip


def write_models(folder: Path) -> None:
    for name, config in CONFIGS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
        (folder / name / "1" / "model.py").write_text(ITERATIVE if name == "iterative" else MODEL)


class Play:
    """One scenario on one side.

    `infer(model, inputs, **options)` returns the report, or the error's text; `arrived(count)` waits until so
    many requests of this play have reached their models; `pause(seconds)` lets time go by.
    """

    def __init__(
        self,
        infer: Callable[..., Any],
        arrived: Callable[[int], None],
        pause: Callable[[float], None],
        folder: Path,
    ) -> None:
        self._infer, self._arrived, self.pause, self._folder = infer, arrived, pause, folder
        self._threads: list[threading.Thread] = []
        self._gates: list[Path] = []
        self.answers: dict[int, Any] = {}
        self.order: list[int] = []
        self.lock = threading.Lock()

    def gate(self) -> Path:
        path = self._folder / f"gate{time.monotonic_ns()}"
        self._gates.append(path)
        return path

    def send(self, model: str, label: int, rows: int = 1, width: int = 1, gate: Path | None = None,
             more: bool = False, **options: Any) -> None:  # fmt: skip
        """Send a request in a thread of its own."""
        shape = (width,) if CONFIGS[model].find("max_batch_size: 0") >= 0 else (rows, width)
        inputs: dict[str, Any] = {
            "LABEL": np.full(shape, label, np.int32),
            "GATE": np.full((*shape[:-1], 1), str(gate or "").encode(), np.object_),
        }
        if more:
            inputs["MORE"] = np.zeros((rows, 1), np.int32)

        def run() -> None:
            answer = self._infer(model, inputs, **options)
            with self.lock:
                self.answers[label] = answer
                self.order.append(label)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
        self._arrived(len(self._threads))

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < deadline, self.answers
            time.sleep(0.002)

    def open(self) -> None:
        for path in self._gates:
            path.touch()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(LIMIT)
            assert not thread.is_alive(), "no answer"

    def batches(self) -> Any:
        """What ran, batch by batch, and the errors."""
        self.open()
        self.join()
        ran = sorted({json.dumps(a) for a in self.answers.values() if not isinstance(a, str)})
        return {
            "batches": [b for _, b in sorted(json.loads(r) for r in ran)],
            "errors": {str(k): a for k, a in sorted(self.answers.items()) if isinstance(a, str)},
        }


def _hold(play: Play, model: str, **options: Any) -> None:
    play.send(model, 0, gate=play.gate(), **options)


def queued_singles(play: Play, model: str, count: int) -> Any:
    _hold(play, model)
    for n in range(1, count + 1):
        play.send(model, n)
    return play.batches()


def plain(play: Play) -> Any:
    return queued_singles(play, "plain", 5)


def preferred_delay(play: Play) -> Any:
    for n in range(7):
        play.send("preferred_delay", n)
    play.until(lambda: 0 in play.answers)  # these four need not wait
    play.pause(0.5)
    return play.batches()


def unbatched(play: Play) -> Any:
    return queued_singles(play, "unbatched", 3)


def rows(play: Play) -> Any:
    _hold(play, "plain")
    for n, size in enumerate((5, 3, 4, 5), 1):
        play.send("plain", n, rows=size)
    return play.batches()


def _widths(play: Play, model: str) -> Any:
    _hold(play, model)
    for n, width in enumerate((2, 2, 3, 2, 3, 3), 1):
        play.send(model, n, width=width)
    return play.batches()


def variable_shapes(play: Play) -> Any:
    return _widths(play, "variable")


def ragged_shapes(play: Play) -> Any:
    return _widths(play, "ragged")


def optional_inputs(play: Play) -> Any:
    _hold(play, "optional")
    for n, more in enumerate((True, True, False, False, True), 1):
        play.send("optional", n, more=more)
    return play.batches()


def priorities(play: Play) -> Any:
    _hold(play, "priorities")
    for n, priority in enumerate((3, 3, 1, 0, 1, 9, 2, 1), 1):
        play.send("priorities", n, parameters={"priority": priority} if priority else None)
    return play.batches()


def level_policies(play: Play) -> Any:
    _hold(play, "level_policies")
    for n, priority in enumerate((1, 1, 2, 2), 1):
        play.send("level_policies", n, parameters={"priority": priority})
    return play.batches()


def small_queue(play: Play) -> Any:
    _hold(play, "small_queue")
    for n in range(1, 5):
        play.send("small_queue", n)
    return play.batches()


def request_timeout_without_a_policy_timeout(play: Play) -> Any:
    _hold(play, "no_timeout_of_its_own")
    play.send("no_timeout_of_its_own", 1, timeout=1000)
    play.send("no_timeout_of_its_own", 2, timeout=1)
    return play.batches()


def rejects(play: Play) -> Any:
    _hold(play, "rejects")
    play.send("rejects", 1)
    play.send("rejects", 2, timeout=50000)
    play.pause(0.1)
    play.until(lambda: 2 in play.answers)
    play.send("rejects", 3)
    return play.batches()


def delays(play: Play) -> Any:
    _hold(play, "delays")
    for n in (1, 2, 3):
        play.send("delays", n, timeout=150000 if n < 3 else 0)
    play.pause(0.3)
    play.send("delays", 4)
    return play.batches()


def _two_instances(play: Play, model: str) -> Any:
    first = play.gate()
    play.send(model, 1, gate=first)
    play.send(model, 2)
    if model == "unordered":
        play.until(lambda: 2 in play.answers)
    play.pause(0.2)
    answered = sorted(play.answers)
    first.touch()
    play.join()
    return {"while 1 runs": answered, "afterwards": sorted(play.answers)}


def ordered(play: Play) -> Any:
    return _two_instances(play, "ordered")


def unordered(play: Play) -> Any:
    return _two_instances(play, "unordered")


def _step(play: Play, model: str, label: int, sequence: int | str, flags: int = 0, **options: Any) -> None:
    play.send(model, label, correlation_id=sequence, flags=flags, **options)


def direct_slots(play: Play) -> Any:
    """Sequences keep their positions, those without a request are not ready."""
    model = "direct"
    _step(play, model, 0, 11, START, gate=play.gate())
    _step(play, model, 1, 12, START)
    _step(play, model, 2, 13, START)
    play.open()
    play.join()
    for label, sequence, flags in ((3, 13, 0), (4, 12, END), (5, 13, 0), (6, 11, END), (7, 13, END)):
        _step(play, model, label, sequence, flags)
        play.join()
    return play.batches()


def direct_backlog(play: Play) -> Any:
    model = "direct_one_slot"
    _step(play, model, 0, 11, START, gate=play.gate())
    for n, (sequence, flags) in enumerate(((12, START), (13, START | END), (12, 0), (11, END), (12, END)), 1):
        _step(play, model, n, sequence, flags)
    return play.batches()


def direct_backlog_timeout(play: Play) -> Any:
    model = "direct_one_slot"
    _step(play, model, 0, 21, START, gate=play.gate())
    _step(play, model, 1, 22, START)
    _step(play, model, 2, 22, END, timeout=100000)
    play.pause(0.2)
    play.until(lambda: 2 in play.answers)
    _step(play, model, 3, 22, 0)
    _step(play, model, 4, 21, END)
    return play.batches()


def direct_shapes(play: Play) -> Any:
    model = "direct_variable"
    _step(play, model, 0, 11, START, gate=play.gate(), width=2)
    for n, (sequence, width) in enumerate(((12, 2), (13, 3), (14, 2)), 1):
        _step(play, model, n, sequence, START | END, width=width)
    _step(play, model, 4, 11, END, width=2)
    return play.batches()


def direct_text_ids(play: Play) -> Any:
    for n, (sequence, flags) in enumerate((("blue", START), ("blue", 0), ("blue", END))):
        _step(play, "direct_text", n, sequence, flags)
        play.join()
    return play.batches()


def direct_text_id_as_number(play: Play) -> Any:
    _step(play, "direct_int32", 0, "blue", START | END)
    return play.batches()


def direct_large_id_as_int32(play: Play) -> Any:
    _step(play, "direct_int32", 0, 2**32 * 5 + 7, START | END)
    return play.batches()


def direct_utilization(play: Play) -> Any:
    model = "direct_utilization"
    _step(play, model, 0, 11, START)
    _step(play, model, 1, 12, START)
    play.join()
    _step(play, model, 2, 12, END)
    play.pause(0.7)
    return play.batches()


def direct_state(play: Play) -> Any:
    for n, flags in enumerate((START, 0, END)):
        _step(play, "direct_state", n, 5, flags)
        play.join()
    return play.batches()


def two_rows_in_a_sequence(play: Play) -> Any:
    _step(play, "direct", 0, 11, START, rows=2)
    play.join()
    return play.batches()


def oldest(play: Play) -> Any:
    model = "oldest"
    _step(play, model, 0, 11, START, gate=play.gate())
    for n, (sequence, flags) in enumerate(((12, START), (13, START), (12, 0), (13, END), (14, START)), 1):
        _step(play, model, n, sequence, flags)
    play.open()
    play.join()
    _step(play, model, 6, 14, 0, gate=play.gate())
    for n, sequence in enumerate((12, 11), 7):
        _step(play, model, n, sequence, END)
    return play.batches()


def oldest_backlog(play: Play) -> Any:
    model = "oldest_two"
    _step(play, model, 0, 11, START, gate=play.gate())
    for n, (sequence, flags) in enumerate(((12, START), (13, START | END), (14, START), (14, END)), 1):
        _step(play, model, n, sequence, flags)
    play.open()
    play.until(lambda: len(play.answers) == 2)
    _step(play, model, 5, 11, END)
    return play.batches()


def sequence_restarted(play: Play) -> Any:
    model = "oldest"
    _step(play, model, 0, 31, START, gate=play.gate())
    for n, flags in enumerate((0, START, END), 1):
        _step(play, model, n, 31, flags)
    return play.batches()


def iterative(play: Play) -> Any:
    play.send("iterative", 7)
    play.join()
    return play.answers[7]


SCENARIOS: tuple[Callable[[Play], Any], ...] = (
    plain, preferred_delay, unbatched, rows, variable_shapes, ragged_shapes, optional_inputs, priorities,
    level_policies, small_queue, request_timeout_without_a_policy_timeout, rejects, delays, ordered,
    unordered, direct_slots, direct_backlog, direct_backlog_timeout, direct_shapes, direct_text_ids,
    direct_text_id_as_number, direct_large_id_as_int32, direct_utilization, direct_state,
    two_rows_in_a_sequence, oldest, oldest_backlog, sequence_restarted, iterative,
)  # fmt: skip


def play_on_real_server(server: Any, folder: Path, scenario: Callable[[Play], Any]) -> Any:
    from bls_notebook.triton.tritonserver import TritonRequestError

    def infer(model: str, inputs: dict[str, Any], **options: Any) -> Any:
        try:
            return json.loads(server.infer(model, inputs, **options)["BATCH"].ravel()[0])
        except TritonRequestError as error:
            return str(error)

    def arrived(count: int) -> None:
        time.sleep(0.08)  # nothing tells how many have arrived there

    return scenario(Play(infer, arrived, time.sleep, folder))


def main() -> None:
    from bls_notebook.triton.tritonserver import TritonServer, make_environment

    chosen = [s for s in SCENARIOS if not sys.argv[1:] or s.__name__ in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_models(folder / "models")
        results: dict[str, Any] = {}
        with TritonServer(folder / "models", environment=make_environment(), load=["*"]) as server:
            for scenario in chosen:
                try:
                    results[scenario.__name__] = play_on_real_server(server, folder, scenario)
                except Exception as error:
                    results[scenario.__name__] = {"lost": f"{type(error).__name__}: {error}"}
                print(scenario.__name__, json.dumps(results[scenario.__name__]), flush=True)
    if not sys.argv[1:]:
        RECORDED.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
