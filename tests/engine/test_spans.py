"""What a profile records of real requests: one span each, with its parent, its phases and its end."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.batch_runner import BatchRunner
from tests.engine import gates
from tests.engine.ensembles import chain
from tests.engine.harness import Caller, infer, ints, message, queued, until, value
from tests.engine.sources import DOUBLE, model, pbtxt
from tests.engine.span_checks import STREAM, SYNC_CALLER, WAITS, check, only, tree
from tests.waiting import LIMIT


def test_a_call_from_a_model(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("c", SYNC_CALLER, pbtxt())
    with bls.profile(name="one") as profile:
        assert infer(repo, "c", 4) == 9
    session = check(profile.record)
    assert tree(session) == [("", "c", "sync"), ("c", "d", "sync")]
    outer, inner = session.spans
    assert outer.started <= inner.sent
    assert inner.ended <= outer.inferred
    assert (inner.instance, inner.device, inner.rows, inner.responses) == ("d_0_0", "cpu", 1, 1)
    assert (inner.bytes_in, inner.bytes_out) == (4, 4)
    assert len({inner.thread, outer.thread, threading.get_ident()}) == 3
    assert inner.released <= inner.ended
    assert (session.name, session.dropped) == ("one", 0)
    assert session.began.endswith("+00:00")


def test_models_are_seen_with_their_code_and_config(repo: bls.ModelRepository) -> None:
    def seen() -> tuple[str, str]:
        with bls.profile() as profile:
            infer(repo, "d")
        (model_seen,) = profile.record.models
        assert model_seen.name == "d"
        return model_seen.code, model_seen.config

    repo.define("d", DOUBLE, pbtxt())
    first = seen()
    repo.define("d", DOUBLE, pbtxt())
    assert seen() == first
    repo.define("d", DOUBLE + "\n# more\n", pbtxt())
    assert seen()[0] != first[0]
    assert seen()[1] == first[1]
    repo.define("d", DOUBLE, pbtxt(count=2))
    assert seen() != first
    assert seen()[0] == first[0]


def test_responses_of_a_stream_are_marks(repo: bls.ModelRepository) -> None:
    repo.define("s", STREAM, pbtxt(decoupled=True))
    with bls.profile() as profile:
        assert [value(r) for r in repo.stream("s", ints(3))] == [0, 1, 2]
    session = check(profile.record)
    span = only(session, "s")
    assert (span.kind, span.responses, span.bytes_out, span.state) == ("stream", 3, 12, "ok")
    assert [m.kind for m in span.marks] == ["response", "response", "response", "final"]
    assert span.marks[-1].ns == span.ended


def test_async_streams_overlap_on_one_instance(repo: bls.ModelRepository) -> None:
    repo.define("s", model("""
async def execute(self, requests):
    for r in requests:
        gates.count("in")
        while gates.counts["in"] < 2:
            await asyncio.sleep(0)
        sender = r.get_response_sender()
        sender.send(answer(1))
        sender.send(flags=FINAL)
"""), pbtxt(decoupled=True))  # fmt: skip

    async def both() -> None:
        async def one() -> None:
            assert [value(r) async for r in repo.stream_async("s", ints(1))] == [1]

        await asyncio.gather(one(), one())

    with bls.profile() as profile:
        asyncio.run(both())
    check(profile.record)
    first, second = profile.record.spans
    assert first.instance == second.instance
    assert max(first.started, second.started) < min(first.ended, second.ended)
    assert first.released == first.started  # free for the next at once


def test_coroutines_behind_one_that_blocks_have_not_begun(repo: bls.ModelRepository) -> None:
    repo.define("s", model("""
async def execute(self, requests):
    gates.pass_gate("all sent")
    for r in requests:
        r.get_response_sender().send(answer(1), flags=FINAL)
