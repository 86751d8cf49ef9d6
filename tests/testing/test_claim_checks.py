from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bls_notebook.checking.records import Finding, Findings, SharedMemory
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.profiling.records.comparison import Comparison, Measured, MeasuredSetting, Verdict
from bls_notebook.profiling.records.spans import Mark
from bls_notebook.profiling.session import Session
from bls_notebook.records.errors import BLSError, ErrorRecord
from bls_notebook.records.responses import ResponseRecord, TensorRecord
from bls_notebook.records.units import quantity
from bls_notebook.testing.claim_checks import FORMS, judge
from tests.lifetimes.samples import ALL
from tests.profiling.simulated import Model, Simulation

FOUR = ("scan",) * 4


def session(instances: int = 1, steps: Any = (FOUR,), **more: Model) -> Session:
    models = {"scan": Model([100], instances), "page": Model([5, FOUR, 5]), **more}
    return Simulation(models, steps).session


def late_threads(instances: int) -> Session:
    """Return four requests sent together, each started only after the one before was done."""
    late = session(4)
    spans = [
        replace(s, started=100 * n + 1, inferred=100 * n + 90, ended=1000, released=1000 if n == 3 else 100 * n + 90)
        for n, s in enumerate(late.spans)
    ]
    models = [replace(m, instances=tuple(map(str, range(instances)))) for m in late.models]
    return replace(late, spans=tuple(spans), models=tuple(models))


def gaps() -> Session:
    """Return four requests at two instances: one instance is free a moment before the other, and begins late."""
    run = session(2)
    times = [(10, 95), (10, 100), (110, 200), (110, 200)]
    spans = [
        replace(span, queued=0, started=start, inferred=end, ended=end, released=end)
        for span, (start, end) in zip(run.spans, times, strict=True)
    ]
    return replace(run, spans=tuple(spans))


def sequences(*steps: tuple[int, int, int]) -> Session:
    """Return requests one after the other: their correlation IDs, flags (START 1, END 2) and callers."""
    run = session(steps=("scan",) * len(steps))
    given = zip(run.spans, steps, strict=True)
    spans = [
        replace(span, correlation_id=number, flags=flags, parent=parent) for span, (number, flags, parent) in given
    ]
    return replace(run, spans=tuple(spans))


@pytest.mark.parametrize(
    ("steps", "complete", "hint"),
    [
        (((7, 1, 1), (8, 3, 2), (7, 0, 1), (7, 2, 1)), 2, ""),
        (((7, 3, 1), (7, 3, 2)), 2, ""),
        (((7, 1, 1), (7, 0, 1)), 0, "1 sequence had no END"),
        (((7, 1, 1), (7, 1, 1), (7, 2, 1)), 0, "A START in the running sequence 7 began it again"),
        (((7, 1, 1), (7, 1, 2), (7, 2, 1), (7, 2, 2)), 0, "Several callers use sequence 7"),
        (((7, 0, 1),), 0, "The first request of sequence 7 had no START"),
        (((0, 3, 1),), 0, "A request had no correlation ID"),
    ],
)
def test_complete_sequences_are_counted(steps: Any, complete: int, hint: str) -> None:
    judgement = judge(sequences(*steps), "sequences == 9 of scan")
    assert judgement.seen == f"sequences of scan: {complete}"
    assert (hint or "Complete") in judgement.hint


def test_a_request_waits_for_a_call_until_it_cancels_it() -> None:
    page, north, south = session(steps=("scan",) * 3).spans
    north = replace(north, parent=page.id, sent=10, started=10, ended=90, marks=(Mark(20, "cancelled"),))
    south = replace(south, parent=page.id, sent=30, started=30, ended=60)
    run = replace(session(), spans=(replace(page, model="page", sent=0, started=0, ended=70), north, south))
    assert judge(run, "waits == 2 of page").seen == "2 waits: scan, then scan"
    assert judge(replace(run, spans=(run.spans[0], replace(north, marks=()), south)), "waits == 1 of page")


