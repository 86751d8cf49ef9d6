from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from bls_notebook.engine.errors import execute_failed
from bls_notebook.profiling.analysis.span_tree import lock_waits
from bls_notebook.profiling.analysis.verdict import CAUSES
from bls_notebook.profiling.records.spans import CodeStack, LineSamples, LockHeld, Mark, Source
from bls_notebook.profiling.records.verdicts import Verdict
from bls_notebook.profiling.session import ModelSeen, Session, Span
from bls_notebook.profiling.timeline.picture import timeline_svg
from tests.profiling.simulated import Model, Step, session

MS = 1_000_000
TWO = {"a": Model([10 * MS], 2)}
PIPELINE = {"a": Model([MS, "b", "c", MS], 4), "b": Model([5 * MS]), "c": Model([7 * MS], 2)}

SHARED = {"decoupled": True, "is_async": True}


def of(record: Session, cpu: float = 0.1) -> Verdict:
    """The verdict on a session of a process that used so many processors' time, of four."""
    found = replace(record, cpu=round(cpu * record.wall), cores=4).verdict()
    assert found.cause in CAUSES
    return found


def batching(record: Session, name: str, most: int) -> Session:
    """The session with a dynamic batcher of one model."""
    batcher = {"scheduler": "dynamic_batching", "max_batch_size": most}
    return replace(record, models=tuple(replace(m, **batcher) if m.name == name else m for m in record.models))


def test_requests_one_after_the_other() -> None:
    found = of(session(TWO, *"aaaa"))
    assert (found.cause, found.model) == ("in_turn", "a")
    assert found.sentence.startswith("4 requests took 40 ms, one after the other")
    assert "with `instance_group.count` 4 for `a`: predicted 4.0 times as fast" in found.advice


def test_the_gain_of_a_batcher_that_got_requests_in_turn_is_unknown() -> None:
    found = of(batching(session(TWO, *"aaaa"), "a", 2))
    assert (found.cause, found.count, found.predicted) == ("in_turn", 0, 0.0)
    assert "; the batcher of `a` can then serve several by one execute. `bls.compare(" in found.advice


def test_a_batcher_that_cannot_get_two_requests_at_once_or_together_hides_no_gain() -> None:
    one_caller = {"a": Model([MS, "b"], 1), "b": Model([10 * MS])}
    for record in (batching(session(TWO, *"aaaa"), "a", 1), batching(session(one_caller, *"aaaa"), "b", 8)):
        found = of(record)
        assert "batcher" not in found.advice
        assert "with `instance_group.count` 4 for `a`" in found.advice


def test_requests_that_queue() -> None:
    found = of(session(TWO, tuple("aaaaaaaa")))
    assert (found.cause, found.model, found.count) == ("queue", "a", 4)
    assert "6 of them queued on the 2 instances of `a` for 75% of the time" in found.sentence
    assert "2.0 times as fast as if sent one after the other" in found.sentence
    assert found.advice.endswith("predicted 2.0 times as fast as now.")


def test_requests_of_one_sequence_are_not_sent_together() -> None:
    record = session(TWO, *"aaaa")
    models = tuple(replace(model, scheduler="sequence_batching") for model in record.models)
    for ids, cause in ((7, 7, 7, 7), "chain"), ((7, 7, 8, 8), "in_turn"):
        spans = tuple(replace(span, correlation_id=i) for span, i in zip(record.spans, ids, strict=True))
        found = of(replace(record, models=models, spans=spans))
        assert (found.cause, round(found.predicted)) == (cause, 0 if cause == "chain" else 2)
    record = session({"a": Model([10 * MS])}, tuple("aaaa"))
    models = tuple(replace(model, scheduler="sequence_batching") for model in record.models)
    together = of(replace(record, models=models, spans=tuple(replace(s, correlation_id=7) for s in record.spans)))
    assert (together.cause, together.count) == ("chain", 0)
    assert "More instances bring nothing: they took as long as if sent one after the other" in together.sentence
    assert of(record).count == 4


def test_code_that_gathers_a_batch_imports_asyncio_if_the_file_does_not() -> None:
    text = "class TritonPythonModel:\n  async def execute(self, requests):\n    return [await f(r) for r in requests]\n"
    for head, words in ("", "async_exec, and `import asyncio`: pred"), ("import asyncio\n", "async_exec: pred"):
        source = Source("model.py", head + text, "a", 1, execute=2 + bool(head))
        record = session({"a": Model(["b"] * 4, batch=4), "b": Model([10 * MS], 4)}, tuple("aaaa"))
        assert words in of(replace(record, sources=(source,))).advice


