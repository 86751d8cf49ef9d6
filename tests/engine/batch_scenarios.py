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
from tests.waiting import LIMIT

RECORDED = Path(__file__).with_name("recorded_batches.json")
START, END = 1, 2


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


Scenario = Callable[[Play], Any]


def held(model: str, *requests: dict[str, Any]) -> Scenario:
    """Hold the model with the first request, queue the others, and let go."""

    def scenario(play: Play) -> Any:
        for label, options in enumerate(requests):
            play.send(model, label, gate=None if label else play.gate(), **options)
        return play.batches()

    return scenario


def one_by_one(model: str, *requests: dict[str, Any]) -> Scenario:
    """Send each request once the one before is answered."""

    def scenario(play: Play) -> Any:
        for label, options in enumerate(requests):
            play.send(model, label, **options)
            play.join()
        return play.batches()

    return scenario


def step(sequence: int | str, flags: int = 0, **options: Any) -> dict[str, Any]:
    return {"correlation_id": sequence, "flags": flags, **options}


def priority(level: int) -> dict[str, Any]:
    return {"parameters": {"priority": level} if level else None}


def _steps(play: Play, model: str, first: int, *steps: tuple[int, int]) -> None:
    for label, (sequence, flags) in enumerate(steps, first):
        play.send(model, label, **step(sequence, flags))


def preferred_delay(play: Play) -> Any:
    for n in range(7):
        play.send("preferred_delay", n)
    play.until(lambda: 0 in play.answers)  # these four need not wait
    play.pause(0.5)
    return play.batches()


def rejects(play: Play) -> Any:
    play.send("rejects", 0, gate=play.gate())
    play.send("rejects", 1)
    play.send("rejects", 2, timeout=50000)
    play.pause(0.1)
    play.until(lambda: 2 in play.answers)
    play.send("rejects", 3)
    return play.batches()


def delays(play: Play) -> Any:
    play.send("delays", 0, gate=play.gate())
    for n in (1, 2, 3):
        play.send("delays", n, timeout=150000 if n < 3 else 0)
    play.pause(0.3)
    play.send("delays", 4)
    return play.batches()


def two_instances(model: str) -> Scenario:
    def scenario(play: Play) -> Any:
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

    return scenario


def direct_slots(play: Play) -> Any:
    """Sequences keep their positions, those without a request are not ready."""
    play.send("direct", 0, gate=play.gate(), **step(11, START))
    _steps(play, "direct", 1, (12, START), (13, START))
    play.open()
    play.join()
    for label, sequence, flags in ((3, 13, 0), (4, 12, END), (5, 13, 0), (6, 11, END), (7, 13, END)):
        play.send("direct", label, **step(sequence, flags))
        play.join()
    return play.batches()


def direct_backlog_timeout(play: Play) -> Any:
    model = "direct_one_slot"
    play.send(model, 0, gate=play.gate(), **step(21, START))
    play.send(model, 1, **step(22, START))
    play.send(model, 2, **step(22, END, timeout=100000))
    play.pause(0.2)
    play.until(lambda: 2 in play.answers)
    _steps(play, model, 3, (22, 0), (21, END))
    return play.batches()


def direct_utilization(play: Play) -> Any:
    _steps(play, "direct_utilization", 0, (11, START), (12, START))
    play.join()
    play.send("direct_utilization", 2, **step(12, END))
    play.pause(0.7)
    return play.batches()


def oldest(play: Play) -> Any:
    play.send("oldest", 0, gate=play.gate(), **step(11, START))
    _steps(play, "oldest", 1, (12, START), (13, START), (12, 0), (13, END), (14, START))
    play.open()
    play.join()
    play.send("oldest", 6, gate=play.gate(), **step(14))
    _steps(play, "oldest", 7, (12, END), (11, END))
    return play.batches()


def oldest_backlog(play: Play) -> Any:
    play.send("oldest_two", 0, gate=play.gate(), **step(11, START))
    _steps(play, "oldest_two", 1, (12, START), (13, START | END), (14, START), (14, END))
    play.open()
    play.until(lambda: len(play.answers) == 2)
    play.send("oldest_two", 5, **step(11, END))
    return play.batches()


def iterative(play: Play) -> Any:
    play.send("iterative", 7)
    play.join()
    return play.answers[7]


BOTH = START | END
WIDTHS: list[dict[str, Any]] = [{}, *({"width": width} for width in (2, 2, 3, 2, 3, 3))]
BACKLOG = [step(11, START), step(12, START), step(13, BOTH), step(12), step(11, END), step(12, END)]
SHAPES = [(11, START, 2), (12, BOTH, 2), (13, BOTH, 3), (14, BOTH, 2), (11, END, 2)]
SCENARIOS: dict[str, Scenario] = {
    "plain": held("plain", *[{}] * 6), "preferred_delay": preferred_delay, "unbatched": held("unbatched", *[{}] * 4),
    "rows": held("plain", {}, *({"rows": rows} for rows in (5, 3, 4, 5))),
    "variable_shapes": held("variable", *WIDTHS), "ragged_shapes": held("ragged", *WIDTHS),
    "optional_inputs": held("optional", {}, *({"more": more} for more in (True, True, False, False, True))),
    "priorities": held("priorities", {}, *map(priority, (3, 3, 1, 0, 1, 9, 2, 1))),
    "level_policies": held("level_policies", {}, *map(priority, (1, 1, 2, 2))),
    "small_queue": held("small_queue", *[{}] * 5),
    "request_timeout_without_a_policy_timeout": held("no_timeout_of_its_own", {}, {"timeout": 1000}, {"timeout": 1}),
    "rejects": rejects, "delays": delays, "ordered": two_instances("ordered"), "unordered": two_instances("unordered"),
    "direct_slots": direct_slots, "direct_backlog": held("direct_one_slot", *BACKLOG),
    "direct_backlog_timeout": direct_backlog_timeout,
    "direct_shapes": held("direct_variable", *(step(sequence, flags, width=w) for sequence, flags, w in SHAPES)),
    "direct_text_ids": one_by_one("direct_text", step("blue", START), step("blue"), step("blue", END)),
    "direct_large_id_as_int32": one_by_one("direct_int32", step(2**32 * 5 + 7, BOTH)),
    "direct_utilization": direct_utilization,
    "direct_state": one_by_one("direct_state", step(5, START), step(5), step(5, END)),
    "two_rows_in_a_sequence": one_by_one("direct", step(11, START, rows=2)), "oldest": oldest,
    "oldest_backlog": oldest_backlog,
    "sequence_restarted": held("oldest", step(31, START), step(31), step(31, START), step(31, END)),
    "iterative": iterative,
}  # fmt: skip


def play_on_real_server(server: Any, folder: Path, scenario: Scenario) -> Any:
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
    from bls_notebook.shipping.servers.server_programs import make_environment
    from bls_notebook.shipping.servers.tritonserver import TritonServer

    chosen = {name: s for name, s in SCENARIOS.items() if not sys.argv[1:] or name in sys.argv[1:]}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_models(folder / "models")
        results: dict[str, Any] = {}
        with TritonServer(folder / "models", environment=make_environment(), load=["*"]) as server:
            for name, scenario in chosen.items():
                try:
                    results[name] = play_on_real_server(server, folder, scenario)
                except Exception as error:
                    results[name] = {"lost": f"{type(error).__name__}: {error}"}
                print(name, json.dumps(results[name]), flush=True)
    if not sys.argv[1:]:
        RECORDED.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
