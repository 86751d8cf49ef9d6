"""Cancelling: what each way of giving up tells a model that runs, and does to a request that waits, as on Triton."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.ensembles import chain
from tests.engine.harness import Caller, assert_all_idle, infer, ints, message, queued, until, value
from tests.engine.sources import model, pbtxt

# Sends one response, waits until it is told to stop (or let go), and says what it was told.
STREAM = """
{kind} execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        gates.log.put(("begin", number(request), request.is_cancelled(), sender.is_cancelled()))
        sender.send(answer(number(request)))
        gates.open_gate("begun")
        while not request.is_cancelled() and not gates.gate("go").is_set():
            {pause}
        gates.log.put(("end", number(request), request.is_cancelled(), sender.is_cancelled()))
        if sender.is_cancelled():
            error = pb.TritonError("stopped", pb.TritonError.CANCELLED)
            sender.send(pb.InferenceResponse(error=error), FINAL)
        else:
            sender.send(answer(-1), FINAL)
"""
KINDS = {
    "sync": STREAM.format(kind="def", pause="time.sleep(0.001)"),
    "async": STREAM.format(kind="async def", pause="await asyncio.sleep(0.001)"),
}
SCHEDULERS = {
    "default": "",
    "dynamic": "dynamic_batching {}",
    "sequence": "sequence_batching { iterative_sequence: true }",
}


def config(scheduler: str = "default", decoupled: bool = True) -> str:
    text = pbtxt(decoupled=decoupled)
    if scheduler != "default":
        text = text.replace("max_batch_size: 0", "max_batch_size: 1") + "\n" + SCHEDULERS[scheduler]
    return text


def rows(scheduler: str, n: int) -> dict[str, Any]:
    return {"X": np.full((1, 1), n, np.int32)} if scheduler != "default" else ints(n)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_an_iterator_that_is_cancelled(repo: bls.ModelRepository, scheduler: str, kind: str) -> None:
    repo.define("stream", model(KINDS[kind]), config(scheduler))
    shape = "(1, 1)" if scheduler != "default" else "(1,)"
    repo.define("a", model(f'''
def execute(self, requests):
    request = pb.InferenceRequest(model_name="stream", requested_output_names=["Y"],
        inputs=[pb.Tensor("X", np.full({shape}, 5, np.int32))])
    iterator = request.exec(decoupled=True)
    first = next(iterator)
    assert iterator.cancel() is None
    iterator.cancel()
    rest = list(iterator)
    iterator.cancel()
    again = list(iterator)
    told = [r.error().message() if r.has_error() else int(r.output_tensors()[0].as_numpy()[0]) for r in rest]
    gates.log.put(("rest", told, len(again)))
    return [answer(int(first.output_tensors()[0].as_numpy()[0]))]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 5
    assert gates.logged() == [("begin", 5, False, False), ("end", 5, True, True), ("rest", ["stopped"], 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_of_async_exec_that_is_cancelled(repo: bls.ModelRepository, kind: str) -> None:
    repo.define("stream", model(KINDS[kind]), config())
    repo.define("a", model('''
async def execute(self, requests):
    iterator = await ask("stream", 5).async_exec(decoupled=True)
    iterator.cancel()
    rest = await asyncio.to_thread(list, iterator)
    return [answer(len(rest) if rest[-1].has_error() else -1)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 2
    assert gates.logged()[-1] == ("end", 5, True, True)


def test_an_iterator_that_is_cancelled_by_another_thread_while_it_waits(repo: bls.ModelRepository) -> None:
    repo.define("stream", model(KINDS["sync"]), config())
    repo.define("a", model('''
def execute(self, requests):
    iterator = ask("stream", 5).exec(decoupled=True)
    next(iterator)
    thread = threading.Thread(target=lambda: (gates.pass_gate("begun"), iterator.cancel()))
    thread.start()
    rest = list(iterator)
    thread.join()
    return [answer(len(rest))]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 1


def cancel_waiting(repo: bls.ModelRepository, scheduler: str) -> list[Any]:
    """Cancel a request to `stream` that waits behind another one; return what its iterator yields."""
    first = Caller(lambda: [r.error is None for r in repo.stream("stream", rows(scheduler, 1))])
    gates.pass_gate("begun")

    def body() -> list[Any]:
        from bls_notebook.pb_utils import InferenceRequest, Tensor

        iterator = InferenceRequest("", 0, [Tensor("X", rows(scheduler, 2)["X"])], ["Y"], "stream").exec(decoupled=True)
        iterator.cancel()
        gates.open_gate("go")
        return [r.error().message() if r.has_error() else int(r.output_tensors()[0].as_numpy()[0]) for r in iterator]

    responses = repo.run(body)
    assert first.result() == [True, True]
    return list(responses)


@pytest.mark.parametrize("scheduler", ["default", "dynamic"])
def test_a_cancelled_request_that_waits_is_served(repo: bls.ModelRepository, scheduler: str) -> None:
    """The default scheduler knows no cancellation, and a dynamic batcher has prefetched the request."""
    repo.define("stream", model(KINDS["sync"]), config(scheduler))
    assert cancel_waiting(repo, scheduler) == [2, "stopped"]
    assert gates.logged()[-2:] == [("begin", 2, True, True), ("end", 2, True, True)]


def test_a_batcher_that_prefetches_nothing_drops_a_cancelled_request(repo: bls.ModelRepository) -> None:
    limited = config("dynamic").replace("{}", "{ default_queue_policy { max_queue_size: 9 } }")
    repo.define("stream", model(KINDS["sync"]), limited)
    (told,) = cancel_waiting(repo, "dynamic")
    assert "the request was cancelled" in told
    assert [entry[1] for entry in gates.logged()] == [1, 1]


def test_a_batcher_prefetches_two_batches_of_each_instance(repo: bls.ModelRepository) -> None:
    repo.define("plain", model(PLAIN.format(kind="def", pause="time.sleep(0.001)")), config("dynamic", False))

    async def call() -> None:
        first = asyncio.create_task(repo.infer_async("plain", rows("dynamic", 1)))
        await asyncio.to_thread(gates.pass_gate, "begun")
        tasks = [asyncio.create_task(repo.infer_async("plain", rows("dynamic", n))) for n in range(4)]
        await asyncio.to_thread(until, lambda: queued(repo, "plain") == 4)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        gates.open_gate("go")
        await first

    asyncio.run(call())
    assert_all_idle(repo)
    assert gates.logged() == [[False], [True], [True]]
    (record,) = repo.statistics_records("plain")
    assert (record.success.count, record.fail.count) == (3, 2)


PLAIN = """
{kind} execute(self, requests):
    gates.open_gate("begun")
    while not requests[0].is_cancelled() and not gates.gate("go").is_set():
        {pause}
    gates.log.put([r.is_cancelled() for r in requests])
    return [answer(1) for r in requests]
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheduler", ["default", "dynamic"])
def test_a_task_that_is_cancelled(repo: bls.ModelRepository, scheduler: str, kind: str) -> None:
    pause = "time.sleep(0.001)" if kind == "sync" else "await asyncio.sleep(0.001)"
    source = model(PLAIN.format(kind="def" if kind == "sync" else "async def", pause=pause))
    repo.define("plain", source, config(scheduler, decoupled=False))

    async def call() -> None:
        task = asyncio.create_task(repo.infer_async("plain", rows(scheduler, 1)))
        await asyncio.to_thread(gates.pass_gate, "begun")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(call())
    assert_all_idle(repo)
    assert gates.logged() == [[True]]