"""), pbtxt(decoupled=True))  # fmt: skip

    async def several() -> None:
        async def one() -> None:
            assert [value(r) async for r in repo.stream_async("s", ints(1))] == [1]

        async def opener() -> None:
            gates.open_gate("all sent")

        await asyncio.gather(*(one() for _ in range(4)), opener())

    with bls.profile() as profile:
        asyncio.run(several())
    check(profile.record)
    spans = sorted(profile.record.spans, key=lambda s: s.started)
    assert len(spans) == 4
    for before, after in itertools.pairwise(spans):
        assert before.ended <= after.started
        assert after.queued <= before.ended  # and it was there: it had to wait for its turn


@pytest.mark.parametrize("how", [
    "threading.Thread(target=self.answer_later, args=(requests[0].get_response_sender(), 1))",
    "threading.Thread(target=lambda requests=requests: self.answer_later(requests[0].get_response_sender(), 1))",
])  # fmt: skip
def test_a_bare_thread_works_for_the_request_whose_sender_it_has(repo: bls.ModelRepository, how: str) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("t", model(f"""
def execute(self, requests):
    {how}.start()

def answer_later(self, sender, n):
    import weakref
    temporary = np.zeros(5000)
    seen = weakref.ref(temporary)
    value_of(ask("d", n).exec())
    del temporary
    gates.shared["let go"] = seen() is None
    gates.count("threads")
    gates.pass_gate("both")
    sender.send(answer(value_of(ask("d", n).exec())))
    sender.send(flags=FINAL)
"""), pbtxt(decoupled=True))  # fmt: skip
    with bls.profile() as profile:
        first = Caller(lambda: [value(r) for r in repo.stream("t", ints(1))])
        second = Caller(lambda: [value(r) for r in repo.stream("t", ints(1))])
        until(lambda: gates.counts["threads"] == 2)
        gates.open_gate("both")
        assert first.result() == second.result() == [2]
    check(profile.record)
    parents = Counter(s.parent for s in profile.record.spans if s.model == "d")
    assert parents == {s.id: 2 for s in profile.record.spans if s.model == "t"}
    assert gates.shared["let go"]  # looking for whom a thread works keeps nothing of it alive


def test_a_thread_with_nothing_in_hand_works_for_what_its_instance_serves(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("t", model("""
def execute(self, requests):
    thread = threading.Thread(target=self.work)
    thread.start()
    thread.join()
    return [answer(self.found)]

def work(self):
    self.found = value_of(ask("d", 5).exec())
"""), pbtxt(count=2))  # fmt: skip
    with bls.profile() as profile:
        assert infer(repo, "t") == 10
    check(profile.record)
    assert tree(profile.record) == [("", "t", "sync"), ("t", "d", "sync")]


ZERO = model("""
def execute(self, requests):
    return [pb.InferenceResponse([pb.Tensor("Y", np.zeros((1, 1), np.int32))]) for r in requests]
""")
BATCHED = """
max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 100000 preferred_batch_size: [ 3 ] }
input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


