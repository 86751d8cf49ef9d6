"""Threads and coroutines ask random models, while others load, unload and redefine them.

The main thread asks too, and is interrupted by Ctrl-C at random moments; coroutines give up at random ones.

Every request must get its one answer (or its stream), or a clear error; nothing may hang; and once all
models are gone, so is all that they took.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import itertools
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import bls_notebook as bls
from bls_notebook.engine.schedulers.clock import system_clock
from bls_notebook.engine.waiting import threads
from tests.repository import load_models
from tests.repository.load_models import MODELS

THREADS, CALLERS, ROUNDS = 8, 64, 4
PATIENCE = 60.0  # for what is under way when a round ends
START, END = 1, 2
CLEAR = re.compile(
    r"is not ready|has no available versions|Exceeds maximum queue size|Request timeout expired"
    r"|must specify the START flag|fails on purpose|was cancelled|not answered"
    r"|can never be served|unloaded"
)
SERVANTS = {"MainThread", "bls-clock", "bls-end"}  # the last where Python allows no threads as it ends
numbers = itertools.count(1)


class Load:
    """The clients of one round, and what they got."""

    def __init__(self, repo: bls.ModelRepository, seed: int) -> None:
        self.repo = repo
        self.seed = seed
        self.over = threading.Event()
        self.got: Counter[str] = Counter()
        self.problems: list[str] = []
        self.ordered: set[int] = set()

    def draw(self, rng: random.Random) -> tuple[str, int, dict[str, Any], dict[str, Any]]:
        """A model, a number, and the arguments for a request with it."""
        name = rng.choice(list(MODELS))
        x = 4 * rng.randrange(8) if name == "cached" else 4 * next(numbers)
        if name in ("itself", "controls", "fails", "streams"):
            x += rng.randrange(4)
        more: dict[str, Any] = {}
        size = 1
        kind = MODELS[name].kind
        if kind == "plain" and name != "gathers" and rng.random() < 0.05:
            size = 100_000
        if name == "batches" and rng.random() < 0.3:
            more = {"timeout": 400, "parameters": {"priority": rng.randint(1, 2)}}
        array = np.full((1 + rng.randrange(2), 1) if kind == "batch" else (size,), x, np.int32)
        return name, x, {"X": array[None] if kind == "again" else array}, more

    def check(self, name: str, x: int, response: Any) -> bool:
        """Whether the answer is no error; a wrong answer or an unclear error is a problem."""
        if response.error is not None:
            return self.failed(name, response.error.message())
        model = MODELS[name]
        wanted = x + 4 if model.kind == "again" else model.factor * x + model.added
        if not (response["Y"].as_numpy() == wanted).all():
            self.problems.append(f"{name} of {x}: {response['Y'].as_numpy().ravel()[:4]}, expected {wanted}")
        self.got[f"{name}: answered"] += 1
        if name == "ordered":
            self.ordered.add(x)
        return True

    def failed(self, name: str, message: str) -> bool:
        if not CLEAR.search(message):
            self.problems.append(f"{name}: {message}")
        self.got[f"{name}: error"] += 1
        return False

    def check_stream(self, name: str, x: int, index: int, response: Any) -> bool:
        if response.error is not None:
            return self.failed(name, response.error.message())
        wanted = MODELS[name].factor * x + index
        if index > 2 or not (response["Y"].as_numpy() == wanted).all():
            self.problems.append(f"{name} of {x}, response {index}: {response}, expected {wanted}")
        return True

    def check_end(self, name: str, x: int, count: int) -> None:
        if count != 3:
            self.problems.append(f"{name} of {x}: a stream of {count} responses, expected 3")
        self.got[f"{name}: answered"] += 1

    def client(self, number: int) -> None:
        """A thread."""
        rng = random.Random(f"{self.seed} {number}")
        while not self.over.is_set():
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
                if not self.check_stream(name, x, count - 1, response) or leaves:
                    break
            else:
                self.check_end(name, x, count)
        else:
            self.check(name, x, self.repo.infer(name, inputs, **more))

    def sequence(self, name: str, rng: random.Random) -> None:
        key: Any = next(numbers)
        total, length = 0, rng.randint(1, 5)
        for step in range(length):
            x = next(numbers)
            flags = START * (step == 0) | END * (step == length - 1)
            array = np.array([[x]], np.int32)
            response = self.repo.infer(name, {"X": array}, correlation_id=key, flags=flags)
            total += x
            if response.error is not None:
                self.failed(name, response.error.message())
                return
            if int(response["Y"].as_numpy()[0, 0]) != total:
                self.problems.append(f"{name}: {response}, expected {total}")
            self.got[f"{name}: answered"] += 1

    async def caller(self, number: int) -> None:
        """A coroutine; at times it gives up."""
        rng = random.Random(f"{self.seed} async {number}")
        while not self.over.is_set():
            name, x, inputs, more = self.draw(rng)
            kind = MODELS[name].kind
            if kind == "sequence":
                continue
            gives_up = rng.random() < 0.05
            task = asyncio.create_task(
                self.walk(name, x, inputs) if kind == "stream" else self.one(name, x, inputs, more)
            )
            if gives_up:
                await asyncio.sleep(rng.random() * 0.003)
                task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                self.got[f"{name}: given up"] += 1

    async def one(self, name: str, x: int, inputs: dict[str, Any], more: dict[str, Any]) -> None:
        self.check(name, x, await self.repo.infer_async(name, inputs, **more))

    async def walk(self, name: str, x: int, inputs: dict[str, Any]) -> None:
        count = 0
        async for response in self.repo.stream_async(name, inputs):
            if not self.check_stream(name, x, count, response):
                return
            count += 1
        self.check_end(name, x, count)

    def callers(self) -> None:
        """The thread of the coroutines."""

        async def main() -> None:
            await asyncio.gather(*(self.caller(number) for number in range(CALLERS)))
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if left:
                self.problems.append(f"tasks are left: {left}")

        asyncio.run(main())

    def controller(self) -> None:
        """Loads, unloads and redefines."""
        rng = random.Random(f"{self.seed} control")
        while not self.over.wait(rng.random() * 0.03):
            name = rng.choice(list(MODELS))
            model = MODELS[name]
            what = rng.randrange(5)
            try:
                if what == 0:
                    self.repo.unload(name, unload_dependents=rng.random() < 0.3)
                    self.over.wait(rng.random() * 0.01)
                    self.repo.load(name)
                elif what == 1:
                    self.repo.reload(name)
                elif what == 2:
                    self.repo.define(name, model.source, model.config)
                elif what == 3 and model.source:
                    self.repo.define(name, "class TritonPythonModel: syntax error", model.config)
                else:
                    self.repo.load(name)
            except bls.BLSError as error:
                if what != 3 and not re.search("unload|not loaded|no loaded|syntax", str(error)):
                    self.problems.append(f"controlling {name}: {error}")
            self.repo.index()
            self.got["controlled"] += 1

    def impatient(self, seconds: float) -> None:
        """The main thread; somebody presses Ctrl-C all the time."""
        rng = random.Random(f"{self.seed} impatient")
        end = time.monotonic() + seconds
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
                    while time.monotonic() < end and not self.over.is_set():
                        self.once(rng)
                    left.set()
                except KeyboardInterrupt:
                    self.got["interrupted"] += 1
            except KeyboardInterrupt:
                pass  # once more, in the line above
        with contextlib.suppress(KeyboardInterrupt):
            finger.join()
        signal.signal(signal.SIGINT, before)

    def run(self, seconds: float) -> None:
        load_models.seen.clear()
        for name, model in MODELS.items():
            self.repo.define(name, model.source, model.config)
        jobs: list[Any] = [(self.client, n) for n in range(THREADS)] + [(self.callers,), (self.controller,)]
        workers = [threading.Thread(target=self.guarded, args=job, daemon=True) for job in jobs]
        for worker in workers:
            worker.start()
        self.impatient(seconds)
        self.over.set()
        deadline = time.monotonic() + PATIENCE
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        assert not any(w.is_alive() for w in workers), f"a request hangs\n{stacks()}"
        assert not self.problems, "\n".join(self.problems[:20])
        twice = [x for x, times in Counter(load_models.seen).items() if times > 1]
        assert not twice, "requests that were executed twice"
        assert self.ordered <= set(load_models.seen)

    def guarded(self, job: Any, *arguments: Any) -> None:
        try:
            job(*arguments)
        except BaseException as error:
            self.problems.append(f"{job.__name__} raised {type(error).__name__}: {error}")
            self.over.set()


def stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def until_rung() -> None:
    """Wait until alarms that nobody needs any more have gone: each goes at its time."""
    deadline = time.monotonic() + 10
    while alarms := [alarm for _, _, alarm in list(system_clock._heap)]:
        assert time.monotonic() < deadline, f"alarms are left: {alarms}"
        time.sleep(0.02)


def objects() -> Counter[str]:
    """Objects of the package's own classes, by class."""
    out: Counter[str] = Counter()
    for item in gc.get_objects():
        kind = type(item)
        if str(getattr(kind, "__module__", "")).startswith("bls_notebook."):
            out[f"{kind.__module__}.{kind.__qualname__}"] += 1
    return out


