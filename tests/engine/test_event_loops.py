"""async_exec and async execute: futures, loops, turns, cancelling, contexts, background tasks, failures."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, idle, infer, ints, message, queued, until, value
from tests.engine.sources import ASYNC_DOUBLE, DOUBLE, caller_of, model, pbtxt

GATED = model("""
def execute(self, requests):
    gates.log.put(("begin", number(requests[0])))
    gates.open_gate(f"begun {number(requests[0])}")
    gates.pass_gate(f"go {number(requests[0])}")
    gates.log.put(("end", number(requests[0]), requests[0].is_cancelled()))
    return [answer(number(requests[0]))]
""")


def test_futures_are_asyncio_futures_already_under_way(repo: bls.ModelRepository) -> None:
    repo.define("gated", GATED, pbtxt())
    repo.define("a", model('''
async def execute(self, requests):
    future = ask("gated", 1).async_exec()
    gates.pass_gate("begun 1")          # blocks this loop: it began without it
    checks = [isinstance(future, asyncio.Future), not future.done(), asyncio.isfuture(future),
              future.get_loop() is asyncio.get_running_loop()]
    thread = threading.get_ident()
    done = []
    future.add_done_callback(lambda f: done.append(threading.get_ident()))
    gates.open_gate("go 1")
    async def wait():
        return value_of(await future)
    got = sum(await asyncio.gather(wait(), wait())) + value_of(await future)
    checks += [done == [thread], not future.cancel(), value_of(future.result()) == 1]
    return [answer(got if all(checks) else -1)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 3


def test_a_loop_that_is_closed_meanwhile(repo: bls.ModelRepository) -> None:
    repo.define("gated", GATED, pbtxt())
    repo.define("a", model('''
def execute(self, requests):
    async def leave():
        self.future = ask("gated", 1).async_exec()
    asyncio.run(leave())
    gates.pass_gate("begun 1")
    return [answer(5)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 5
    gates.open_gate("go 1")
    assert_all_idle(repo)
    assert gates.logged()[-1][:2] == ("end", 1)


def test_async_exec_needs_a_running_loop(repo: bls.ModelRepository) -> None:
    repo.define("double", DOUBLE, pbtxt())
    repo.define("a", model('''
def execute(self, requests):
    return [answer(value_of(ask("double").async_exec()))]
'''), pbtxt())  # fmt: skip
    assert "no running event loop" in message(repo.infer("a", ints(0)))

    async def within_a_loop() -> Any:  # as in Jupyter: the notebook's loop is none of the model's
        return repo.infer("a", ints(0))

    assert "no running event loop" in message(asyncio.run(within_a_loop()))


@pytest.mark.parametrize("running", [False, True])
def test_asyncio_run_inside_a_sync_execute(repo: bls.ModelRepository, running: bool) -> None:
    """Also where the caller's own loop is running, as it is in Jupyter."""
    repo.define("double", ASYNC_DOUBLE, pbtxt(2))
    repo.define("a", model('''
def execute(self, requests):
    async def both():
        got = await asyncio.gather(ask("double", 1).async_exec(), ask("double", 2).async_exec())
        return sum(map(value_of, got))
    return [answer(asyncio.run(both()))]
'''), pbtxt())  # fmt: skip
    repo.define("above", caller_of("a"), pbtxt())
    if running:

        async def call() -> int:
            got = infer(repo, "above")
            assert asyncio.get_running_loop() is not None
            await asyncio.sleep(0)  # and the loop still works
            return got

        assert asyncio.run(call()) == 6
    else:
        assert infer(repo, "above") == 6


def test_sync_exec_inside_a_coroutine_does_not_leak_the_loop(repo: bls.ModelRepository) -> None:
    repo.define("sync", model('''
def execute(self, requests):
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return [answer(1)]
    return [answer(0)]
'''), pbtxt())  # fmt: skip
    repo.define("a", model('''
async def execute(self, requests):
    loop = asyncio.get_running_loop()
    got = value_of(ask("sync").exec())
    return [answer(got if asyncio.get_running_loop() is loop else -1)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 1


@pytest.mark.parametrize("decoupled", [False, True])
def test_blocking_code_stalls_no_other_model_or_instance(repo: bls.ModelRepository, decoupled: bool) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    if number(requests[0]):
        gates.open_gate("blocks")
        gates.pass_gate("go on")
    requests[0].get_response_sender().send(answer(1), FINAL)
'''), pbtxt(2, decoupled))  # fmt: skip
    repo.define("other", ASYNC_DOUBLE, pbtxt())

    def ask(n: int) -> Caller:
        return Caller(lambda: [value(response) for response in repo.stream("a", ints(n))])

    blocked = ask(1)
    gates.pass_gate("blocks")
    assert Caller(infer, repo, "other", 4).result() == 8
    for _ in range(3):
        assert ask(0).result() == [1]  # also the one that was on its way to the loop that blocks
    gates.open_gate("go on")
    assert blocked.result() == [1]


