"""Loading, replacing and unloading while requests are in flight, and requests that come late."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.waiting.event_loops import ModelLoop, mailbox
from bls_notebook.engine.waiting.parker import Parker, blocked
from tests.engine import gates
from tests.engine.ensembles import chain
from tests.engine.harness import Caller, assert_all_idle, idle, infer, ints, message, queued, until, value
from tests.engine.sources import DOUBLE, caller_of, model, pbtxt
from tests.engine.test_reshape import ECHO, config

WAITS = model("""
def initialize(self, args):
    self.name = args["model_instance_name"]

def execute(self, requests):
    gates.open_gate("begun")
    gates.pass_gate("go on")
    return [answer(number(requests[0]))]

def finalize(self):
    gates.log.put(self.name)
""")


def constant(number: int, kind: str = "def") -> str:
    return model(f"""
{kind} execute(self, requests):
    return [answer({number})]

def finalize(self):
    gates.count("finalized")
""")


@pytest.mark.parametrize("callers", [1, 6])
def test_unload_finishes_what_is_in_flight(repo: bls.ModelRepository, callers: int) -> None:
    repo.define("a", WAITS, pbtxt(2))
    calls: list[Caller] = []
    for n in range(callers):
        if n % 2:
            calls.append(Caller(lambda n=n: next(iter(repo.stream("a", ints(n))))))
        else:
            calls.append(Caller(repo.infer, "a", ints(n)))
    until(lambda: queued(repo, "a") == max(0, callers - 2) and idle(repo, "a") == max(0, 2 - callers))
    gates.pass_gate("begun")
    unloading = Caller(repo.unload, "a")
    until(lambda: not repo.ready("a"))
    assert "has no available versions" in message(repo.infer("a", ints(9)))
    assert not unloading.done
    assert gates.logged() == []
    gates.open_gate("go on")
    assert [value(c.result()) for c in calls] == list(range(callers))
    unloading.result()
    assert sorted(gates.logged()) == ["a_0_0", "a_0_1"]


WAYS: dict[str, Callable[[bls.ModelRepository], Any]] = {
    "sync": lambda repo: repo.infer("a", ints(3)),
    "stream": lambda repo: next(iter(repo.stream("a", ints(3)))),
    "async": lambda repo: asyncio.run(repo.infer_async("a", ints(3))),
    "ensemble": lambda repo: repo.infer("e", ints(3)),
}
MORE = {"default": "", "dynamic": "dynamic_batching { }", "cached": "response_cache { enable: true }"}


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("way", WAYS)
def test_no_caller_waits_for_finalize(repo: bls.ModelRepository, way: str, more: str, kind: str) -> None:
    repo.define("a", model(f"""
{kind} execute(self, requests):
    gates.open_gate("begun")
    gates.pass_gate("go on")
    return [answer(number(r)) for r in requests]

def finalize(self):
    gates.open_gate("finalizing")
    gates.pass_gate("caller has its answer")