def test_a_call_is_late_if_its_caller_was_cancelled_before() -> None:
    average, early, late = session(steps=("scan",) * 3).spans
    average = replace(average, model="average", sent=0, marks=(Mark(20, "cancelled"),))
    spans = (average, replace(early, parent=average.id, sent=10), replace(late, parent=average.id, sent=30))
    judged = judge(replace(session(), spans=spans), "late == 0 of scan")
    assert judged.seen == "late of scan: 1"
    assert "average sent 1 request after its client had left" in judged.hint


def test_a_call_is_abandoned_if_its_await_is_cancelled_or_its_caller_is_answered_first() -> None:
    page, north, south = session(steps=("scan",) * 3).spans
    north = replace(north, parent=page.id, sent=10, ended=60, marks=(Mark(20, "abandoned"),))
    south = replace(south, parent=page.id, sent=10, ended=60)
    run = replace(session(), spans=(replace(page, model="page", sent=0, started=0, ended=70), north, south))
    assert judge(run, "abandoned == 1 of scan")
    assert "ran to its end" in judge(run, "abandoned == 0").hint
    early = replace(run, spans=(replace(run.spans[0], ended=50), *run.spans[1:]))
    assert judge(early, "abandoned == 2")
    whole = replace(run, spans=(run.spans[0], replace(north, marks=()), south))
    assert "Every response was awaited" in judge(whole, "abandoned == 1").hint


def comparison(cause: str = "queue") -> Comparison:
    verdict = Verdict(cause, "They queued.", "Set a count.", "scan")
    setting = MeasuredSetting(0, session(steps=("scan",) * 4), session(4), Measured(4, 400, 200))
    return Comparison("scan", 4, 1, (setting,), verdict)


def answers(device: str = "cpu") -> tuple[ResponseRecord, ...]:
    tensor = TensorRecord("DIGIT", "INT32", (1,), device, 4, "[3]")
    return (ResponseRecord("reader", tensors=(tensor,), seconds=0.02),)


CHECKED = Findings(
    ("reader",),
    (
        Finding("warning", "x", "reader", "it fails", mend="Mend it.", file="model.py", line=3),
        Finding("note", "y", "reader", "no"),
    ),
    (SharedMemory("reader", 2, 18 << 20),),
)
UNKNOWN = replace(CHECKED, memory=(SharedMemory("reader", 2, 18 << 20, known=False),))
FAILED = (ResponseRecord("reader", error=ErrorRecord("blank\ntraceback")),)
OTHER = (ResponseRecord("ink", error=ErrorRecord("dry")),)


