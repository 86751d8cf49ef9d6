"""The engine against brute force: random callers of random models, step by step.

Models here do what the test tells them: send a request to a model, or end. A reference keeps the
books: who holds which instance, who waits for what. Whether a request is refused is decided there by
trying every order in which things may still end.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.deadlocks import reports
from bls_notebook.engine.waiting.event_loops import WatchedSelector
from bls_notebook.engine.waiting.parker import Parker
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, ints, value
from tests.engine.sources import model, pbtxt

MODELS = {"p": 1, "q": 1, "r": 2, "s": 3}
ASYNC = "qs"  # of these, with an async `execute`
STEPS = 25

OBEYS = model("""
def execute(self, requests):
    here = gates.shared["enter"](self.name)
    while True:
        command, name = here.commands.queue.get(timeout=gates.LIMIT)
        if command == "end" or gates.over[0]:
            return [answer(1)]
        response = ask(name).exec(decoupled=command == "stream")
        if command == "stream":
            response = next(iter(response))
        here.done("refused" if response.has_error() else "answered", response)

def initialize(self, args):
    self.name = args["model_name"]
""")
OBEYS_ASYNC = model("""
async def execute(self, requests):
    here = gates.shared["enter"](self.name, asyncio.get_running_loop())
    while True:
        command, name = await here.commands.queue.get()
        if command == "end" or gates.over[0]:
            return [answer(1)]
        response = await getattr(self, command)(ask(name))
        here.done("refused" if response.has_error() else "answered", response)

async def exec(self, request):
    return request.exec()

async def stream(self, request):
    return next(iter(await request.async_exec(decoupled=True)))

async def wait(self, request):
    return await request.async_exec()

async def gather(self, request):
    return (await asyncio.gather(request.async_exec()))[0]

async def task(self, request):
    return (await asyncio.gather(asyncio.create_task(self.wait(request))))[0]

def initialize(self, args):
    self.name = args["model_name"]
""")


class Commands:
    """A queue that a model reads in its thread, or in its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.queue: Any = queue.SimpleQueue() if loop is None else asyncio.Queue()
        self._loop = loop

    def put(self, command: tuple[str, str]) -> None:
        if self._loop is None:
            self.queue.put(command)
        else:
            self._loop.call_soon_threadsafe(self.queue.put_nowait, command)


@dataclass(eq=False)
class Run:
    """One execution, as the reference and the model itself know it."""

    model: str
    sender: Run | None  # None: somebody outside
    thread: int = 0
    commands: Any = None
    waits_for: Any = None  # a Run that it sent, or the name of a model in whose queue it stands


class Reference:
    """Who holds and waits for what."""

    def __init__(self) -> None:
        self.held: dict[str, list[Run]] = {name: [] for name in MODELS}
        self.queues: dict[str, deque[Run | None]] = {name: deque() for name in MODELS}

    def running(self) -> list[Run]:
        return [r for runs in self.held.values() for r in runs if r.waits_for is None]

    def can_be_served(self, name: str, sender: Run) -> bool:
        """Whether a request of `sender` to `name`, last in its queue, is served in any order of ends."""
        first = (
            frozenset(r for runs in self.held.values() for r in runs),
            tuple((n, (*q, *((sender,) if n == name else ()))) for n, q in self.queues.items()),
        )
        todo, seen = [first], set()
        while todo:
            state = todo.pop()
            if state in seen:
                continue
            seen.add(state)
            alive, queues = state
            lines = dict(queues)
            if sender not in lines[name]:
                return True
            for run in alive:
                waits = run.waits_for
                if run is sender or (isinstance(waits, Run) and waits in alive):
                    continue
                if isinstance(waits, str) and run in lines[waits]:
                    continue
                # It may end; then the first in its line has the instance, and may end at once, and so on.
                gone = tuple((n, () if n == run.model else q) for n, q in queues)
                todo.append((alive - {run}, gone))
        return False