def left() -> dict[str, Any]:
    """What a repository without models still takes."""
    for _ in range(3):
        gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # what the C library keeps of freed memory
        ctypes.CDLL(None).malloc_trim(0)
    out: dict[str, Any] = {
        "objects": objects(),
        "modules": set(sys.modules),
        "instances": len(load_models.alive),
        "blocks": sys.getallocatedblocks(),
    }
    process = Path("/proc/self")
    if process.is_dir():
        out["resident"] = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        out["files"] = len(list((process / "fd").iterdir()))
    return out


def until_ended() -> None:
    """Wait until threads that nobody needs have ended."""
    deadline = time.monotonic() + 30
    while True:
        left_over = [t.name for t in threading.enumerate() if t.name not in SERVANTS]
        if len(left_over) == sum(n.startswith("bls-worker") for n in left_over) <= 1:
            return  # one waits for the next job
        assert time.monotonic() < deadline, f"threads are left: {left_over}\n{stacks()}"
        time.sleep(0.02)


def compare(first: dict[str, Any], last: dict[str, Any]) -> None:
    """Nothing has become more from one round to another."""
    assert last["modules"] == first["modules"], last["modules"] ^ first["modules"]
    assert not last["objects"] - first["objects"], last["objects"] - first["objects"]
    assert not last["folders"]
    assert not last["instances"]
    assert last.get("files", 0) <= first.get("files", 0)
    assert last["blocks"] < first["blocks"] + 2000, (first["blocks"], last["blocks"])
    resident = [each.get("resident", 0) for each in (first, last)]
    assert resident[1] < resident[0] + 6_000_000, resident


def main(seconds: float) -> None:
    """Rounds of load, after each of which everything is unloaded."""
    threads.IDLE_SECONDS = 0.1
    results: list[dict[str, Any]] = []
    got: Counter[str] = Counter()
    with bls.ModelRepository(cache_bytes=1 << 20) as repo:
        for number in range(ROUNDS):
            load = Load(repo, number)
            load.run(seconds / ROUNDS)
            repo.clear()
            got += load.got
            del load
            until_ended()
            until_rung()
            root = repo._catalog.service.folder._root
            results.append({**left(), "folders": [] if root is None else list(root.iterdir())})
    print(got)
    assert got["interrupted"], "Ctrl-C was never noticed"
    unanswered = [name for name in MODELS if not got[f"{name}: answered"]]
    assert not unanswered, f"never answered: {unanswered}"
    compare(results[0], results[-1])


if __name__ == "__main__":
    main(float(sys.argv[1]))
