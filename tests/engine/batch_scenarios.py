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

from tests.engine.batch_models import CONFIGS, write_models

RECORDED = Path(__file__).with_name("recorded_batches.json")
START, END = 1, 2
LIMIT = 20.0


class Play:
    """One scenario on one side.

    `infer(model, inputs, **options)` returns the report, or the error's text; `arrived(count)` waits until so
    many requests of this play have reached their models; `pause(seconds)` lets time go by.
    """

    def __init__(
        self, infer: Callable[..., Any], arrived: Callable[[int], None], pause: Callable[[float], None], folder: Path
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
    from bls_notebook.shipping.servers.tritonserver import TritonRequestError

    def infer(model: str, inputs: dict[str, Any], **options: Any) -> Any:
        try:
            return json.loads(server.infer(model, inputs, **options)["BATCH"].ravel()[0])
        except TritonRequestError as error:
            return str(error)

    def arrived(count: int) -> None:
        time.sleep(0.08)  # nothing tells how many have arrived there

    return scenario(Play(infer, arrived, time.sleep, folder))


def main() -> None:
    from bls_notebook.shipping.servers.environment import make_environment
    from bls_notebook.shipping.servers.tritonserver import TritonServer

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
