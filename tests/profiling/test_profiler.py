from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.profiling.own_code import awaited_tasks
from bls_notebook.profiling.span_recorder import running_log
from tests.engine import gates
from tests.engine.harness import Caller, idle, infer, ints, queued, until
from tests.engine.sources import DOUBLE, model, pbtxt
from tests.engine.span_checks import STREAM, WAITS, check, tree


def test_unanswered_requests_have_open_spans(repo: bls.ModelRepository) -> None:
    repo.define("w", WAITS, pbtxt())
    repo.define("a", WAITS.replace('"in"', '"in a"'), pbtxt())
    callers = []
    with bls.profile() as profile:
        callers.append(Caller(infer, repo, "w"))
        gates.pass_gate("in")
        callers.append(Caller(infer, repo, "w"))
        until(lambda: queued(repo, "w") == 1)
        callers.append(Caller(lambda: asyncio.run(repo.infer_async("a", ints(1)))))
        gates.pass_gate("in a")
        meanwhile = profile.record
        assert profile.running
    gates.open_gate("go")
    for caller in callers:
        caller.result()
    for session in (meanwhile, profile.record):
        check(session)
        assert [(s.model, s.kind, s.ran) for s in session.spans] == [
            ("w", "sync", True), ("w", "sync", False), ("a", "async", True),
        ]  # fmt: skip
        assert {s.state for s in session.spans} == {"open"}
        assert all(s.ended == session.wall for s in session.spans)
        assert session.statistics().unfinished == 3