AWAITS = {
    "cancel": "future.cancel()\n    await asyncio.wait([future])",
    "wait_for": "await asyncio.wait_for(future, 0.001)",
    "timeout": "async with asyncio.timeout(0.001):\n            await future",
    "group": """async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.wait_for(future, 60))
            await asyncio.sleep(0)
            raise ValueError""",
}


@pytest.mark.parametrize("way", AWAITS)
def test_a_cancelled_await_leaves_the_callee_running(repo: bls.ModelRepository, way: str) -> None:
    """As on a server, where a thread of an executor waits for the response."""
    if not hasattr(asyncio, {"timeout": "timeout", "group": "TaskGroup"}.get(way, "wait_for")):
        pytest.skip("Python 3.11")
    repo.define("plain", model(PLAIN.format(kind="async def", pause="await asyncio.sleep(0.001)")), pbtxt())
    repo.define("a", model(f'''
async def execute(self, requests):
    future = ask("plain").async_exec()
    await asyncio.to_thread(gates.pass_gate, "begun")
    try:
        {AWAITS[way]}
    except BaseException:
        pass
    return [answer(future.cancelled())]
'''.replace("\n    await asyncio.wait([", "\n        await asyncio.wait([")), pbtxt())  # fmt: skip
    with bls.profile() as session:
        assert infer(repo, "a") == 1
        gates.open_gate("go")
        assert_all_idle(repo)
    assert gates.logged() == [[False]]
    assert bls.judge(session, "abandoned == 1 of plain")
    assert bls.judge(session, "cancelled == 0")


