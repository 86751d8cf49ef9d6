"""Threads and coroutines ask random models, while others load, unload and redefine them.

The main thread asks too, and is interrupted by Ctrl-C at random moments; coroutines give up at random ones.
Every request must get its one answer (or its stream), or a clear error; nothing may hang; and once all
models are gone, so is all that they took. The load runs in a process of its own: Ctrl-C would end the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.waiting import clock, worker_threads
from tests.engine.harness import stacks, until
from tests.repository import load_models
from tests.repository.load_models import MODELS

ROOT = Path(__file__).parents[2]
THREADS, CALLERS, ROUNDS = 8, 64, 3
# Requests of each client in a round; more where the suite is run for others than at one's own desk.
REQUESTS = int(os.environ.get("BLS_LOAD_REQUESTS") or (100 if os.environ.get("CI") else 20))
PATIENCE = 60.0  # for what is under way when a round ends
START, END = 1, 2
CLEAR = re.compile(
    r"is not found|is not at ready state|has no available versions|Exceeds maximum queue size|Request timeout expired"
    r"|must specify the START flag|fails on purpose|was cancelled|not answered"
    r"|can never be served|unloaded"
)
SERVANTS = {"MainThread", "bls-clock", "bls-end"}  # the last where Python allows no threads as it ends
numbers = itertools.count(1)


@pytest.mark.extra
@pytest.mark.slow
def test_nothing_is_lost_and_nothing_is_left() -> None:
    more = {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.repository.test_under_load", str(REQUESTS)], cwd=ROOT, env={**os.environ, **more},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[:4000]}\n...\n{done.stdout[-8000:]}"


class Load:
    """The clients of one round, and what they got."""

    def __init__(self, repo: bls.ModelRepository, seed: int, requests: int) -> None:
        self.repo, self.seed, self.requests = repo, seed, requests
        self.over = threading.Event()
        self.got: Counter[str] = Counter()
        self.problems: list[str] = []

    def draw(self, rng: random.Random) -> tuple[str, int, dict[str, Any], dict[str, Any]]:
        """A model, a number, and the arguments for a request with it."""
        name = rng.choice(list(MODELS))
        x = 4 * next(numbers) + rng.randrange(4) * (name in ("itself", "fails"))
        more: dict[str, Any] = {}
        kind = MODELS[name].kind
        size = 100_000 if kind == "plain" and name != "gathers" and rng.random() < 0.05 else 1
        if name == "batches" and rng.random() < 0.3:
            more = {"timeout": 400, "parameters": {"priority": rng.randint(1, 2)}}
        array = np.full((1 + rng.randrange(2), 1) if kind == "batch" else (size,), x, np.int32)
        return name, x, {"X": array}, more

    def check(self, name: str, response: Any, wanted: int) -> bool:
        """Whether the answer is no error; a wrong answer or an unclear error is a problem."""
        if response.error is not None:
            if not CLEAR.search(response.error.message()):
                self.problems.append(f"{name}: {response.error.message()}")
            self.got[f"{name}: error"] += 1
            return False
        if not (response["Y"].as_numpy() == wanted).all():
            self.problems.append(f"{name}: {response['Y'].as_numpy().ravel()[:4]}, expected {wanted}")
        return True

    def answered(self, name: str, x: int, response: Any) -> None:
        if self.check(name, response, MODELS[name].factor * x):
            self.got[f"{name}: answered"] += 1

    def streamed(self, name: str, count: int) -> None:
        if count != 3:
            self.problems.append(f"{name}: a stream of {count} responses, expected 3")
        self.got[f"{name}: answered"] += 1

    def client(self, number: int) -> None:
        """A thread."""
        rng = random.Random(f"{self.seed} {number}")
        for _ in range(self.requests):
            self.once(rng)

    def once(self, rng: random.Random) -> None:
        name, x, inputs, more = self.draw(rng)
        kind = MODELS[name].kind
        if kind == "sequence":
            self.sequence(name, rng)
        elif kind == "stream":
            leaves = rng.random() < 0.2
            count = 0
            for count, response in enumerate(self.repo.stream(name, inputs), 1):
                if not self.check(name, response, MODELS[name].factor * x + count - 1) or leaves:
                    break
            else:
                self.streamed(name, count)
        else:
            self.answered(name, x, self.repo.infer(name, inputs, **more))

    def sequence(self, name: str, rng: random.Random) -> None:
        key: Any = next(numbers)
        total, length = 0, rng.randint(1, 5)
        for step in range(length):
            x = next(numbers)
            total += x
            flags = START * (step == 0) | END * (step == length - 1)
            inputs = {"X": np.array([[x]], np.int32)}
            if not self.check(name, self.repo.infer(name, inputs, correlation_id=key, flags=flags), total):
                return
            self.got[f"{name}: answered"] += 1

    async def caller(self, number: int) -> None:
        """A coroutine; at times it gives up."""
        rng = random.Random(f"{self.seed} async {number}")
        for _ in range(self.requests):
            name, x, inputs, more = self.draw(rng)
            kind = MODELS[name].kind
            if kind == "sequence":
                continue
            task = asyncio.create_task(
                self.walk(name, x, inputs) if kind == "stream" else self.one(name, x, inputs, more)
            )
            if rng.random() < 0.05:
                await asyncio.sleep(rng.random() * 0.003)
                task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                self.got[f"{name}: given up"] += 1

    async def one(self, name: str, x: int, inputs: dict[str, Any], more: dict[str, Any]) -> None:
        self.answered(name, x, await self.repo.infer_async(name, inputs, **more))

    async def walk(self, name: str, x: int, inputs: dict[str, Any]) -> None:
        count = 0
        async for response in self.repo.stream_async(name, inputs):
            if not self.check(name, response, MODELS[name].factor * x + count):
                return
            count += 1
        self.streamed(name, count)

    def callers(self) -> None:
        """The thread of the coroutines."""

        async def main() -> None:
            await asyncio.gather(*(self.caller(number) for number in range(CALLERS)))
            if left := asyncio.all_tasks() - {asyncio.current_task()}:
                self.problems.append(f"tasks are left: {left}")

        asyncio.run(main())

    def controller(self) -> None:
        """Loads, unloads and redefines."""
        rng = random.Random(f"{self.seed} control")
        while not self.over.wait(rng.random() * 0.03):
            name = rng.choice(list(MODELS))
            model = MODELS[name]
            choice = rng.randrange(5)
            try:
                if choice == 0:
                    self.repo.unload(name, unload_dependents=rng.random() < 0.3)
                    self.over.wait(rng.random() * 0.01)
                    self.repo.load(name)
                elif choice == 1:
                    self.repo.reload(name)
                elif choice == 2:
                    self.repo.define(name, model.source, model.config)
                elif choice == 3 and model.source:
                    self.repo.define(name, "class TritonPythonModel: syntax error", model.config)
                else:
                    self.repo.load(name)
            except bls.BLSError as error:
                if choice != 3 and not re.search("unload|not loaded|no loaded|syntax", str(error)):
                    self.problems.append(f"controlling {name}: {error}")
            self.repo.index()

    def impatient(self) -> None:
        """The main thread; somebody presses Ctrl-C all the time."""
        rng = random.Random(f"{self.seed} impatient")
        left_to_send = iter(range(4 * self.requests))
        begun, left = threading.Event(), threading.Event()

        def press() -> None:
            begun.wait()
            while not left.wait(0.005 + rng.random() * 0.03):
                signal.raise_signal(signal.SIGINT)  # from any thread: Python's handlers run in the main one

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        finger = threading.Thread(target=press, daemon=True)
        finger.start()
        while not left.is_set():
            try:
                try:
                    begun.set()  # from here on an interrupt is caught
                    while (
                        next(left_to_send, None) is not None or not self.got["interrupted"]
                    ) and not self.over.is_set():
                        self.once(rng)
                    left.set()
                except KeyboardInterrupt:
                    self.got["interrupted"] += 1
            except KeyboardInterrupt:
                pass  # once more, in the line above
        with contextlib.suppress(KeyboardInterrupt):
            finger.join()
        signal.signal(signal.SIGINT, before)

    def run(self) -> None:
        for name, model in MODELS.items():
            self.repo.define(name, model.source, model.config)
        jobs: list[Any] = [(self.client, n) for n in range(THREADS)] + [(self.callers,)]
        workers = [threading.Thread(target=self.guarded, args=job, daemon=True) for job in jobs]
        controller = threading.Thread(target=self.guarded, args=(self.controller,), daemon=True)
        for worker in (*workers, controller):
            worker.start()
        self.impatient()
        until(lambda: not any(w.is_alive() for w in workers), "every request is answered", PATIENCE)
        self.over.set()
        controller.join(PATIENCE)
        assert not controller.is_alive(), f"a change hangs\n{stacks()}"
        assert not self.problems, "\n".join(self.problems[:20])

    def guarded(self, job: Any, *arguments: Any) -> None:
        try:
            job(*arguments)
        except BaseException as error:
            self.problems.append(f"{job.__name__} raised {type(error).__name__}: {error}")
            self.over.set()


def threads_ended() -> bool:
    """Whether threads that nobody needs have ended; one worker waits for the next job."""
    names = [t.name for t in threading.enumerate() if t.name not in SERVANTS]
    return len(names) == sum(name.startswith("bls-worker") for name in names) <= 1


def is_to_be_called(item: object) -> bool:
    """Whether it is a reference of `when_dropped` whose object is gone, and whose function has not been called yet."""
    return isinstance(item, worker_threads._Dropped) and weakref.ref.__call__(item) is None


def left(repo: bls.ModelRepository) -> dict[str, Any]:
    """What a repository without models still takes."""
    until(threads_ended, "threads that nobody needs end", 30)
    until(lambda: not any(type(item) is clock._Alarm for item in gc.get_objects()), "unneeded alarms have gone", 30)
    for _ in range(3):
        gc.collect()
    until(lambda: not any(map(is_to_be_called, gc.get_objects())), "dropped objects release what they had", 30)
    kinds = [type(item) for item in gc.get_objects()]
    own = [kind for kind in kinds if str(getattr(kind, "__module__", "")).startswith("bls_notebook.")]
    root = repo._service.folder._root
    out: dict[str, Any] = {
        "objects": Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in own),
        "modules": set(sys.modules),
        "instances": len(load_models.alive),
        "folders": [] if root is None else list(root.iterdir()),
    }
    files = Path("/proc/self/fd")
    if files.is_dir():
        out["files"] = len(list(files.iterdir()))
    return out


def main(requests: int) -> None:
    """Rounds of load, after each of which everything is unloaded; nothing becomes more from one to another."""
    worker_threads.IDLE_SECONDS = 0.1
    results: list[dict[str, Any]] = []
    got: Counter[str] = Counter()
    with bls.ModelRepository() as repo:
        for number in range(ROUNDS):
            load = Load(repo, number, requests)
            load.run()
            repo.clear()
            got += load.got
            del load
            results.append(left(repo))
    print(got)
    unanswered = [name for name in MODELS if not got[f"{name}: answered"]]
    assert not unanswered, f"never answered: {unanswered}"
    first, last = results[0], results[-1]
    assert last["modules"] == first["modules"], last["modules"] ^ first["modules"]
    assert not last["objects"] - first["objects"], last["objects"] - first["objects"]
    assert (last["folders"], last["instances"]) == ([], 0)
    assert last.get("files", 0) <= first.get("files", 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
