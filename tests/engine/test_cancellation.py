"""Cancelling: what each way of giving up tells a model that runs, and does to a request that waits."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, infer, ints, message, until, value
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


@pytest.mark.parametrize("scheduler", ["default", "dynamic"])
def test_an_iterator_that_is_cancelled_before_the_model_began(repo: bls.ModelRepository, scheduler: str) -> None:
    repo.define("stream", model(KINDS["sync"]), config(scheduler))
    first = Caller(lambda: [r.error is None for r in repo.stream("stream", rows(scheduler, 1))])
    gates.pass_gate("begun")
    shape = "(1, 1)" if scheduler != "default" else "(1,)"

    def body() -> list[Any]:
        from bls_notebook.pb_utils import InferenceRequest, Tensor

        array = np.full(eval(shape), 2, np.int32)
        iterator = InferenceRequest("", 0, [Tensor("X", array)], ["Y"], "stream").exec(decoupled=True)
        iterator.cancel()
        return [(r.error().code().name, r.error().message()) for r in iterator]

    ((code, words),) = repo.run(body)
    assert code == "CANCELLED"
    assert "the request was cancelled" in words
    gates.open_gate("go")
    assert first.result() == [True, True]
    assert [entry[1] for entry in gates.logged()] == [1, 1]


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


def test_a_future_of_a_model_that_is_cancelled(repo: bls.ModelRepository) -> None:
    pause = "await asyncio.sleep(0.001)"
    repo.define("plain", model(PLAIN.format(kind="async def", pause=pause)), pbtxt())
    repo.define("a", model('''
async def execute(self, requests):
    future = ask("plain").async_exec()
    await asyncio.to_thread(gates.pass_gate, "begun")
    assert future.cancel()
    assert future.cancelled()
    try:
        await future
    except asyncio.CancelledError:
        return [answer(2)]
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 2
    assert_all_idle(repo)
    assert gates.logged() == [[True]]


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