def test_threads_of_a_library_make_no_request_slower_alone() -> None:
    for step, known in ("aaaa", 0), ("aaaa", 1), ((tuple("aaaa"),), 1):  # threads of workers are not known
        record = session({"a": Model([10 * MS], 1)}, *step)
        found = replace(record, cpu=2 * record.wall, beside=known * record.wall, cores=2).verdict()
        assert (found.cause, round(found.speedup, 1)) == ("cores", 1.0)


def test_groups_of_requests_are_only_partly_under_way_together() -> None:
    found = of(session(TWO, tuple("aaaa"), MS, tuple("aaaa")))
    assert found.sentence.startswith("8 requests took 40 ms, partly under way together. ")
    pairs = of(session({"a": Model([10 * MS], 1)}, *(tuple("aa"), MS) * 8))
    assert "Nothing queued" not in pairs.sentence
    assert "at best" not in pairs.sentence
    # With four instances, the second group would be sent earlier: 10 and 20 ms instead of 30 and 50.
    later = of(session({"a": Model([10 * MS], 1)}, tuple("aaa"), MS, tuple("aaaaa")))
    assert later.advice.endswith("for `a`: predicted 2.7 times as fast as now.")


def test_waits_for_a_batch_to_fill_leave_it_open_how_long_requests_take_alone() -> None:
    record = batching(session({"a": Model([10 * MS], batch=8)}, tuple("aaa"), MS, tuple("aaaaa")), "a", 8)
    late = []
    for i, span in enumerate(record.spans):
        before, after = (0, 90 * MS) if i < 3 else (90 * MS, 180 * MS)
        sent = replace(span, sent=span.sent + before, queued=span.queued + before, started=span.started + after)
        late.append(replace(sent, inferred=span.inferred + after, ended=span.ended + after))
    found = of(replace(record, spans=tuple(late), wall=record.wall + 180 * MS))
    assert (found.cause, found.model) == ("filling", "a")
    assert found.sentence.endswith("For 90% of the time, requests waited for batches of `a` to fill.")


def test_requests_that_are_as_fast_as_they_can_be_and_one_alone() -> None:
    assert of(session({"a": Model([10 * MS], 8)}, tuple("aaaaaaaa"))).cause == "helped"
    found = of(session(PIPELINE, "a"))
    assert found.cause == "one"
    assert "The time was spent in `c` (50%), `b` (36%)" in found.sentence
    assert "`a` waits for `b`, then for `c`: `bls.overlap('a', inputs)` finds out" in found.advice


def test_a_saving_is_compared_with_the_time_in_execute_not_in_the_queue() -> None:
    found = of(session({"a": Model(["b", "c"]), "b": Model([10 * MS]), "c": Model([30 * MS])}, tuple("aaaaaaaa")))
    assert "may save up to 10 ms of each `execute`" in found.advice


def test_the_saving_is_of_a_typical_request_not_of_a_slow_first_one() -> None:
    record = session(PIPELINE | {"b": Model([25 * MS])}, *"aaa")
    _, *later = (span for span in record.spans if span.model == "b")
    shorter = {span.id: replace(span, ended=span.sent + 6 * MS) for span in later}
    record = replace(record, spans=tuple(shorter.get(span.id, span) for span in record.spans))
    assert "running them together may save up to 6 ms of each `execute`." in of(record).advice


def test_calls_that_could_run_together_need_instances_and_belong_to_different_sequences() -> None:
    record = session({"a": Model(["b"] * 3), "b": Model([10 * MS])}, "a")
    assert "may save up to 20 ms, with 3 instances of `b`." in of(record).advice
    assert of(batching(record, "b", 8)).advice.endswith("may save up to 20 ms.")
    spans = tuple(replace(span, correlation_id=7 if span.parent else 0) for span in record.spans)
    assert "running them together" not in of(replace(record, spans=spans)).advice