@pytest.mark.parametrize(
    ("recorded", "claim", "seen"),
    [
        (session(4), "overlapped 4", "4 requests at work at the same time"),
        (late_threads(4), "overlapped 4 of scan", "4 requests of scan at work at the same time"),
        (session(4), "overlapped 3 of scan", "4 requests of scan at work at the same time"),
        (session(4, ("page",)), "overlapped 4", "4 requests at work at the same time"),
        (session(1, ("page",)), "called scan 4", "4 requests to scan; others: page 1"),
        (session(1), "called scan", "4 requests to scan"),
        (session(1), "requests==4 of scan", "requests of scan: 4"),
        (session(4), "queued < 1 us", "queued: 0.00 µs"),
        (session(4), "moved == 0", "moved: 0"),
        (session(4), "wall <= 1 ms", "wall: 0.10 µs"),
        (comparison(), "verdict == queue", "queue: They queued."),
        (comparison(), "verdict != helped", "queue: They queued."),
        (comparison(), "speedup >= 2", "speedup: 2"),
        (comparison(), "overlapped 4", "4 requests at work at the same time"),  # of its gathered run
        (Lifetimes(), "nothing_left", "nothing left behind"),
        (ALL["leak"](), "nothing_left on gpu:7", "nothing left behind on gpu:7"),
        (ALL["leak"](), "peak < 1 TB", "a peak of"),
        (answers(), "output DIGIT == 3", "DIGIT: [3]"),
        (answers(), "output DIGIT != [ 4 ]", "DIGIT: [3]"),
        (answers("gpu:0 (simulated)"), "device == gpu:0", "DIGIT on gpu:0 (simulated)"),
        (answers(), "errors == 0", "errors: 0"),
        (answers(), "responses == 1", "responses: 1"),
        (answers(), "first < 50 ms", "first: 20.0 ms"),
        (FAILED, "failed saying blank", "blank"),
        (CHECKED, "shm <= 36 MiB", "shm: 36 MiB"),
        (UNKNOWN, "shm > 35 MiB", "shm: 36 MiB or more"),
        (replace(CHECKED, findings=CHECKED.findings[1:]), "findings == 0", "findings: 0"),
    ],
)
def test_a_claim_that_holds_says_what_was_seen_and_has_no_hint(recorded: Any, claim: str, seen: str) -> None:
    judgement = judge(recorded, claim)
    assert judgement
    assert judgement.seen.startswith(seen)
    assert judgement.hint == ""


@pytest.mark.parametrize(
    ("recorded", "claim", "seen", "hint"),
    [
        (session(1), "overlapped 4", "at most 1 request at work", "waited in a queue"),
        (session(4, ("scan",) * 4), "overlapped 4", "at most 1 request at work", "Each request was sent after"),
        (session(2), "overlapped 4 of scan", "at most 2 requests of scan", "waited in a queue"),
        (late_threads(1), "overlapped 4 of scan", "at most 1 request", "waited in a queue"),
        (session(4, (FOUR[:2],)), "overlapped 4", "at most 2 requests", "2 requests in all: send 4"),
        (session(4), "overlapped 2 of resize", "no request of resize was at work", "send 2"),
        # A caller that waits for its callee is not at work beside it.
        (session(1, ("page",)), "overlapped 2", "at most 1 request", "waited in a queue"),
        (
            session(1, ("page",), page=Model(["scan", "scan"])),
            "overlapped 2",
            "at most 1 request",
            "sent after an earlier",
        ),
        (gaps(), "overlapped 3 of scan", "at most 2 requests of scan", "waited in a queue"),
        (session(1, ("page",) * 4), "overlapped 5 of scan", "at most", "flight"),
        (session(1), "wall < 1 ns", "wall: ", "The longest queue is in front of scan: 3 requests waited"),
        (session(1), "queued <= 0 ns of scan", "queued of scan", "The longest queue is in front of scan"),
        (session(1), "executions <= 2 of scan", "executions of scan: 4", "`max_batch_size` of scan is 0"),
        (session(1), "called resize", "0 requests to resize; others: scan 4", "No request to resize"),
        (session(1), "called scan 5", "4 requests to scan", "Send more requests"),
        (session(1), "called scan 3", "4 requests to scan", "Send fewer requests"),
        (comparison(), "verdict == helped", "queue: They queued.", "They queued."),
        (comparison(), "speedup > 2", "speedup: 2", "They queued."),
        (ALL["leak"](), "nothing_left", "", "To free it: "),
        (ALL["leak"](), "peak < 1 kB", "a peak of", "Alive at that moment: "),
        (answers(), "output LABEL == 3", "LABEL: no such output", "Its outputs are DIGIT."),
        (answers() + OTHER, "output INK == 3", "request failed", "The model answered with an error: dry"),
        (FAILED, "output DIGIT == 3", "request failed", "The model answered with an error: blank"),
        (answers(), "device == gpu:0", "DIGIT on cpu", "preferred_memory"),
        (FAILED, "device == cpu", "no output tensors", "preferred_memory"),
        (FAILED, "errors == 0", "errors: 1", "blank"),
        (answers(), "failed", "no request failed", "return the error"),
        (FAILED, "failed saying empty", "blank", "does not contain 'empty'"),
        (CHECKED, "shm < 36 MiB", "shm: 36 MiB", "reader 2 x 18 MiB"),
        (UNKNOWN, "shm <= 64 MiB", "shm: 36 MiB or more", "tensors of reader whose size is unknown"),
        (UNKNOWN, "shm > 36 MiB", "shm: 36 MiB or more", "reader 2 x 18 MiB"),
        (CHECKED, "findings == 0", "findings: 1", "model.py:3 of reader: it fails. Mend it."),
        (
            session(1),
            "called scan 0 then 4",
            "1 then 1 then 1 then 1 requests",
            "sent 4 requests with callees, expected 2",
        ),
        (session(1), "overlapped 4 of scan by page", "no request of scan", "The notebook sent the requests to scan"),
        (session(1), "moved == 0 of resize", "no request was recorded", "Send a request to resize"),
        (session(1), "took >= 1 s", "took: 0.1", "does not wait or work as long"),
        (answers(), "output DIGIT INT64 == 3", "DIGIT is INT32", "is INT32, expected INT64"),
        (answers(), "output DIGIT == 3 then 2", "DIGIT: [3]", "right so far, but 2 is missing"),
        (answers() * 2, "output DIGIT == 3 then 2", "DIGIT: [3], [3]", "Every response has the same value, 3"),
    ],
)
def test_one_that_does_not_hold_says_what_was_seen_and_gives_a_hint(
    recorded: Any, claim: str, seen: str, hint: str
) -> None:
    judgement = judge(recorded, claim)
    assert not judgement
    assert judgement.seen.startswith(seen)
    assert hint in judgement.hint
    assert repr(judgement) == f"<{judgement.claim}: no, {judgement.seen}>"