def test_a_request_from_before_is_not_in_it_and_its_callees_have_no_parent(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("w", model("""
def execute(self, requests):
    gates.open_gate("in")
    gates.pass_gate("go")
    return [answer(value_of(ask("d", 2).exec()))]
"""), pbtxt())  # fmt: skip
    caller = Caller(infer, repo, "w")
    gates.pass_gate("in")
    with bls.profile() as profile:
        gates.open_gate("go")
        assert caller.result() == 4
    check(profile.record)
    assert tree(profile.record) == [("", "d", "sync")]


def test_profiles_nest_and_overlap(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    outer, inner = bls.profile(name="outer"), bls.profile(name="inner")
    with outer:
        infer(repo, "d")
        with inner:
            infer(repo, "d")
        infer(repo, "d")
    third = bls.profile()
    outer2 = bls.profile()
    outer2.__enter__()
    infer(repo, "d")
    third.__enter__()
    infer(repo, "d")
    outer2.__exit__(None, None, None)
    infer(repo, "d")
    third.__exit__(None, None, None)
    assert [len(p.record.spans) for p in (outer, inner, outer2, third)] == [3, 1, 2, 2]
    for profile in (outer, inner, outer2, third):
        check(profile.record)
    assert running_log() is None


def test_requests_beyond_the_limit_are_counted(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("s", STREAM, pbtxt(decoupled=True))
    with bls.profile(limit=3) as profile:
        for _ in range(5):
            infer(repo, "d")
    assert (len(profile.record.spans), profile.record.dropped) == (3, 2)
    with bls.profile(limit=4) as profile:
        list(repo.stream("s", ints(50)))
    (span,) = profile.record.spans
    assert len(span.marks) <= 4
    assert span.responses == 50
    with bls.profile(limit=10) as outer:
        with bls.profile(limit=2) as inner:
            for _ in range(4):
                infer(repo, "d")
        infer(repo, "d")
    assert (len(inner.record.spans), inner.record.dropped) == (2, 2)
    assert (len(outer.record.spans), outer.record.dropped) == (5, 0)


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"limit": True}, {"limit": 1.5}, {"name": 3}])
def test_bad_arguments_get_one_line(arguments: dict[str, object]) -> None:
    with pytest.raises(bls.BLSError, match="profile: ") as caught:
        bls.profile(**arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_profile_is_used_once(repo: bls.ModelRepository) -> None:
    profile = bls.profile()
    assert profile.record.spans == ()
    with profile, pytest.raises(bls.BLSError, match="used already"):
        profile.__enter__()
    with pytest.raises(bls.BLSError, match="used already"):
        profile.__enter__()
    assert running_log() is None


def test_recording_keeps_no_array_alive(repo: bls.ModelRepository) -> None:
    repo.define("d", model("""
def execute(self, requests):
    import weakref
    inputs = requests[0].inputs()[0].as_numpy()
    out = np.zeros(5000, np.int32)
    gates.shared["seen"] = [weakref.ref(inputs), weakref.ref(out)]
    return [pb.InferenceResponse([pb.Tensor("Y", out)])]
"""), pbtxt())  # fmt: skip

    async def later(array: np.ndarray) -> None:
        response = await repo.infer_async("d", {"X": array})
        refs.append(weakref.ref(response["Y"].as_numpy()))

    refs: list[weakref.ref[np.ndarray]] = []
    with bls.profile() as profile:
        response = repo.infer("d", {"X": np.zeros(5000, np.int32)})
        refs += gates.shared["seen"]
        del response
        asyncio.run(later(np.zeros(5000, np.int32)))
        refs += gates.shared["seen"]
        gc.collect()
        until(lambda: all(ref() is None for ref in refs))
    assert [s.bytes_in for s in profile.record.spans] == [20_000] * 2


def test_bytes_of_text_are_those_that_are_sent(repo: bls.ModelRepository) -> None:
    repo.define("t", model("""
def execute(self, requests):
    return [pb.InferenceResponse([pb.Tensor("Y", np.array([b"abc", b""], np.object_))]) for r in requests]
"""), pbtxt(inputs="X:STRING", outputs="Y:STRING"))  # fmt: skip
    with bls.profile() as profile:
        assert repo.infer("t", {"X": np.array([b"12345"], np.object_)}).error is None
    (span,) = profile.record.spans
    assert (span.bytes_in, span.bytes_out) == (4 + 5, 4 + 3 + 4)


def test_ctrl_c_leaves_cancelled_spans(repo: bls.ModelRepository) -> None:
    from tests.engine.harness import press_ctrl_c

    repo.define("w", model("""
def execute(self, requests):
    gates.open_gate("in")
    while not gates.over[0]:
        time.sleep(0.001)
    return [answer(1)]
"""), pbtxt())  # fmt: skip
    presser = Caller(lambda: (gates.pass_gate("in"), press_ctrl_c()))
    with bls.profile() as profile, pytest.raises(KeyboardInterrupt):
        repo.infer("w", ints(1))
    presser.result()
    gates.over[0] = True
    until(lambda: idle(repo, "w") == 1)
    session = profile.record
    check(session)
    assert [(s.state, s.ran) for s in session.spans] == [("cancelled", True)]


def test_the_wait_of_gathered_coroutines() -> None:
    async def main() -> None:
        lock = asyncio.Lock()

        async def locked() -> None:
            async with lock:
                pass

        async def gathers() -> None:
            await asyncio.gather(locked(), asyncio.create_task(locked()))

        await lock.acquire()
        task = asyncio.create_task(gathers())
        for _ in range(4):
            await asyncio.sleep(0)
        paths = list(awaited_tasks(task))
        assert [path[-1].get_coro().__name__ for path in paths] == ["locked", "locked"]  # type: ignore[union-attr]
        assert {path[0] for path in paths} == {task}
        lock.release()
        await task

    asyncio.run(main())


CALLS = "from bls_notebook import mark\n" + model("""
def execute(self, requests):
    def ask():
        return pb.InferenceRequest("", 0, requests[0].inputs(), ["Y"], "d")
    ask().exec()
    mark("between")
    answer = ask().exec()
    return [pb.InferenceResponse(answer.output_tensors())]
""")


def here() -> int:
    """The line from which it is called."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_each_request_knows_the_line_that_sent_it(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("calls", CALLS, pbtxt())
    with bls.profile() as profile:
        infer(repo, "calls")
        line = here() + 1
        asyncio.run(repo.infer_async("d", ints(1)))
    session = profile.record
    outer, *inner, awaited = session.spans
    lines = CALLS.splitlines()
    texts = [session.sources[span.source - 1].text.splitlines()[span.line - 1] for span in inner]
    assert texts == [line for line in lines if "ask().exec()" in line]
    assert [session.sources[span.source - 1].model for span in inner] == ["calls", "calls"]
    executes = {s.model: s.text.splitlines()[s.execute - 1].strip() for s in session.sources if s.execute}
    assert executes == dict.fromkeys(("calls", "d"), "def execute(self, requests):")
    sent = session.sources[outer.source - 1]
    assert "repo.infer(" in sent.text.splitlines()[outer.line - 1]
    assert not any("/" in source.name for source in session.sources)
    assert (sent.name, sent.model) == ("harness.py", "")
    assert (session.sources[awaited.source - 1].name, awaited.line) == (Path(__file__).name, line)
    assert [t.name for t in session.models[0].inputs + session.models[0].outputs] == ["X", "Y"]


def test_lines_can_be_left_out_and_one_profile_wants_them_for_all(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    with bls.profile(lines=False) as plain:
        infer(repo, "d")
        with bls.profile() as within:
            infer(repo, "d")
    assert [span.line > 0 for span in plain.record.spans] == [False, True]
    assert [span.line > 0 for span in within.record.spans] == [True]
    with bls.profile(lines=False) as plain:
        infer(repo, "d")
    assert plain.record.sources == ()


def test_marks_are_where_they_were_made(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    repo.define("calls", CALLS, pbtxt())
    bls.mark("nobody looks")
    with bls.profile() as profile:
        bls.mark("begin")
        infer(repo, "calls")
        thread = threading.Thread(target=bls.mark, args=("x" * 1000,))
        thread.start()
        thread.join()
    bls.mark("too late")
    session = profile.record
    begin, between, long = session.marks
    caller, first, second = session.spans
    assert (begin.name, begin.span) == ("begin", 0)
    assert (between.name, between.span) == ("between", caller.id)
    assert first.ended <= between.ns <= second.sent
    assert long.name == "x" * 200
    with pytest.raises(bls.BLSError, match=r"^mark: got int, expected text such as"):
        bls.mark(3)  # type: ignore[arg-type]


def test_marks_have_room_as_spans_have() -> None:
    with bls.profile(limit=2) as profile:
        for number in range(20):
            bls.mark(str(number))
    assert [mark.name for mark in profile.record.marks] == ["0", "1"]
    assert running_log() is None