@pytest.mark.parametrize(
    ("steps", "instances", "traits", "cause", "words"),
    [
        ([("b",) * 4], 1, {}, "queue", "One request took 40 ms. 3 calls queued on the one instance of `b` for 75%"),
        ([("b",) * 4], 4, {}, "one", "The time was spent in `b`"),
        ([("b",) * 4], 1, {"b": SHARED}, "blocking", "One request took 40 ms. The coroutine of `b` blocks its event"),
        ([("b",) * 4], 4, {"b": SHARED}, "one", "The time was spent in `b`"),
        (["b"] * 4, 1, {"b": SHARED}, "one", "The time was spent in `b`"),  # in turn: nothing shows a blocked loop
        (["b"] * 4, 4, {"a": {"is_async": True}}, "sync_exec", "One request took 40 ms. `a` calls exec, which blocks"),
        (["b"] * 4, 4, {}, "one", "The time was spent in `b`"),
    ],
)
def test_the_calls_of_one_request(
    steps: list[Step], instances: int, traits: dict[str, dict[str, Any]], cause: str, words: str
) -> None:
    record = session({"a": Model(steps), "b": Model([10 * MS], instances)}, "a")
    found = of(replace(record, models=tuple(replace(m, **traits.get(m.name, {})) for m in record.models)))
    assert (found.cause, found.model) == (cause, "a" if cause in ("one", "sync_exec") else "b")
    assert words in found.sentence
    assert (found.count == 4) == (cause == "queue")


@pytest.mark.parametrize(
    ("changed", "source", "cause"),
    [
        ({}, None, "sync_exec"),
        ({"thread": 7}, None, "one"),  # the callee ran on the thread that called it: another than the event loop's
        ({"thread": 7, "started": 1}, None, "sync_exec"),  # it queued, so that its own thread ran it
        ({"thread": 7, "started": 1}, "await asyncio.to_thread(request.exec)", "one"),
        ({"thread": 7, "started": 1, "source": 0}, "", "one"),  # code without a text sent it: a thread pool's
    ],
)
def test_exec_on_another_thread_does_not_block_the_loop(
    changed: dict[str, int], source: str | None, cause: str
) -> None:
    record = session({"a": Model(["b"] * 4), "b": Model([10 * MS], 4)}, "a")
    calls = [replace(span, **{"source": int(source is not None)} | changed) for span in record.spans if span.parent]
    calls = [replace(call, started=call.queued + changed.get("started", 0)) for call in calls]
    record = replace(record, spans=(*(s for s in record.spans if not s.parent), *calls))
    record = replace(record, models=tuple(replace(m, is_async=m.name == "a") for m in record.models))
    assert of(replace(record, sources=() if source is None else (Source("model.py", source),))).cause == cause


def test_a_wait_for_a_batcher_or_for_processors_does_not_blame_the_coroutine() -> None:
    record = session({"a": Model([("b",) * 4]), "b": Model([10 * MS])}, "a")
    shared = replace(record, models=tuple(replace(m, **SHARED if m.name == "b" else {}) for m in record.models))
    assert of(shared).cause == "blocking"
    busy = of(replace(shared, cpu_waited=30 * MS))
    assert busy.cause != "blocking"
    assert busy.advice.startswith("Perhaps the coroutine of `b` blocks its event loop")
    assert "Perhaps the coroutine" not in of(shared).advice
    batched = tuple(replace(m, scheduler="dynamic" if m.name == "b" else m.scheduler) for m in shared.models)
    assert of(replace(shared, models=batched)).cause != "blocking"


def test_a_sentence_names_few_callees() -> None:
    names = [f"b{i}" for i in range(40)]
    found = of(session({"a": Model(names), **{name: Model([MS]) for name in names}}, "a"))
    assert "`b3`, then for 36 other models" in found.advice
    assert "`b4`" not in found.advice


