from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

import bls_notebook as bls
from bls_notebook.engine.recording import log as recording
from bls_notebook.profiling.session_builder import Sources
from tests.engine.harness import infer, ints
from tests.engine.sources import DOUBLE, model, pbtxt

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
    assert (session.sources[awaited.source - 1].name, awaited.line) == ("test_profile_lines.py", line)
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
    assert recording.active is None


def test_files_of_the_package_itself_are_no_sources() -> None:
    sources = Sources()
    assert sources.number(bls.ModelRepository.infer.__code__) == 0
    assert sources.number(here.__code__) == 1