"""), pbtxt() + MORE[more])  # fmt: skip
    repo.define("e", "", chain("a"))
    caller = Caller(WAYS[way], repo)
    gates.pass_gate("begun")
    unloading = Caller(repo.unload, "a")
    until(lambda: not repo.ready("a"))
    gates.open_gate("go on")
    gates.pass_gate("finalizing")
    assert value(caller.result()) == 3
    assert not unloading.done
    gates.open_gate("caller has its answer")
    unloading.result()


def test_late_answers_count_as_in_flight(repo: bls.ModelRepository) -> None:
    repo.define("late", model('''
def execute(self, requests):
    gates.shared["sender"] = requests[0].get_response_sender()
    gates.open_gate("begun")

def finalize(self):
    gates.log.put("finalized")
'''), pbtxt(decoupled=True))  # fmt: skip
    caller = Caller(lambda: list(repo.stream("late", ints(0))))
    gates.pass_gate("begun")
    assert_all_idle(repo)
    unloading = Caller(repo.unload, "late")
    until(lambda: not repo.ready("late"))
    assert not unloading.done
    assert gates.logged() == []
    final = bls.pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    gates.shared.pop("sender").send(flags=final)
    assert len(caller.result()) <= 1
    unloading.result()
    assert gates.logged() == ["finalized"]


def test_redefining_finishes_the_old_version_s_requests(repo: bls.ModelRepository) -> None:
    repo.define("a", WAITS, pbtxt())
    callers = [Caller(infer, repo, "a", n) for n in range(3)]
    until(lambda: queued(repo, "a") == 2)
    repo.define("a", constant(100), pbtxt())  # does not wait
    assert infer(repo, "a") == 100
    assert gates.logged() == []
    gates.open_gate("go on")
    assert [c.result() for c in callers] == [0, 1, 2]
    until(lambda: gates.log.qsize() == 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_no_request_is_lost_while_a_model_is_redefined(repo: bls.ModelRepository, kind: str) -> None:
    rounds = 100 if kind == "def" else 40
    repo.define("a", constant(0, kind), pbtxt(2))
    repo.define("above", caller_of("a"), pbtxt(4))
    ended = threading.Event()

    def call(number: int) -> int:
        seen, calls = 0, 0
        while not ended.is_set():
            if number == 0:
                now = infer(repo, "a")
            elif number == 1:
                now = infer(repo, "above")
            elif number == 2:
                now = value(next(iter(repo.stream("a", ints(0)))))
            else:
                now = value(asyncio.run(repo.infer_async("a", ints(0))))
            assert seen <= now <= rounds
            seen, calls = now, calls + 1
            time.sleep(0.0005)  # else the callers take turns with each other, and hardly with define
        return calls

    callers = [Caller(call, n) for n in range(4)]
    try:
        for n in range(1, rounds + 1):
            repo.define("a", constant(n, kind), pbtxt(2))
            assert infer(repo, "a") == n
    finally:
        ended.set()
        calls = sum(c.result() for c in callers)
    assert calls > 20
    until(lambda: gates.counts["finalized"] == 2 * rounds)
    assert_all_idle(repo)
    repo.unload("a")
    assert gates.counts["finalized"] == 2 * rounds + 2


def test_redefining_from_many_threads(repo: bls.ModelRepository) -> None:
    repo.define("a", constant(0), pbtxt())

    def define(number: int) -> None:
        for n in range(5):
            repo.define("a", constant(100 * number + n), pbtxt())
            infer(repo, "a")

    for caller in [Caller(define, n) for n in range(4)]:
        caller.result()
    until(lambda: gates.counts["finalized"] == 20)
    assert infer(repo, "a") % 100 == 4


BROKEN = {
    "syntax": "def execute(self, requests: return",
    "no class": None,
    "initialize raises": "def initialize(self, args):\n    raise ValueError('no')",
    "initialize exits": "def initialize(self, args):\n    sys.exit(1)",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_failed_redefinition_keeps_what_serves(repo: bls.ModelRepository, case: str) -> None:
    repo.define("a", constant(1), pbtxt(2))
    body = BROKEN[case]
    source = "x = 1" if body is None else model(body)
    ended = threading.Event()

    def call() -> bool:
        while not ended.wait(0.0005):
            assert infer(repo, "a") == 1
        return True

    caller = Caller(call)
    try:
        for _ in range(3):
            with pytest.raises(bls.BLSError):
                repo.define("a", source, pbtxt())
        with pytest.raises(bls.BLSError):
            repo.define("a", constant(2), "max_batch_size: what")
    finally:
        ended.set()
    assert caller.result()
    assert infer(repo, "a") == 1
    assert gates.counts["finalized"] == 0


def test_models_made_before_a_failing_instance_are_finalized(repo: bls.ModelRepository) -> None:
    with pytest.raises(bls.ModelLoadError):
        repo.define("a", model('''
def initialize(self, args):
    if args["model_instance_name"].endswith("2"):
        raise ValueError("the third")

def execute(self, requests):
    return [answer(1)]

def finalize(self):
    gates.count("finalized")
'''), pbtxt(4))  # fmt: skip
    assert gates.counts["finalized"] == 2
    assert not repo.ready("a")


@pytest.mark.parametrize("way", ["sync", "stream", "async"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_model_that_unloads_itself(repo: bls.ModelRepository, kind: str, way: str) -> None:
    repo.define("a", model(f'''
{kind} execute(self, requests):
    pb.unload_model("a")
    return [answer(1)]

def finalize(self):
    gates.open_gate("finalized")
'''), pbtxt())  # fmt: skip
    assert value(Caller(WAYS[way], repo).result()) == 1
    gates.pass_gate("finalized")
    assert not repo.ready("a")


def test_a_model_that_loads_itself_again(repo: bls.ModelRepository) -> None:
    repo.define("a", model('''
def initialize(self, args):
    gates.count("initialized")

def execute(self, requests):
    if number(requests[0]):
        pb.load_model("a", files={"file:1/model.py": gates.shared["next"].encode()},
                      config=gates.shared["config"])
    return [answer(1)]

def finalize(self):
    gates.count("finalized")
'''), pbtxt())  # fmt: skip
    gates.shared["next"] = constant(2)
    gates.shared["config"] = (
        '{"max_batch_size": 0, "backend": "python",'
        '"input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [-1]}],'
        '"output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [-1]}]}'
    )
    assert Caller(infer, repo, "a", 1).result() == 1
    assert infer(repo, "a") == 2
    until(lambda: gates.counts["finalized"] == 1)


def test_loading_and_unloading_in_finalize_and_initialize(repo: bls.ModelRepository) -> None:
    repo.define("b", constant(1), pbtxt())
    repo.define("a", model('''
def initialize(self, args):
    pb.load_model("b")

def execute(self, requests):
    return [answer(1)]

def finalize(self):
    pb.unload_model("b")
'''), pbtxt())  # fmt: skip
    assert infer(repo, "a") == 1
    Caller(repo.unload, "a").result()
    until(lambda: not repo.ready("b"))


def test_close_finalizes_everything_once() -> None:
    repo = bls.ModelRepository()
    for name in "abc":
        repo.define(name, constant(1, "async def" if name == "b" else "def"), pbtxt(2))
        infer(repo, name)
    repo.close()
    repo.close()
    assert gates.counts["finalized"] == 6
    assert "has no available versions" in message(repo.infer("a", ints(0)))
    with pytest.raises(bls.BLSError):
        repo.define("d", constant(1), pbtxt())


def test_close_finishes_what_is_in_flight() -> None:
    repo = bls.ModelRepository()
    repo.define("a", WAITS, pbtxt())
    caller = Caller(infer, repo, "a", 4)
    gates.pass_gate("begun")
    closing = Caller(repo.close)
    until(lambda: not repo.ready("a"))
    assert not closing.done
    gates.open_gate("go on")
    assert caller.result() == 4
    closing.result()
    assert gates.logged() == ["a_0_0"]


def test_close_gives_up_on_hung_models_after_its_limit() -> None:
    repo = bls.ModelRepository()
    for name in "abc":
        repo.define(name, WAITS, pbtxt())
    callers = [Caller(repo.infer, name, ints(1)) for name in "abc"]
    until(lambda: all(idle(repo, name) == 0 for name in "abc"))
    repo.close(0.2)  # while they hang
    assert all("the repository was closed" in message(c.result()) for c in callers)
    gates.open_gate("go on")
    until(lambda: gates.log.qsize() == 3)  # and they are finalized all the same


def test_counting_of_responses_is_not_upset_by_a_second_thread(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.define("a", model('''
def execute(self, requests):
    sender = requests[0].get_response_sender()
    gates.shared["sender"] = sender
    gates.pass_gate("reader waits")
    sender.send(answer(1))
'''), pbtxt(decoupled=True))  # fmt: skip
    unpark = Parker.unpark
    first: list[Any] = []

    def slow_unpark(self: Parker) -> None:
        if "sender" in gates.shared and not first:
            first.append(self)
            final = bls.pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            Caller(gates.shared["sender"].send, None, final).result()
        unpark(self)

    caller = Caller(lambda: list(repo.stream("a", ints(0))))
    until(lambda: "sender" in gates.shared)
    until(lambda: caller.ident in blocked)
    monkeypatch.setattr(Parker, "unpark", slow_unpark)
    gates.open_gate("reader waits")
    assert [value(r) for r in caller.result()][:1] == [1]
    gates.shared.clear()
    assert first
    assert_all_idle(repo)
    Caller(repo.unload, "a").result()


SILENT = model("""
def execute(self, requests):
    return None