def test_many_short_calls_could_be_one_request() -> None:
    advice = {n: of(session({"a": Model(["b"] * n), "b": Model([10_000])}, "a")).advice for n in (2, 60)}
    assert advice[60].startswith("`a` sends 60 requests to `b`, one after the other, at 10 µs each")
    assert "If the calls do not need each other's responses" in advice[60]
    assert "running them together" not in advice[2]  # sending them costs as much
    plain = session({"a": Model(["b"] * 60), "b": Model([10_000])}, "a")
    late = plain.spans[30].ended  # another program has the processor for a while, in a call
    times = ("sent", "queued", "started", "inferred", "ended")
    spans = (replace(s, **{t: getattr(s, t) + 5 * MS * (getattr(s, t) >= late) for t in times}) for s in plain.spans)
    assert of(replace(plain, spans=tuple(spans), wall=plain.wall + 5 * MS)).advice == advice[60]
    beside_slow = session({"a": Model([*["b"] * 10, "c", "c"]), "b": Model([10_000]), "c": Model([9 * MS])}, "a")
    assert "10 calls of `b`, then for 2 calls of `c`" in of(beside_slow).advice
    slow_cell = session({"a": Model(["b"] * 60), "b": Model([10_000])}, 20 * MS, "a")
    assert (of(slow_cell).cause, of(slow_cell).advice) == ("notebook", advice[60])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("asyncio.as_completed(runs)", True),
        ("asyncio.gather(*runs)", False),
        ("asyncio.gather(*runs)  # not asyncio.as_completed(runs)", False),
    ],
)
def test_responses_in_the_order_of_their_arrival(code: str, said: bool) -> None:
    record = session({"a": Model([("b", "b")]), "b": Model([10 * MS], 2)}, "a")
    first, *calls = (replace(span, source=1, line=2) for span in record.spans)
    late = replace(calls[0], ended=record.wall, inferred=record.wall)
    record = replace(record, spans=(first, late, calls[1]), sources=(Source("model.py", f"a\nawait {code}\n"),))
    assert ("uses asyncio.as_completed (line 2). If `a` uses each response as it arrives" in of(record).advice) == said
    in_order = replace(record, spans=(first, *calls))
    assert "arrive" not in of(in_order).advice


def test_work_that_nobody_waits_for() -> None:
    record = session({"a": Model(["b"]), "b": Model([10 * MS])}, "a")
    first, call = record.spans
    assert "nobody waited" not in of(record).advice
    given_up = replace(call, marks=(Mark(call.ended - 4 * MS, "abandoned"),))
    words = of(replace(record, spans=(first, given_up))).advice
    assert "`b` worked for 4 ms although nobody waited for its response any more" in words
    assert "`a` cancels no request" in words
    assert "b (nobody waits)" in timeline_svg(replace(record, spans=(first, given_up)))


@pytest.mark.parametrize(
    ("calls", "failing", "raised", "which"),
    [
        (1, 1, "a", "its call"),
        (2, 1, "a", "1 of its 2 calls"),
        (4, 1, "a", "1 of its 4 calls"),  # the exception may keep a batch from sending its other calls
        (2, 2, "a", ""),
        (2, 1, "", ""),
        (2, 1, "b", ""),  # of b: the model passed an error on
    ],
)
def test_an_exception_fails_the_whole_batch(calls: int, failing: int, raised: str, which: str) -> None:
    record = session({"a": Model(["b"] * calls, batch=2), "b": Model([MS])}, ("a", "a"))
    instances = {span.model: span.instance for span in record.spans}
    error = execute_failed(instances[raised], "no") if raised else "no"
    bad = [span.id for span in record.spans if span.parent][-failing:]
    errors = {span.id: "no" if span.parent else error for span in record.spans if not span.parent or span.id in bad}
    spans = (
        replace(span, state="error", error=errors[span.id]) if span.id in errors else span for span in record.spans
    )
    found = of(replace(record, spans=tuple(spans)))
    assert found.sentence.startswith("2 of 2 requests to `a` failed")
    spread = f"`a` ran 2 requests as one batch, and {which} failed (of `b`)" if which else ""
    assert found.advice[: len(spread) or None] == spread


def _with_errors(record: Session, *failed: tuple[str, str]) -> Session:
    """Make the last requests to these models fail with these errors."""
    last = {span.model: span.id for span in record.spans}
    errors = {last[model]: error for model, error in failed}
    spans = (replace(s, state="error", error=errors[s.id]) if s.id in errors else s for s in record.spans)
    return replace(record, spans=tuple(spans))