MEETING = """
async def execute(self, requests):
    me = number(requests[0])
    gates.log.put(("begin", me))
    if self.inside:
        gates.shared["overlap"] = True
    self.inside += 1
    other = self.events.setdefault(1 - me, asyncio.Event())
    self.events.setdefault(me, asyncio.Event()).set()
    try:
        await asyncio.wait_for(other.wait(), {limit})
        met = 1
    except asyncio.TimeoutError:
        met = 0
    self.inside -= 1
    {answer}

def initialize(self, args):
    self.events, self.inside = {{}}, 0
"""


def test_decoupled_requests_overlap_on_one_loop(repo: bls.ModelRepository) -> None:
    body = MEETING.format(limit=10, answer="requests[0].get_response_sender().send(answer(met), FINAL)")
    repo.define("a", model(body), pbtxt(decoupled=True))
    callers = [Caller(lambda n=n: list(repo.stream("a", ints(n)))) for n in range(2)]
    assert [value(r) for c in callers for r in c.result()] == [1, 1]
    assert gates.shared["overlap"]


def test_plain_requests_take_turns(repo: bls.ModelRepository) -> None:
    body = MEETING.format(limit=0.03, answer="return [answer(met)]")
    repo.define("a", model(body), pbtxt())
    callers = [Caller(infer, repo, "a", n) for n in range(2)]
    assert sorted(c.result() for c in callers) == [0, 1]  # the second finds the first one's event set
    assert "overlap" not in gates.shared


def test_requests_are_served_in_order(repo: bls.ModelRepository) -> None:
    repo.define("gated", model('''
def execute(self, requests):
    gates.log.put(number(requests[0]))
    if number(requests[0]) == 0:
        gates.pass_gate("go on")
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    callers = []
    for n in range(12):  # of every kind, in one line
        if n % 3 == 0:
            callers.append(Caller(infer, repo, "gated", n))
        elif n % 3 == 1:
            callers.append(Caller(lambda n=n: list(repo.stream("gated", ints(n)))))
        else:
            callers.append(Caller(lambda n=n: asyncio.run(repo.infer_async("gated", ints(n)))))
        until(lambda n=n: queued(repo, "gated") == n and idle(repo, "gated") == 0)
    gates.open_gate("go on")
    for caller in callers:
        caller.result()
    assert gates.logged() == list(range(12))


def test_requests_of_tasks_belong_to_their_execution(repo: bls.ModelRepository) -> None:
    repo.define("bad", model('''
def execute(self, requests):
    raise ValueError(f"for {number(requests[0])}")
'''), pbtxt(4))  # fmt: skip
    repo.define("a", model('''
async def execute(self, requests):
    me = number(requests[0])
    async def one():
        await asyncio.sleep(0)
        return await ask("bad", me).async_exec()
    got = await asyncio.gather(*[asyncio.create_task(one()) for _ in range(3)])
    raise pb.TritonModelException(got[0].error().message())
'''), pbtxt(decoupled=True))  # fmt: skip

    async def call() -> list[Any]:
        async def one(n: int) -> Any:
            return [r async for r in repo.stream_async("a", ints(n))][-1]

        return await asyncio.gather(*[one(n) for n in range(4)])

    for n, response in enumerate(asyncio.run(call())):
        record = response.record
        assert record.error.chain == ("a", "bad")
        assert f"for {n}" in record.error.message


def test_the_context_is_as_it_was_afterwards(repo: bls.ModelRepository) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("of_the_test", default=0)
    gates.shared["variable"] = variable
    repo.define("a", model('''
def execute(self, requests):
    gates.shared["variable"].set(7)
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    variable.set(3)
    request = bls.pb_utils.InferenceRequest(model_name="a", inputs=[], requested_output_names=[])
    asyncio.run(repo.infer_async("a", ints(0)))
    list(repo.stream("a", ints(0)))
    assert variable.get() == 3
    infer(repo, "a")
    with pytest.raises(bls.pb_utils.TritonModelException, match="only supported during"):
        request.exec()  # no model runs any more


def test_background_tasks_run_until_unload_and_are_cancelled_then(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    async def background():
        try:
            while True:
                gates.open_gate("beat")
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            gates.open_gate("cancelled")
            raise
    self.task = asyncio.create_task(background())
    return [answer(1)]

def finalize(self):
    gates.log.put("finalized")
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 1
    assert_all_idle(repo)
    for _ in range(3):  # it keeps running
        gates.gate("beat").clear()
        gates.pass_gate("beat")
    assert not gates.gate("cancelled").is_set()
    Caller(repo.unload, "a").result()
    gates.pass_gate("cancelled")
    assert gates.logged() == ["finalized"]


def test_a_model_that_stops_its_loop(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
async def execute(self, requests):
    if number(requests[0]):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    for _ in range(2):
        Caller(repo.infer, "a", ints(1)).result()  # answered, if only with an error
        assert Caller(infer, repo, "a", 0).result() == 1