""")


@pytest.fixture
def late(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has the next request find a version that has been replaced since: the first argument, redefined."""

    def replaced(*definition: str) -> None:
        name = definition[0]
        old = repo._server.find(name)
        repo.define(*definition)
        find, found = Server.find, [old]

        def first(self: Server, asked: str, version: int = -1) -> Any:
            return found.pop() if found and asked == name else find(self, asked, version)

        monkeypatch.setattr(Server, "find", first)
        monkeypatch.setattr(repo._sender, "request", with_find(repo, monkeypatch))

    return replaced


def with_find(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Making a request looks the model up too, and is not what is tested."""
    first = Server.find
    made = repo._sender.request

    def request(*arguments: Any, **options: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Server, "find", lambda *_: None)
            out = made(*arguments, **options)
        assert Server.find is first
        return out

    return request


def test_the_version_that_serves_now_answers(repo: bls.ModelRepository, late: Any) -> None:
    repo.define("m", SILENT, pbtxt())
    late("m", DOUBLE, pbtxt())
    assert infer(repo, "m", 4) == 8


def test_a_late_request_without_an_answer_is_an_error(repo: bls.ModelRepository, late: Any) -> None:
    repo.define("m", DOUBLE, pbtxt())
    late("m", SILENT, pbtxt())
    assert "the request was not answered" in message(Caller(repo.infer, "m", ints(1)).result())


@pytest.mark.parametrize(("now", "sees"), [([6], (6,)), ([3, 2], (3, 2)), ([6, 1], (6, 1))])
def test_a_late_request_is_reshaped_anew(
    repo: bls.ModelRepository, late: Any, now: list[int], sees: tuple[int, ...]
) -> None:
    repo.define("m", ECHO, config([2, 3], [1, 6]))
    late("m", ECHO, config([2, 3], now))
    gates.logged()
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.testing.assert_array_equal(repo.infer("m", {"X": array})["Y"].as_numpy(), array)
    assert gates.logged() == [sees]


def loops() -> int:
    return sum(thread.name.startswith("bls-loop-") for thread in threading.enumerate())


def test_requests_that_come_at_once_share_one_loop(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    before = loops()
    repo.define("m", model("""
async def execute(self, requests):
    for r in requests:
        r.get_response_sender().send(answer(threading.get_ident()  % 2**31), flags=FINAL)
"""), pbtxt(decoupled=True))  # fmt: skip
    made, both = ModelLoop.__init__, threading.Barrier(2)

    def slow(self: ModelLoop, *arguments: Any) -> None:
        try:
            both.wait(0.3)  # nobody else may get here before it is there
        except threading.BrokenBarrierError:
            pass
        made(self, *arguments)

    monkeypatch.setattr(ModelLoop, "__init__", slow)
    callers = [Caller(lambda: value(next(iter(repo.stream("m", ints(1)))))) for _ in range(2)]
    assert len({c.result() for c in callers}) == 1
    assert loops() == before + 1
    repo.unload("m")
    until(lambda: loops() == before)


def test_a_coroutine_after_its_final_flag_starts_no_new_loop(repo: bls.ModelRepository) -> None:
    before = loops()
    repo.define("m", model("""
async def execute(self, requests):
    for r in requests:
        r.get_response_sender().send(answer(1), flags=FINAL)
    gates.open_gate("sent")
    while not gates.gate("go").is_set():
        await asyncio.sleep(0.001)
"""), pbtxt(decoupled=True))  # fmt: skip
    assert [value(r) for r in repo.stream("m", ints(1))] == [1]
    gates.pass_gate("sent")
    repo.unload("m")
    gates.open_gate("go")
    until(lambda: loops() == before)


def test_a_loop_ends_with_nobody_who_holds_it() -> None:
    loop = ModelLoop("m")
    alive = weakref.ref(loop.loop)
    post = mailbox(loop.loop)
    ran = threading.Event()
    loop.post(ran.set)
    assert ran.wait(gates.LIMIT)
    thread = loop._thread
    loop.stop()
    thread.join(gates.LIMIT)
    del loop, thread
    gc.collect()
    assert alive() is None
    post.post(ran.clear)  # is silent
    assert ran.is_set()