def test_a_verdict_begins_with_an_error_that_the_caller_did_not_pass_on() -> None:
    quiz = {"a": Model(["b", "c"]), "b": Model([MS]), "c": Model([MS])}
    plain = session(quiz, *"aaa")
    found = of(_with_errors(plain, ("b", "no b\nTraceback")))
    lost = "`a` answered without an error although a call of `b` failed: no b. "
    assert found == replace(of(plain), sentence=lost + of(plain).sentence, advice=found.advice)
    assert found.advice.startswith("Unless `a` replaces the failed response on purpose, it ignores the error: check ")
    assert found.advice.endswith(of(plain).advice)
    assert (
        "although a call of `b` and a call of `c` failed: no b."
        in of(_with_errors(plain, ("b", "no b"), ("c", ""))).sentence
    )
    passed_on = of(_with_errors(plain, ("b", "no b"), ("a", "no b")))
    assert (passed_on.sentence, passed_on.advice) == ("1 of 3 requests to `a` failed: no b", "")
    chain = session({"a": Model(["b"]), "b": Model(["c"]), "c": Model([MS])}, "a")
    assert of(_with_errors(chain, ("b", "no"), ("c", "no"))).sentence.startswith("`a` answered without an error")
    kept = of(_with_errors(chain, ("a", "later"), ("c", "no"))).sentence  # and it may be the reason for the failure
    assert (
        kept == "`b` answered without an error although a call of `c` failed: no. 1 of 1 requests to `a` failed: later"
    )


def test_the_cells_own_code_failures_and_nothing_at_all() -> None:
    assert of(session(TWO, 100 * MS, "a")).cause == "notebook"
    record = session(TWO, "a")
    failed = replace(record, spans=tuple(replace(s, state="error", error="no\nwhy") for s in record.spans))
    assert of(failed).sentence == "1 of 1 requests to `a` failed: no"
    assert Session().verdict() == Verdict("", "")


@pytest.mark.parametrize(("waits", "cause"), [(False, "blocking"), (True, "in_turn")])
def test_samples_show_that_a_coroutine_blocks_its_loop_before_requests_wait(waits: bool, cause: str) -> None:
    record = session({"a": Model([10 * MS])}, *"aaa")
    models = tuple(replace(model, **SHARED) for model in record.models)
    samples = tuple(LineSamples(span.id, 1, 3, 10 * MS, waits) for span in record.spans)
    found = of(replace(record, models=models, samples=samples, stacks=(CodeStack(),)))
    assert found.cause == cause
    assert ("sent together, its requests would take turns, too" in found.sentence) == (not waits)


def test_a_speedup_beside_waits_for_processors_is_an_estimate() -> None:
    record = session({"a": Model([10 * MS], instances=4)}, tuple("aaaa"))
    sure = of(record)
    crowded = of(replace(record, cpu_waited=20 * MS, others=0))
    assert (sure.cause, crowded.cause) == ("helped", "helped")
    assert (sure.speedup, crowded.speedup) == pytest.approx((4, 2), rel=0.01)
    assert (sure.note, "The speedup is an estimate" in crowded.note) == ("", True)


def test_pure_python_busy_processors_and_little_work() -> None:
    record = session(TWO, tuple("aaaa"))
    held = replace(record, lock=(LockHeld(0, record.wall),))
    assert of(held, 1.0).cause == "gil"
    assert of(held, 1.6).cause != "gil"  # threads that compute at the same time do not take turns
    assert of(replace(record, lock=(LockHeld(0, round(0.4 * record.wall)),)), 1.0).cause != "gil"
    several = LockHeld(0, record.wall, cpu=2 * record.wall)
    assert of(replace(record, lock=(several,)), 1.0).cause != "gil", "threads computed without the GIL meanwhile"
    assert of(record, 3.9).cause == "cores"
    found = of(session({"a": Model([10_000])}, *"aaaa"))
    assert found.cause == "little"
    assert found.sentence.endswith("of which sending it is a large part.")  # no gain of sending them together
    assert of(session({"a": Model([100_000])}, tuple("aaaaaaaa")), 1.0).cause == "little"  # each waits for the others
    in_turn = session(TWO, *"aaaa")
    found = of(replace(in_turn, lock=(LockHeld(0, in_turn.wall),)), 1.0)
    assert found.sentence == (
        "4 requests took 40 ms, one after the other. Python code of `a` holds the interpreter's lock (GIL) for 100% of "
        "the time: together they would take as long."
    )
    assert of(replace(in_turn, held=in_turn.wall), 1.0).sentence == found.sentence, "too briefly for intervals"


