from __future__ import annotations

import gc
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.inspection.records import ModelNow, WatchRecord
from tests.waiting import LIMIT

MODEL = """
import sys
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        if inputs[0][0] < 0:
            raise ValueError("negative")
        if inputs[0][0] == 7:
            sys.bls_gate.wait()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)]) for x in inputs]
"""
CONFIG = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }]
instance_group [{ count: 2 }]
"""


def numbers(value: float) -> dict[str, Any]:
    return {"IN": np.array([value], np.float32)}


class Told:
    """Records as they come; `until` waits for one."""

    def __init__(self) -> None:
        self._came: queue.Queue[WatchRecord] = queue.Queue()
        self.threads: set[str] = set()

    def __call__(self, record: WatchRecord) -> None:
        self.threads.add(threading.current_thread().name)
        self._came.put(record)

    def until(self, test: Callable[[WatchRecord], bool]) -> WatchRecord:
        while not test(record := self._came.get(timeout=LIMIT)):
            pass
        return record


def of(record: WatchRecord, name: str = "a") -> ModelNow:
    return next(model for model in record.models if model.name == name)


def keepers(repo: bls.ModelRepository, name: str = "a") -> int:
    return next(iter(repo._server.serving(name).values())).statistics._keepers


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "bls-watch"]


def ended() -> None:
    for thread in watching():
        thread.join(LIMIT)
    assert not watching()


def test_one_look(repo: bls.ModelRepository) -> None:
    repo.define("a", MODEL, CONFIG)
    repo.infer("a", numbers(1))
    repo.infer("a", numbers(-1))
    with pytest.raises(bls.ModelLoadError):
        repo.define("broken", "import nosuchmodule")
    record = bls.watch(repo=repo).record
    now = of(record)
    assert (now.state, now.instances, now.busy, now.queue) == ("READY", 2, 0, 0)
    assert (now.answered, now.failed) == (1, 1)
    assert now.p50 is not None
    assert now.p50 == now.p99 > 0
    broken = of(record, "broken")
    assert (broken.state, broken.in_use, "nosuchmodule" in broken.reason) == ("UNAVAILABLE", True, True)
    assert (record.devices[0].name, watching(), keepers(repo)) == ("cpu", [], 0)
    assert WatchRecord.from_dict(record.to_dict()) == record


def test_followers_see_running_and_queued_requests(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(sys, "bls_gate", gate, raising=False)
    repo.define("a", MODEL, CONFIG)
    told = Told()
    end = bls.watch(0.1, repo=repo).follow(told)
    senders = [threading.Thread(target=repo.infer, args=("a", numbers(7))) for _ in range(3)]
    for sender in senders:
        sender.start()
    try:
        record = told.until(lambda record: of(record).queue == 1)
        assert of(record).busy == 2
        assert keepers(repo) == 1
    finally:
        gate.set()
    for sender in senders:
        sender.join(LIMIT)
    after = told.until(lambda record: of(record).answered == 3 and of(record).p99 is not None)
    assert of(after).rate > 0
    assert (of(after).busy, of(after).queue) == (0, 0)
    assert (of(after).p50 or 0) <= (of(after).p99 or 0)
    quiet = told.until(lambda record: of(record).p99 is None)  # nothing was answered since
    assert of(quiet).answered == 3
    repo.infer("a", numbers(-1))
    assert of(told.until(lambda record: of(record).failed == 1)).errors > 0
    end()
    ended()
    assert not keepers(repo)
    assert told.threads == {"bls-watch"}


def test_a_watch_ends_with_its_repository() -> None:
    repo = bls.ModelRepository()
    repo.define("a", MODEL, CONFIG)
    told = Told()
    watch = bls.watch(0.1, repo=repo)
    watch.follow(told)
    told.until(lambda record: bool(record.models))
    repo.close()
    assert told.until(lambda record: record.closed).models == ()
    ended()
    assert watch.record.closed
    gone = weakref.ref(repo)
    del repo
    gc.collect()
    assert gone() is None


def test_two_follow_until_both_have_enough(repo: bls.ModelRepository) -> None:
    repo.define("a", MODEL, CONFIG)
    watch, first, second = bls.watch(0.1, repo=repo), Told(), Told()
    ends = [watch.follow(first), watch.follow(second)]
    for told in (first, second):
        told.until(lambda record: bool(record.models))
    assert len(watching()) == 1
    assert keepers(repo) == 1
    ends[0]()
    second.until(lambda record: True)
    ends[1]()
    ends[1]()
    ended()
    watch.follow(Told())()
    ended()
    assert not keepers(repo)


def test_buttons_do_what_the_repository_does(repo: bls.ModelRepository) -> None:
    repo.define("a", MODEL, CONFIG)
    watch = bls.watch(repo=repo)
    done: queue.Queue[str] = queue.Queue()

    def act(verb: str, name: str) -> str:
        watch.act(verb, name, done.put)
        return done.get(timeout=LIMIT)

    assert (act("unload", "a"), repo.ready("a")) == ("", False)
    assert (act("load", "a"), act("reload", "a"), repo.ready("a")) == ("", "", True)
    assert "nosuch" in act("load", "nosuch")
    assert "'close'" in act("close", "a")
    assert repo.ready("a")


@pytest.mark.parametrize("seconds", [0, -1, "often", float("nan")])
def test_wrong_intervals_of_a_watch(repo: bls.ModelRepository, seconds: Any) -> None:
    with pytest.raises(bls.BLSError, match=r"watch: seconds: got .*, expected a number from 0.1"):
        bls.watch(seconds, repo=repo)