def test_a_request_whose_await_was_cancelled_leaves_the_queue_only_to_run(repo: bls.ModelRepository) -> None:
    repo.define("plain", model(PLAIN.format(kind="def", pause="time.sleep(0.001)")), pbtxt())
    repo.define("a", model('''
async def execute(self, requests):
    futures = [ask("plain").async_exec() for _ in range(3)]
    await asyncio.to_thread(gates.pass_gate, "begun")
    return [answer(sum(future.cancel() for future in futures))]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 3
    gates.open_gate("go")
    assert_all_idle(repo)
    assert gates.logged() == [[False]] * 3


def test_a_cancelled_ensemble_cancels_the_steps_that_begin_later(repo: bls.ModelRepository) -> None:
    for name in "first", "second":
        repo.define(name, model(PLAIN.format(kind="def", pause="time.sleep(0.001)")), pbtxt())
    repo.define("both", "", chain("first", "second"))

    async def call() -> None:
        task = asyncio.create_task(repo.infer_async("both", ints(1)))
        await asyncio.to_thread(gates.pass_gate, "begun")
        task.cancel()
        await asyncio.wait([task])
        gates.open_gate("go")

    asyncio.run(call())
    assert_all_idle(repo)
    assert gates.logged() == [[False], [True]]


@pytest.mark.parametrize("way", ["stream", "stream_async"])
def test_leaving_a_stream_early(repo: bls.ModelRepository, way: str) -> None:
    repo.define("stream", model(KINDS["sync"]), config())

    async def leave() -> None:
        walk = repo.stream_async("stream", ints(4))
        async for _ in walk:
            break
        await walk.aclose()  # type: ignore[attr-defined]

    if way == "stream":
        for response in repo.stream("stream", ints(4)):
            assert value(response) == 4
            break
    else:
        asyncio.run(leave())
    until(lambda: gates.gate("begun").is_set())
    assert_all_idle(repo)
    assert gates.logged()[-1] == ("end", 4, True, True)


def test_an_error_with_the_code_of_cancelling_keeps_its_code(repo: bls.ModelRepository) -> None:
    repo.define("gives_up", model('''
def execute(self, requests):
    return [pb.InferenceResponse(error=pb.TritonError("gone", pb.TritonError.CANCELLED)) for r in requests]
'''), pbtxt())  # fmt: skip
    repo.define("a", model('''
def execute(self, requests):
    return [pb.InferenceResponse(error=ask("gives_up").exec().error())]
'''), pbtxt())  # fmt: skip
    response = repo.infer("a", ints(1))
    assert message(response) == "gone"
    assert response.error is not None
    assert response.error.code().name == "CANCELLED"


ENDED = {
    "before the end": ("seen = q.is_cancelled(); s.send(answer(1), FINAL)", ""),
    "after the final flag": ("s.send(answer(1), FINAL); seen = ask(q)", "the request has ended"),
    "by the sender": ("s.send(answer(1), FINAL); seen = ask(s)", "the request has ended"),
    "of an earlier request": ("s.send(answer(1), FINAL); seen = ask(self.earlier)", "the request has ended"),
}


@pytest.mark.parametrize("isolation", ["kernel", pytest.param("process", marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ENDED)
def test_a_request_that_has_ended_cannot_be_asked(repo: bls.ModelRepository, way: str, isolation: str) -> None:
    """A server may die of it."""
    do, told = ENDED[way]
    source = model(f"""
def execute(self, requests):
    def ask(it):
        try:
            return it.is_cancelled()
        except pb.TritonModelException as error:
            return str(error)
    for q in requests:
        s = q.get_response_sender()
        if number(q):
            s.send(pb.InferenceResponse(error=pb.TritonError(str(self.seen))), FINAL)
        else:
            self.earlier = q
            {do}
            self.seen = seen
""").replace("from tests.engine import gates\n", "")  # fmt: skip
    repo.define("a", source, pbtxt(decoupled=True), isolation=isolation)
    (first,), (second,) = (list(repo.stream("a", ints(n))) for n in range(2))
    assert value(first) == 1
    assert (told or "False") in message(second)


def test_a_request_kept_after_execute_cannot_be_asked(repo: bls.ModelRepository) -> None:
    repo.define("a", model("""
def execute(self, requests):
    if number(requests[0]):
        return [answer(int(self.kept.is_cancelled()))]
    self.kept = requests[0]
    return [answer(int(self.kept.is_cancelled()))]
"""), pbtxt())  # fmt: skip
    assert value(repo.infer("a", ints(0))) == 0
    assert "the request has ended" in message(repo.infer("a", ints(1)))