class Driver:
    """Gives commands, and checks that what follows is what the reference says."""

    def __init__(self, repo: bls.ModelRepository) -> None:
        self.repo = repo
        self.reference = Reference()
        self.events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.entered: list[Any] = []
        self.outside: list[Caller] = []
        gates.shared["enter"] = self.enter

    def enter(self, name: str, loop: asyncio.AbstractEventLoop | None = None) -> Any:
        driver, commands = self, Commands(loop)

        class Here:
            pass

        here: Any = Here()
        here.commands = commands
        here.thread = threading.get_ident()
        self.entered.append(here)
        here.done = lambda what, response: driver.events.put((what, here))
        self.events.put(("entered " + name, here))
        return here

    def next(self, *wanted: str) -> dict[str, Any]:
        """The next events, in any order; nothing else may happen."""
        got: dict[str, Any] = {}
        missing = list(wanted)
        while missing:
            try:
                what, who = self.events.get(timeout=gates.LIMIT)
            except queue.Empty:
                raise AssertionError(f"waited for {missing} in vain, got {got}") from None
            if what.startswith("parked") and what not in missing:
                continue  # once more, after a while
            assert what in missing, (what, missing)
            missing.remove(what)
            got[what] = who
        return got

    def began(self, run: Run, here: Any) -> None:
        run.commands, run.thread = here.commands, here.thread
        here.run = run
        self.reference.held[run.model].append(run)

    def call_from_outside(self, name: str) -> None:
        books = self.reference
        free = len(books.held[name]) < MODELS[name]
        self.outside.append(Caller(self.repo.infer, name, ints(0)))
        if free:
            self.began(Run(name, None), self.next("entered " + name)["entered " + name])
        else:
            books.queues[name].append(None)
            self.next(f"parked {self.outside[-1].ident}")

    def call(self, sender: Run, name: str, how: str) -> bool:
        """Send a request; whether it was refused."""
        books = self.reference
        how = how if how == "stream" or sender.model in ASYNC else "exec"
        free = len(books.held[name]) < MODELS[name]
        stuck = not free and not books.can_be_served(name, sender)
        sender.commands.put((how, name))
        parked = f"parked {sender.thread}"
        if free:
            run = Run(name, sender)
            # The thread of a model that calls an idle sync model waits in another way, without a check.
            wanted = ["entered " + name] + ([parked] if how != "exec" or name in ASYNC else [])
            self.began(run, self.next(*wanted)["entered " + name])
            sender.waits_for = run
        elif stuck:
            assert self.next("refused")["refused"].run is sender
        else:
            sender.waits_for = name
            books.queues[name].append(sender)
            self.next(parked)
        return stuck

    def end(self, run: Run) -> None:
        books = self.reference
        books.held[run.model].remove(run)
        wanted = [] if run.sender is None else ["answered"]
        line = books.queues[run.model]
        if line:
            wanted.append("entered " + run.model)
        run.commands.put(("end", ""))
        got = self.next(*wanted)
        if run.sender is not None:
            assert got["answered"].run is run.sender
            run.sender.waits_for = None
        if line:
            sender = line.popleft()
            follower = Run(run.model, sender)
            if sender is not None:
                sender.waits_for = follower
            self.began(follower, got["entered " + run.model])

    def finish(self) -> None:
        """End everything; the reference says that it can."""
        while any(self.reference.held.values()):
            running = self.reference.running()
            assert running, "the reference is in a deadlock"
            self.end(running[0])
        for caller in self.outside:
            assert value(caller.result()) == 1

    def clear(self) -> None:
        """After a failure: let everything go."""
        gates.over[0] = True
        for here in self.entered:
            here.commands.put(("end", ""))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=15, suppress_health_check=list(hypothesis.HealthCheck), database=None)
def test_refused_are_those_that_nothing_can_serve(data: st.DataObject) -> None:
    gates.reset()
    repo = bls.ModelRepository()
    for name, count in MODELS.items():
        repo.define(name, OBEYS_ASYNC if name in ASYNC else OBEYS, pbtxt(count))
    driver = Driver(repo)
    events = driver.events
    park, wait = Parker.park, WatchedSelector.wait

    def told_park(self: Parker, seconds: float | None = None) -> bool:
        events.put((f"parked {threading.get_ident()}", None))
        return park(self, seconds)

    def told_wait(self: WatchedSelector, timeout: float | None) -> Any:
        # With a timeout of 0 it does not sleep, and has checked nothing; without children it waits for a command.
        if timeout != 0 and any(execution.children for execution in self.executions):
            events.put((f"parked {threading.get_ident()}", None))
        return wait(self, timeout)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reports, "REPORT_AFTER", 1000.0)  # what is refused is refused at once
            patch.setattr(Parker, "park", told_park)
            patch.setattr(WatchedSelector, "wait", told_wait)
            play(driver, data)
        assert_all_idle(repo)
    finally:
        driver.clear()
        repo.close(1.0)


def play(driver: Driver, data: st.DataObject) -> None:
    names = st.sampled_from([*MODELS])
    kinds = st.sampled_from(["outside", "exec", "exec", "exec", "stream", "wait", "gather", "task", "end"])
    for _ in range(data.draw(st.integers(4, STEPS), label="steps")):
        running = driver.reference.running()
        what = data.draw(kinds) if running else "outside"
        if what == "outside":
            driver.call_from_outside(data.draw(names))
            continue
        run = running[data.draw(st.integers(0, len(running) - 1))]
        if what == "end":
            driver.end(run)
        else:
            refused = driver.call(run, data.draw(names), what)
            hypothesis.event("refused" if refused else "served or queued")
    driver.finish()
