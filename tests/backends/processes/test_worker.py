"""The worker answers each execution, whenever it is cancelled."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest

from bls_notebook.backends.processes.messages import Message
from bls_notebook.backends.processes.worker import WorkerInstance


@pytest.mark.parametrize("rounds", range(4))  # of the loop, before the execution is cancelled
def test_an_execution_that_is_cancelled_as_it_begins_is_answered(rounds: int) -> None:
    answers: list[dict[str, Any]] = []

    class Model:
        async def execute(self, requests: list[Any]) -> None:
            await asyncio.get_running_loop().create_future()

    worker: Any = WorkerInstance.__new__(WorkerInstance)
    side = SimpleNamespace(send=lambda header, tensors=(): answers.append(header))
    worker.kernel = SimpleNamespace(side=side, read=[], server=None, site=None)
    worker.model, worker.loop, worker._names = Model(), asyncio.new_event_loop(), ("m_0", "")
    worker._tasks, worker.executing, worker._received = {}, {}, WeakSet()

    async def follow(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    try:
        worker.begin(Message({"op": "begin", "call": 7, "requests": []}, b"", 0, []))
        if rounds:
            worker.loop.run_until_complete(follow(rounds))
        worker.cancel(7)
        worker.loop.run_until_complete(follow(10))
    finally:
        worker.loop.close()
    assert answers == [{"interrupted": True, "op": "ended", "call": 7}]
    assert not worker.tasks()
    assert not worker.executing