def test_a_leak_names_its_holders_once() -> None:
    judgement = judge(ALL["leak"](), "nothing_left")
    assert "held by leaky.kept" in judgement.seen
    assert judgement.seen.count("leaky.kept") == 1


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("", "expected one of overlapped, "),
        ("overlaped 4", "did you mean overlapped N [of MODEL] [by CALLER], such as: overlapped 4?"),
        ("front", "no claim begins with 'front'; expected one of overlapped, "),
        ("overlapped", "expected overlapped N [of MODEL] [by CALLER], such as: overlapped 4"),
        ("overlapped four", "expected overlapped N"),
        ("wall < 3", "expected wall OP TIME"),
        ("wall << 3 ms", "expected wall OP TIME"),
        ("requests == 1.5.2", "expected requests OP N"),
        ("queued < 1.2.3 ms", "expected a time"),
        ("verdict == good", "expected verdict == CAUSE"),
        ("nothing_left", "expected a record of %%blsmemory"),
        ("errors == 0", "got Session, expected a record of %bls"),
    ],
)
def test_words_that_are_no_claim_are_told_in_one_line(claim: str, said: str) -> None:
    with pytest.raises(BLSError) as caught:
        judge(session(), claim)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_form_reads_its_own_example() -> None:
    for name, form in FORMS.items():
        assert form.example.startswith(name)
        assert form.read(form.example) is not None, form.example


def test_something_else_has_no_claims() -> None:
    for other in (3, [], [1], "overlapped 4", None):
        with pytest.raises(BLSError, match="expected a record of %%blsprofile"):
            judge(other, "overlapped 4")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("2 MB", (2_000_000, "bytes")), ("2MiB", (2 << 20, "bytes")), ("5 ms", (5e6, "ns")), ("7", (7, "")),
        ("50%", (0.5, "")), ("1.5s", (1.5e9, "ns")), ("3 apples", None), ("", None), ("-1", None),
    ],
)  # fmt: skip
def test_quantities_are_read(words: str, found: Any) -> None:
    assert quantity(words) == found