def test_requests_of_a_batch_share_it_and_its_callees(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("b", model("""
def execute(self, requests):
    value_of(ask("d", 1).exec())
    return [pb.InferenceResponse([pb.Tensor("Y", np.zeros((1, 1), np.int32))]) for r in requests]
"""), BATCHED)  # fmt: skip

    async def three() -> None:
        row = {"X": np.zeros((1, 1), np.int32)}
        found = await asyncio.gather(*[repo.infer_async("b", row) for _ in range(3)])
        assert not any(r.error for r in found)

    with bls.profile() as profile:
        asyncio.run(three())
    session = check(profile.record)
    batch = [s for s in session.spans if s.model == "b"]
    assert len(batch) == 3
    assert {s.batch for s in batch} == {1}
    assert len({(s.started, s.inferred, s.instance) for s in batch}) == 1
    assert only(session, "d").parent == batch[0].id
    assert [m.executions for m in session.statistics().models if m.name == "b"] == [1]


def test_a_response_comes_after_the_end_of_execute(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.define("b", ZERO, BATCHED)
    seen, run = threading.Event(), BatchRunner.run

    def late(*args: Any) -> Any:
        again = run(*args)
        assert seen.wait(LIMIT)
        return again

    monkeypatch.setattr(BatchRunner, "run", late)

    with bls.profile() as profile:
        asyncio.run(repo.infer_async("b", {"X": np.zeros((1, 1), np.int32)}))
    seen.set()
    span = only(profile.record, "b")
    assert span.started < span.inferred < span.ended


def test_steps_of_an_ensemble_are_its_children(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("d2", DOUBLE, pbtxt())
    repo.define("e", "", chain("d", "d2"))

    async def later() -> None:
        assert value(await repo.infer_async("e", ints(3))) == 12

    with bls.profile() as profile:
        assert infer(repo, "e", 3) == 12
        asyncio.run(later())
    session = check(profile.record)
    assert tree(session)[0] == ("", "e", "sync")
    assert Counter(tree(session)) == {
        ("", "e", "sync"): 1,
        ("", "e", "async"): 1,
        ("e", "d", "ensemble"): 2,
        ("e", "d2", "ensemble"): 2,
    }
    assert {s.instance for s in session.spans if s.model == "e"} == {"e"}
    assert all(s.state == "ok" for s in session.spans)


def test_answers_of_the_cache_never_ran(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt() + "\nresponse_cache { enable: true }")

    async def later() -> None:
        assert value(await repo.infer_async("d", ints(3))) == 6

    with bls.profile() as profile:
        assert infer(repo, "d", 3) == 6
        assert infer(repo, "d", 3) == 6
        asyncio.run(later())
    session = check(profile.record)
    assert [(s.cached, s.ran, s.state, s.responses) for s in session.spans] == [
        (False, True, "ok", 1),
        (True, False, "ok", 1),
        (True, False, "ok", 1),
    ]
    assert session.statistics().cached == 2


def test_refused_requests(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("s", STREAM, pbtxt(decoupled=True))

    async def later() -> None:
        assert (await repo.infer_async("nobody", ints(1))).error is not None

    with bls.profile() as profile:
        assert "is not found" in message(repo.infer("nobody", ints(1)))
        assert repo.infer("d", {"X": np.zeros(1, np.float32)}).error is not None
        assert repo.infer("s", ints(1)).error is not None
        asyncio.run(later())
    session = check(profile.record)
    assert [(s.model, s.version, s.kind, s.state, s.ran) for s in session.spans] == [
        ("nobody", 0, "sync", "error", False),
        ("d", 1, "sync", "error", False),
        ("s", 1, "sync", "error", False),
        ("nobody", 0, "async", "error", False),
    ]
    assert [m.name for m in session.models] == ["d", "s"]


FAILS = model("""
def execute(self, requests):
    raise ValueError("no good")
""")
ANSWERS_ERROR = model("""
def execute(self, requests):
    return [pb.InferenceResponse([], pb.TritonError("sorry")) for r in requests]
""")
RETURNS_NONE = model("""
def execute(self, requests):
    return [None for r in requests]
""")
SENDS = model("""
def execute(self, requests):
    for r in requests:
        r.get_response_sender().send(answer(7), FINAL)
    return None
""")


@pytest.mark.parametrize(
    ("source", "state"),
    [(FAILS, "error"), (ANSWERS_ERROR, "error"), (RETURNS_NONE, "error"), (SENDS, "ok")],
    ids=["raises", "error response", "none", "sender"],
)
def test_the_state_of_a_span_is_that_of_its_response(repo: bls.ModelRepository, source: str, state: str) -> None:
    repo.define("m", source, pbtxt())

    async def later() -> None:
        await repo.infer_async("m", ints(1))

    with bls.profile() as profile:
        repo.infer("m", ints(1))
        asyncio.run(later())
    session = check(profile.record)
    assert [(s.state, s.ran, s.responses) for s in session.spans] == [(state, True, int(state == "ok"))] * 2


def test_requests_in_the_queue_are_served_in_turn_although_cancelled(repo: bls.ModelRepository) -> None:
    repo.define("w", WAITS, pbtxt())

    async def cancelled() -> None:
        task = asyncio.ensure_future(repo.infer_async("w", ints(1)))
        while not queued(repo, "w"):  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with bls.profile() as profile:
        first = Caller(infer, repo, "w")
        gates.pass_gate("in")
        asyncio.run(cancelled())
        second = Caller(infer, repo, "w")
        until(lambda: queued(repo, "w") == 2)
        gates.open_gate("go")
        assert (first.result(), second.result()) == (1, 1)
    session = check(profile.record)
    one, gone, other = session.spans
    assert [span.state for span in session.spans] == ["ok", "cancelled", "ok"]
    assert other.queue > 0
    assert one.released <= other.started
    assert gone.ran
    assert [m.kind for m in gone.marks] == ["cancelled"]
    assert gone.queue > 0
