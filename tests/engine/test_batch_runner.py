"""One `execute` call that serves many requests, and the path of a queued request."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine import batch_runner
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model_counters import FOLD_AT
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.interrupts import Interrupted
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, ctrl_c_once, infer, ints, message, queued, row, until
from tests.engine.sources import DOUBLE, model, pbtxt

BATCHING = "dynamic_batching { }"

HELD = """
def execute(self, requests):
    values = [int(pb.get_input_tensor_by_name(r, "X").as_numpy().ravel()[0]) for r in requests]
    if values == [0]:
        gates.open_gate("held")
        gates.pass_gate("go")
        return [reply(0)]
    gates.log.put(values)
    return self.serve(requests, values)
"""
ASYNC_HELD = HELD.replace("def execute", "async def execute").replace(
    "return self.serve(", "return await self.serve("
).replace('gates.pass_gate("go")', 'await asyncio.to_thread(gates.pass_gate, "go")')  # fmt: skip


def config(rows: int = 8, scheduling: str = BATCHING, count: int = 1, decoupled: bool = False) -> str:
    text = pbtxt(count, decoupled).replace("max_batch_size: 0", f"max_batch_size: {rows}")
    return text.replace("dims: [ -1 ]", "dims: [ 1 ]") + "\n" + scheduling


def source(serve: str, held: str = HELD) -> str:
    return model(held + serve)


class Batch:
    """Requests 1 .. count of a model, in one batch: sent while it is held by request 0."""

    def __init__(self, repo: bls.ModelRepository, name: str, count: int) -> None:
        self.repo, self.name = repo, name
        self.first = Caller(self.send, 0)
        gates.pass_gate("held")
        self.callers = []
        for n in range(1, count + 1):
            self.callers.append(Caller(self.send, n))
            until(lambda n=n: queued(repo, name) == n)

    def send(self, n: int) -> Any:
        return self.repo.infer(self.name, row(n))

    def run(self) -> list[Any]:
        """The answers: values, or the texts of errors."""
        gates.open_gate("go")
        assert outcome(self.first.result()) == 0
        answers = [outcome(c.result()) for c in self.callers]
        assert gates.logged() == [list(range(1, len(self.callers) + 1))]
        assert_all_idle(self.repo, self.name)
        return answers


def outcome(response: Any) -> Any:
    if response.error is not None:
        return response.error.message()
    return int(response["Y"].as_numpy().item())


def run(repo: bls.ModelRepository, serve: str, count: int = 3, held: str = HELD) -> list[Any]:
    repo.define("m", source(serve, held), config())
    return Batch(repo, "m", count).run()


LATER = """sender = requests[1].get_response_sender()
    def later():
        gates.pass_gate("others answered")
        sender.send(reply(20), flags=FINAL)
    threading.Thread(target=later, daemon=True).start()
    threading.Timer(0, gates.open_gate, ["others answered"]).start()
    return [reply(10), None, reply(30)]"""
SENDERS = """for request, value in zip(reversed(requests), reversed(values)):
        request.get_response_sender().send(reply(10 * value), flags=FINAL)"""
ONE_ERROR = "return [reply(1), pb.InferenceResponse(error=pb.TritonError('not this one')), reply(3)]"


@pytest.mark.parametrize("held", [HELD, ASYNC_HELD], ids=["sync", "async"])
@pytest.mark.parametrize(("body", "expected"), [
    ("return [reply(10 * v) for v in values]", [10, 20, 30]), (SENDERS, [10, 20, 30]), (LATER, [10, 20, 30]),
    (ONE_ERROR, [1, "not this one", 3]),
], ids=["returned", "by senders", "one later", "one error"])  # fmt: skip
def test_each_request_gets_its_own_answer(repo: bls.ModelRepository, body: str, expected: list[Any], held: str) -> None:
    kind = "async def" if held is ASYNC_HELD else "def"
    assert run(repo, f"\n{kind} serve(self, requests, values):\n    {body}\n", held=held) == expected


@pytest.mark.parametrize("held", [HELD, ASYNC_HELD], ids=["sync", "async"])
@pytest.mark.parametrize(("body", "text"), [
    ("raise ValueError('boom')", "ValueError: boom"),
    ("sys.exit(3)", "SystemExit: 3"),
    ("return [reply(1)]", "InferenceRequest(s) size is:3, and InferenceResponse(s) size is:1"),
    ("return [reply(1), 'two', reply(3)]", "found type '<class 'str'>'"),
    ("return (reply(1),) * 3", "Expected a list"),
])  # fmt: skip
def test_a_failure_fails_them_all(repo: bls.ModelRepository, body: str, text: str, held: str) -> None:
    kind = "async def" if held is ASYNC_HELD else "def"
    answers = run(repo, f"\n{kind} serve(self, requests, values):\n    {body}\n", held=held)
    assert len(answers) == 3
    assert all(str(a).startswith("Failed to process the request(s) for model 'm_0_0', message: ") for a in answers)
    assert all(text in str(a) for a in answers)


AGAIN = "requests[0].set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)"


@pytest.mark.parametrize(("body", "expected"), [
    ("requests[1].get_response_sender().send(reply(20), flags=FINAL)\n    raise ValueError('boom')",
     ["boom", 20, "boom"]),
    ("return [reply(10), None, reply(30)]", [10, "the request was not answered", 30]),
    ("requests[0].get_response_sender().send(reply(10), flags=FINAL)\n    return [reply(v) for v in values]",
     [10, *["cannot send more than one response"] * 2]),
    (f"{AGAIN}\n    return [reply(v) for v in values]",
     ["Expected a None object in the execute function return list"] * 3),
    (f"{AGAIN}\n    return [None, *[reply(v) for v in values[1:]]]",
     ["while the model is not configured to handle such a flag. Configure it: ", 2, 3]),
], ids=["answered before a failure", "None without a sender", "a sender and an answer too",
        "an answer to a rescheduled request", "rescheduled in vain"])  # fmt: skip
def test_failures_in_a_batch_are_errors_of_its_requests(
    repo: bls.ModelRepository, body: str, expected: list[Any]
) -> None:
    answers = run(repo, f"\ndef serve(self, requests, values):\n    {body}\n")
    for answer, wanted in zip(answers, expected, strict=True):
        assert wanted in answer if isinstance(wanted, str) else answer == wanted, answers


def test_arrays_of_a_batch_are_apart(repo: bls.ModelRepository) -> None:
    repo.define("m", source('''
def serve(self, requests, values):
    same = np.array([[7]], np.int32)
    return [pb.InferenceResponse([pb.Tensor("Y", same)]) for _ in values]
'''), config())  # fmt: skip
    batch = Batch(repo, "m", 2)
    batch.run()
    first, second = (c.result()["Y"].as_numpy() for c in batch.callers)
    first[:] = 1
    assert second.item() == 7


def test_cancellation_is_told_request_by_request(repo: bls.ModelRepository) -> None:
    repo.define("m", source('''
def serve(self, requests, values):
    gates.open_gate("running")
    gates.pass_gate("cancelled")
    gates.log.put([r.is_cancelled() for r in requests])
    return [reply(v) for v in values]
'''), config())  # fmt: skip

    async def client() -> Any:
        given_up, other = [asyncio.ensure_future(repo.infer_async("m", row(n))) for n in (1, 2)]
        await asyncio.to_thread(until, lambda: queued(repo, "m") == 2)
        gates.open_gate("go")
        await asyncio.to_thread(gates.pass_gate, "running")
        given_up.cancel()
        gates.open_gate("cancelled")
        return await other

    first = Caller(repo.infer, "m", row(0))
    gates.pass_gate("held")
    assert outcome(asyncio.run(client())) == 2
    assert outcome(first.result()) == 0
    assert gates.logged() == [[1, 2], [True, False]]


def test_requests_sent_by_a_batch_are_its_own(repo: bls.ModelRepository) -> None:
    repo.define("m", source('''
def serve(self, requests, values):
    again = ask_row("m", 5).exec()
    return [pb.InferenceResponse(error=again.error()) for _ in values]
'''), config())  # fmt: skip
    answers = Batch(repo, "m", 2).run()
    assert all("circular BLS: m -> m" in a for a in answers), answers


def test_requests_of_a_decoupled_model(repo: bls.ModelRepository) -> None:
    repo.define("m", source('''
def serve(self, requests, values):
    for request, value in zip(requests, values):
        sender = request.get_response_sender()
        for n in range(value):
            sender.send(reply(n))
        sender.send(flags=FINAL)
''').replace("return [reply(0)]", "return requests[0].get_response_sender().send(reply(0), FINAL)"),
        config(decoupled=True))  # fmt: skip

    def stream(n: int) -> list[Any]:
        return [outcome(r) for r in repo.stream("m", row(n))]

    first = Caller(stream, 0)
    gates.pass_gate("held")
    callers = []
    for n in (1, 3):
        callers.append(Caller(stream, n))
        until(lambda: queued(repo, "m") == len(callers))
    gates.open_gate("go")
    assert first.result() == [0]
    assert [c.result() for c in callers] == [[0], [0, 1, 2]]
    assert gates.logged() == [[1, 3]]


@pytest.mark.parametrize("worker", [False, True])
def test_ctrl_c_stops_a_batch(repo: bls.ModelRepository, worker: bool) -> None:
    repo.define("m", source('''
def serve(self, requests, values):
    gates.open_gate("spins")
    while values == [1] and not gates.over[0]:
        pass
    return [reply(v) for v in values]
'''), config())  # fmt: skip
    repo.define("a", model('''
async def execute(self, requests):
    await ask_row("m", 1).async_exec()
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    with ctrl_c_once(gates.gate("spins").is_set):
        if worker:
            repo.infer("a", {"X": np.array([0], np.int32)})
        repo.infer("m", row(1))
    assert outcome(repo.infer("m", row(2))) == 2


GATHER = model("""
async def execute(self, requests):
    asked = [ask("double", n).async_exec() for n in range(number(requests[0]))]
    return [answer(sum(value_of(got) for got in await asyncio.gather(*asked)))]