@pytest.mark.parametrize("step", [10 * MS, 11 * MS, 12 * MS])
def test_instances_that_wait_for_each_other_end_one_after_the_other(step: int) -> None:
    names = [f"a_0_{i}" for i in range(4)]
    spans = tuple(Span(i + 1, "a", instance=names[i], ended=step * (i + 1), inferred=step * (i + 1)) for i in range(4))
    record = Session(spans, (ModelSeen("a", instances=tuple(names)),), wall=4 * step)
    found = of(record)
    assert (found.cause, found.model) == ("contention", "a")
    assert "The 4 instances of `a` wait for each other: beside others" in found.sentence
    even = tuple(replace(s, ended=4 * step, inferred=4 * step) for s in spans)
    assert of(replace(record, spans=even)).cause != "contention"
    assert of(replace(record, wall=40 * step, spans=(*spans, Span(5, "b", ended=40 * step)))).cause != "contention"


def test_requests_of_unequal_times_beside_each_other_are_no_proof_of_a_speedup() -> None:
    """They may wait for the threads of a pool: how long each takes alone is not known."""
    ends = [30 * MS, 30 * MS, 60 * MS, 60 * MS]
    span = Span(1, "a", kind="stream", instance="a_0", inferred=1, released=1)
    spans = tuple(replace(span, id=number, ended=end) for number, end in enumerate(ends, 1))
    found = of(Session(spans, (ModelSeen("a", instances=("a_0",), decoupled=True),), wall=60 * MS))
    assert (found.cause, "took 30 ms to 60 ms" in found.sentence) == ("unequal", True), found.sentence
    assert "times as fast" not in found.sentence
    first = replace(span, id=9, model="b", ended=MS)
    found = of(Session((first, *spans), (ModelSeen("a", instances=("a_0",), decoupled=True),), wall=60 * MS))
    assert (found.cause, found.advice) == ("unequal", "`bls.compare('a', inputs)` settles it.")
    # They queue, too, but more instances may only wait for each other.
    late = tuple(
        replace(s, id=s.id + 4, queued=0, started=s.ended, ended=2 * s.ended, inferred=2 * s.ended) for s in spans[::2]
    )
    queues = [
        replace(s, kind="sync", instance=f"a_{s.id % 2}", inferred=s.ended, released=0) for s in (*spans[::2], *late)
    ]
    two = Session(tuple(queues), (ModelSeen("a", instances=("a_0", "a_1")),), wall=120 * MS)
    assert of(two).cause == "unequal"
    assert of(replace(two, models=(ModelSeen("a", instances=("a_0",)),))).cause == "queue"


def test_a_busy_machine_leaves_the_gain_of_a_cell_unknown() -> None:
    record = session({"a": Model([40 * MS], 4)}, tuple("aaaa"))
    record = replace(record, cpu=record.wall, cores=2, cpu_waited=2 * record.wall)
    assert replace(record, others=1 * MS).verdict().cause != "busy"  # they waited for threads of their own process
    for found in record.verdict(), replace(session(TWO, *"aaaa"), cpu=40 * MS, cores=2, cpu_waited=40 * MS).verdict():
        assert (found.cause, "times as fast" in found.sentence) == ("busy", False), found.sentence
        assert found.advice.startswith("Measure again on a quiet machine.")
        assert not re.search(r"[1-9]\d\d% of the time", found.sentence.replace("100%", ""))


def test_waits_for_the_lock_are_of_those_that_took_turns_or_could_have_begun() -> None:
    models = (ModelSeen("a", instances=("a_0", "a_1")),)
    one = Span(1, "a", instance="a_0", thread=11, ended=20 * MS, inferred=20 * MS)
    two = replace(one, id=2, instance="a_1", thread=12)
    late = replace(one, id=3, thread=13, queued=21 * MS, started=26 * MS, inferred=30 * MS, ended=30 * MS)
    held = LockHeld(5 * MS, 25 * MS, (11, 12))
    record = Session((one, two, late), models, wall=30 * MS, lock=(held,))
    found = {wait.span: wait for wait in lock_waits(record)}
    assert [list(found[i].pieces) for i in (1, 2)] == [[(5 * MS, 20 * MS)]] * 2
    assert (list(found[3].pieces), found[3].queued) == ([(21 * MS, 25 * MS)], True)
    # Without a second one at work, and where no instance was idle, it was something else.
    assert not lock_waits(replace(record, spans=(one,), lock=(replace(held, threads=(11,)),)))
    first = replace(one, queued=20 * MS, started=20 * MS, ended=30 * MS)
    busy = first, replace(first, id=2, instance="a_1", thread=12)
    assert not [wait for wait in lock_waits(replace(record, spans=(*busy, late))) if wait.queued]