""")
SLOW_GATHER = model("""
async def execute(self, requests):
    asked = [ask("slow", n).async_exec() for n in (1, 2, 3)]
    got = await asyncio.gather(*asked)
    words = [r.error().message() if r.has_error() else str(value_of(r)) for r in got]
    return [pb.InferenceResponse([pb.Tensor("Y", np.array([w.encode() for w in words], np.object_))])]
""")
SLOW = model("""
def execute(self, requests):
    if number(requests[0]) == 1:
        gates.pass_gate("go on")
    return [answer(number(requests[0]))]
""")


def alive() -> list[Any]:
    # Not `isinstance`, which asks the object: what other tests have left may answer with an exception.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), (Ticket, Execution))]


def test_nothing_is_left_for_the_garbage_collector(repo: bls.ModelRepository) -> None:
    repo.define("double", DOUBLE, pbtxt())
    repo.define("gather", GATHER, pbtxt())
    assert infer(repo, "gather", 4) == 12
    assert_all_idle(repo)
    gc.collect()
    gc.disable()
    try:
        before = len(alive())
        assert infer(repo, "gather", 50) == 50 * 49
        assert_all_idle(repo)
        until(lambda: len(alive()) <= before + 3, "the requests of the gather are freed")
    finally:
        gc.enable()


def test_each_is_counted_whatever_its_rows(repo: bls.ModelRepository) -> None:
    wide = pbtxt(inputs="X:INT32", outputs="Y:INT32").replace("max_batch_size: 0", "max_batch_size: 4")
    source = model('''
def execute(self, requests):
    rows = [pb.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
    return [pb.InferenceResponse([pb.Tensor("Y", 2 * r)]) for r in rows]
''')  # fmt: skip
    repo.define("wide", source, wide)
    repo.define("many", model('''
async def execute(self, requests):
    count, got = number(requests[0]), []
    for n in range(count):
        rows = np.ones((1 + n % 2, 1), np.int32)
        got.append(pb.InferenceRequest(
            model_name="wide", inputs=[pb.Tensor("X", rows)], requested_output_names=["Y"]
        ).async_exec())
    for answer_ in await asyncio.gather(*got):
        assert not answer_.has_error(), answer_.error().message()
    return [answer(count)]
'''), pbtxt())  # fmt: skip
    sent = of_two = 0
    for count in (3, FOLD_AT - 3, 5, 2 * FOLD_AT):
        assert infer(repo, "many", count) == count
        assert_all_idle(repo)
        sent += count
        of_two += count // 2
        (row,) = repo.statistics("wide")["model_stats"]
        assert row["inference_stats"]["success"]["count"] == sent
        assert row["execution_count"] == sent
        assert row["inference_count"] == sent + of_two
        assert {b["batch_size"]: b["compute_infer"]["count"] for b in row["batch_stats"]} == {
            1: sent - of_two,
            2: of_two,
        }
        stats = row["inference_stats"]
        parts = ("queue", "compute_input", "compute_infer", "compute_output")
        assert stats["success"]["ns"] == sum(stats[part]["ns"] for part in parts)


def test_an_interrupt_that_arrives_after_the_model(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.define("slow", SLOW, pbtxt())
    repo.define("gather", SLOW_GATHER, pbtxt(outputs="Y:STRING"))
    asked = Caller(repo.infer, "gather", ints(0))
    found = repo._server.find("slow")
    assert found is not None
    until(lambda: queued(repo, "slow") == 2 and isinstance(found.instances[0].holder, Execution))
    execution: Any = found.instances[0].holder
    arrived = []
    clear = batch_runner.clear_interrupt

    def late(thread: int) -> None:
        assert thread == execution.thread
        arrived.append(thread)
        if len(arrived) < 3:
            raise Interrupted
        clear(thread)

    monkeypatch.setattr(batch_runner, "clear_interrupt", late)
    execution.cancelled = True
    gates.open_gate("go on")
    texts: np.ndarray[Any, Any] = asked.result()["Y"].as_numpy()
    assert len(arrived) == 3
    assert "cancelled" in texts[0].decode()
    assert texts[1:].tolist() == [b"2", b"3"]
    assert execution.finished
    assert_all_idle(repo)
    assert infer(repo, "slow", 7) == 7


@pytest.mark.parametrize("isolation", ["kernel", pytest.param("process", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_requests_that_the_model_takes_out_of_its_list(repo: bls.ModelRepository, kind: str, isolation: str) -> None:
    source = model(f"{kind} execute(self, requests):\n    return [answer(number(requests.pop()))]")
    source = source.replace("from tests.engine import gates\n", "")
    repo.define("m", source, pbtxt(), isolation=isolation)
    assert message(repo.infer("m", ints(1))).rstrip().endswith(
        "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
        "InferenceRequest(s) size is:0, and InferenceResponse(s) size is:1"
    )  # fmt: skip


@pytest.mark.parametrize("isolation", ["kernel", pytest.param("process", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("requests[0] = None", "execute replaced a request in the list that it got"),
        ("requests[1] = requests[0]", "Non-decoupled model cannot send more than one response."),
        ("requests.reverse()", ""),
    ],
)
def test_requests_that_the_model_replaces_in_its_list(
    repo: bls.ModelRepository, kind: str, isolation: str, change: str, problem: str
) -> None:
    body = f"answers = [reply(number(r)) for r in requests]\n    {change}\n    return answers"
    source = model(f"{kind} execute(self, requests):\n    {body}").replace("from tests.engine import gates\n", "")
    both = "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 60000000 }"
    repo.define("m", source, config(2, both), isolation=isolation)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda value: outcome(repo.infer("m", row(value))), (1, 2)))
    assert all(problem in text for text in outcomes) if problem else outcomes == [1, 2]
