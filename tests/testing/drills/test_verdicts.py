"""How models misbehave in a drill, and what it says of callers that are good, or bad, in one way each."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.extending import host_of
from bls_notebook.pb_utils import Tensor
from bls_notebook.repository.substitution.substitution import Substitution
from bls_notebook.testing import RepositoryUnderTest
from bls_notebook.testing.drills import callees, driller
from bls_notebook.testing.drills.callees import Callee, FailingAnswers
from bls_notebook.testing.drills.faults import FAULTS, faults_named, spoilt
from bls_notebook.testing.drills.timed_request import DelayedResponse
from bls_notebook.testing.records import VERDICTS, CodePlace, Drilled, DrilledCase, Planted
from tests.engine.harness import Caller
from tests.testing.drills.models import CALLEES, CALLERS, REQUEST, define
from tests.waiting import LIMIT

NONE = "'NoneType' object has no attribute 'as_numpy'"


@pytest.fixture(scope="module")
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        define(repository, *CALLEES, *CALLERS)
        yield repository


@pytest.fixture(autouse=True)
def no_request_is_too_slow_to_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too, the drill repeats requests to find leaks."""
    monkeypatch.setattr(driller, "SLOW", LIMIT)


def drilled(repo: bls.ModelRepository, model: str, *faults: str, timeout: float = 0.2) -> Drilled:
    found = bls.drill(model, REQUEST, faults=faults or None, repo=repo, timeout=timeout)
    for case in found.cases:
        assert case.verdict in VERDICTS
        assert case.said
    return found


@pytest.mark.parametrize(
    ("model", "callee", "fault", "verdict", "says", "code"),
    [
        ("tells", "twice", "error", "clear", "points to 'twice'", "raise pb_utils.TritonModelException"),
        ("tells", "twice", "raises", "clear", "points to 'twice'", "raise pb_utils.TritonModelException"),
        ("tells", "twice", "cancelled", "clear", "points to 'twice'", "raise pb_utils.TritonModelException"),
        ("tells", "twice", "not-ready", "clear", "points to 'twice'", "raise pb_utils.TritonModelException"),
        ("tells", "twice", "nan", "clear", "points to 'twice'", "raise ValueError("),
        ("tells", "twice", "stall", "waits", "no time limit", 'response = call("twice", x).exec()'),
        ("tells", "twice", "slow", "unharmed", "the same response", None),
        ("returns", "twice", "error", "clear", "points to 'twice'", None),
        ("returns", "twice", "shape", "rubbish", "OUT has the shape [1, 1] instead of [1]", None),
        ("returns", "twice", "data-type", "rubbish", "OUT is FP64 instead of FP32", None),
        ("returns", "twice", "inf", "rubbish", "OUT has 1 elements that are NaN or infinite", None),
        ("returns", "twice", "huge", "silent", "another response than without the fault", None),
        ("returns", "twice", "missing-output", "stumbles", NONE, "return pb_utils"),
        ("in_a_line", "twice", "raises", "clear", "points to 'twice'", "if response.has_error(): raise"),
        ("vague", "twice", "error", "vague", "something failed", 'raise pb_utils'),
        ("crashes", "twice", "error", "crash", "hides the error of 'twice'", "raise RuntimeError("),
        ("blind", "twice", "error", "crash", NONE, "return pb_utils"),
        ("falls_back", "twice", "error", "fallback", "a response without 'twice'", None),
        ("blanks", "twice", "error", "silent", "although 'twice' failed; OUT has only zeros", None),
        ("asks_another", "twice", "nan", "fallback", "with the help of 'other'", None),
        ("guesses", "twice", "error", "silent", "the response is the same for other inputs: a constant", None),
        ("tries_again", "twice", "error-once", "unharmed", "although 'twice' failed once", None),
        ("tells", "twice", "error-once", "clear", "points to 'twice'", "raise pb_utils.TritonModelException"),
        ("tries_something_else", "twice", "error-once", "rubbish", "another request than the one that failed", None),
        ("tries_again", "twice", "error", "clear", "points to 'twice'", None),
        ("storms", "twice", "error", "storms", "50 requests instead of 1; then an error that points to 'twice'", None),
        ("storms", "twice", "not-ready", "storms", "50 requests instead of 1; then an error that points", None),
        ("asks_forever", "twice", "error", "hang", "requests instead of 1 until the drill's timeout", "call("),
        ("stays_broken", "twice", "error-once", "spoilt", "afterwards it fails", "raise pb_utils"),
        ("keeps_files", "twice", "error", "leak", "each request leaves an open file behind", None),
        ("tells", "twice", "client-cancels", "unobserved", "nobody sees the response; the next requests", None),
        ("ignores", "twice", "error", "unaffected", "although 'twice' responds with an error", None),
        ("swallows_nan", "twice", "nan", "silent", "another response than without the fault", None),
        ("hangs", "twice", "error", "hang", "no response", "time.sleep(0.01)"),
        ("keeps_errors", "twice", "error", "leak", "each request leaves memory behind", "raise pb_utils"),
        ("keeps_errors", "twice", "error", "leak", "held by keeps_errors.kept", "raise pb_utils"),
        ("keeps_last", "twice", "error", "clear", "points to 'twice'", "raise ValueError"),
        ("recodes", "twice", "error", "clear", "its code is INTERNAL instead of UNAVAILABLE", "return pb_utils"),
        ("blames", "twice", "raises", "clear", "its code is INVALID_ARG instead of INTERNAL", "return pb_utils"),
        ("lists", "counts", "error-midway", "silent", "made of what it sent before that", None),
        ("queues", "twice", "error-once", "spoilt", "answers a request with the response to the one before", None),
        ("writes", "twice", "error", "clear", "the text of OUT reports the error of 'twice'", None),
        ("keeps_threads", "twice", "error", "leak", "each request leaves a thread behind", None),
        ("stays_broken", "twice", "error", "spoilt", "afterwards it fails", "raise pb_utils"),
        ("limited", "twice", "stall", "clear", "points to 'twice'", "raise pb_utils.TritonModelException"),
        ("leaves_early", "twice", "error", "clear", "points to 'twice'", "raise pb_utils.TritonModelException"),
        ("awaits", "twice", "stall", "waits", "no time limit", "return out(value(await"),
        ("races", "twice", "slow", "rubbish", "only the timing", None),
        ("adds", "counts", "error", "clear", "points to 'counts'", "raise pb_utils"),
        ("adds", "counts", "error-midway", "clear", "points to 'counts'", "raise pb_utils"),
        ("adds", "counts", "no-response", "silent", "another response than without the fault", None),
        ("adds", "counts", "early-end", "silent", "another response than without the fault", None),
        ("adds", "counts", "duplicate", "silent", "another response than without the fault", None),
        ("adds", "counts", "no-final-flag", "waits", "no time limit", "for response in call("),
        ("adds", "counts", "slow", "unharmed", "the same response", None),
        ("forgets_flag_after", "twice", "error", "hang", "would never get a response", None),
        ("forgets_flag", "twice", "error", "hang", "would never get a response", None),
        ("varies", "twice", "error", "crash", "'NoneType'", "return pb_utils"),
        ("varies", "twice", "huge", "unjudged", "differ from request to request", None),
    ],
)  # fmt: skip
def test_a_verdict(
    repo: bls.ModelRepository,
    model: str,
    callee: str,
    fault: str,
    verdict: str,
    says: str,
    code: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if model == "races":  # longer than it waits, which is longer than a busy machine takes
        monkeypatch.setattr(callees, "_LATE", 0.6)
        monkeypatch.setattr(callees, "_LATE_IN_ALL", 0.6)
    case = drilled(repo, model, fault).case(callee, fault)
    assert (case.verdict, says in case.said) == (verdict, True), case.said
    assert case.calls or fault == "not-ready"
    assert "call(" in case.sent.code or "exec" in case.sent.code
    if code is None:
        assert case.at is None
    else:
        assert code in case.at.code


def test_lost_codes_of_errors_are_noted(repo: bls.ModelRepository) -> None:
    (note,) = drilled(repo, "recodes", "error", "cancelled", "raises").notes
    assert note.startswith("twice: error, twice: cancelled: the error's code is lost")
    assert "return InferenceResponse(error=response.error())" in note, "TritonError cannot be raised"
    assert not drilled(repo, "returns", "error", "cancelled", "raises").notes


def test_a_drill_of_everything_leaves_the_models_as_they_were(repo: bls.ModelRepository) -> None:
    before = {record.name: record for record in repo.index()}
    models = {name: host_of(repo).find(name) for name in before}
    found = drilled(repo, "adds")
    impossible = ("unloaded", "out-of-memory", "one-of-batch", "other-order")
    tried = [fault.name for fault in FAULTS if fault.name not in impossible]
    assert ([case.faults[0].fault for case in found.cases], found.callees) == (tried, ("counts",))
    assert sorted(line.split(": ")[1] for line in found.untried) == sorted(impossible)
    shown = " ".join(render(found).text.split())
    assert "not tried: counts: one-of-batch: 'adds' does not batch requests" in shown
    assert "unobserved: nothing to observe: nobody gets the response of a cancelled request" in shown
    assert {record.name: record for record in repo.index()} == before
    assert all(host_of(repo).find(name) is model for name, model in models.items())
    assert repo.infer("adds", REQUEST)["OUT"].as_numpy().tolist() == [10.0]


def test_pairs_are_told_where_they_are_worse_than_each_of_the_two(repo: bls.ModelRepository) -> None:
    found = bls.drill("two", REQUEST, faults=["error"], pairs=True, repo=repo)
    assert [(case.name, case.verdict) for case in found.cases] == [
        ("twice: error", "fallback"),
        ("other: error", "unaffected"),
        ("twice: error and other: error", "crash"),
    ]
    assert found.notes == ("1 pairs of faults were tried: 1 had a worse verdict than each of the two alone",)


def test_unreached_callees_are_named(repo: bls.ModelRepository) -> None:
    drilled(repo, "asks_another", "nan")  # then it is known whom it asks
    found = drilled(repo, "asks_another", "error")
    assert (found.callees, found.unreached) == (("twice",), ("other",))
    assert drilled(repo, "twice").notes == ("with this request 'twice' calls no model: there is nothing to drill",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "nobody"}, "model 'nobody' is not loaded"),
        ({"inputs": {}}, "fails without a fault"),
        ({"faults": ["eror"]}, "there is no fault 'eror'; expected one of error, cancelled"),
        ({"timeout": 0}, "timeout: got 0, expected more than 0 s"),
        ({"save": "drill.txt"}, "expected a name such as tests/test_drill_x.py"),
    ],
)
def test_wrong_arguments_of_a_drill(repo: bls.ModelRepository, given: dict[str, object], words: str) -> None:
    arguments: dict[str, object] = {"model": "tells", "inputs": REQUEST, "repo": repo, **given}
    with pytest.raises(bls.BLSError, match=words.replace("(", r"\(")) as raised:
        bls.drill(**arguments)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_drill_as_a_test() -> None:
    with RepositoryUnderTest() as repo:
        define(repo, *CALLEES, "tells", "crashes")
        good = repo.assert_survives("tells", REQUEST, faults=["error", "nan", "stall"])
        assert [case.verdict for case in good.cases] == ["clear", "clear", "waits"]
        with pytest.raises(AssertionError, match="crashes does not survive 1 of 2 faults") as raised:
            repo.assert_survives("crashes", REQUEST, faults=["error", "slow"])
        assert "twice: error: crash: hides the error of 'twice'" in str(raised.value)
        assert "crashes/1/model.py:28: raise RuntimeError(response.error().text)" in str(raised.value)
        repo.assert_survives("crashes", REQUEST, faults=["error"], refuse=["hang"])
        with pytest.raises(ValueError, match="got 'crush', expected verdicts: crash"):
            repo.assert_survives("tells", REQUEST, refuse=["crush"])


@pytest.mark.slow
def test_saved_tests_fail_for_bad_cases(
    repo: bls.ModelRepository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_drill_joins.py"
    faults = ["error", "data-type", "nan"]
    found = bls.drill("joins", REQUEST, repo=repo, faults=faults, save=file)
    assert "heard" not in str(capfd.readouterr())
    assert [case.verdict for case in found.cases] == ["crash", "vague", "rubbish"]
    tests = runpy.run_path(str(file))
    again = tests["drill"](repo)
    for case in found.cases:
        with pytest.raises(AssertionError, match=re.escape(case.said)):
            tests[f"test_twice_{case.faults[0].fault}".replace("-", "_")](again)


def test_saved_tests_of_a_model_that_ignores_errors_pass(repo: bls.ModelRepository, tmp_path: Path) -> None:
    file = tmp_path / "test_drill_ignores.py"
    bls.drill("ignores", REQUEST, repo=repo, faults=["error"], save=file)
    tests = runpy.run_path(str(file))
    tests["test_twice_error"](tests["drill"](repo))


def test_slow_models_are_asked_once(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bls_notebook.testing.drills.driller.SLOW", 0.0)
    monkeypatch.setattr("bls_notebook.engine.core.model_counters.ModelCounters.restore", Mock())
    twice = host_of(repo).find("twice")
    assert twice is not None
    asked = sum(twice.statistics.latest(0)[:2])
    for model, verdict in (("stays_broken", "spoilt"), ("tells", "clear")):
        found = bls.drill(model, REQUEST, faults=["error", "nan"], repo=repo)
        assert found.case("twice", "error").verdict == verdict
        assert found.case("twice", "nan").verdict != "not reached"  # loaded anew, if spoilt
        assert any("were not checked" in note for note in found.notes)
    assert (
        sum(twice.statistics.latest(0)[:2]) - asked == 2 * 4
    )  # when all is well: the rest is answered from the recording


def test_cases_of_one_line_are_one_item() -> None:
    line = CodePlace("a", "a/1/model.py", 7, "request.exec()")
    of = {("b", "stall"): "no limit", ("c", "stall"): "no limit", ("c", "slow"): "late"}
    cases = [DrilledCase((Planted(*fault),), "waits", said, sent=line) for fault, said in of.items()]
    shown = render(Drilled("a", callees=("b", "c"), cases=(*cases[:2],)))
    assert "! waits  b: stall; c: stall\n    no limit\n    called at a/1/model.py:7" in shown.text
    assert shown.html.count("request.exec()</code>") == 1
    several = render(Drilled("a", callees=("b", "c"), cases=(*cases,))).text
    assert "! waits  b: stall; c: stall, slow\n    b: stall; c: stall: no limit\n    c: slow: late" in several


@pytest.mark.parametrize(
    ("model", "verdict"), [("batches", "spreads"), ("batches_well", "unharmed"), ("batches_mixed", "mixes")]
)
def test_one_failing_call_of_a_batch(repo: bls.ModelRepository, model: str, verdict: str) -> None:
    request = {"IN": [[1.0]]}
    started = bls.drill(model, request, faults=["one-of-batch"], repo=repo).case("twice", "one-of-batch")
    assert started.verdict in (verdict, "unjudged"), started.said  # a busy machine may form no batch


NUMBERS = Tensor("F", np.array([[1.0, 2.0]], np.float32))
TEXT = Tensor("T", np.array([b"a", b"bc"], np.object_))
WHOLE = Tensor("I", np.array([3, 4], np.int64))
BF16 = Tensor._of("B", np.array([0x3F80], np.uint16), "BF16")


def test_each_tensor_is_spoilt_where_it_can_be() -> None:
    def told(fault: str, batching: bool = False) -> list[tuple[str, list[int], Any]] | None:
        out = spoilt([NUMBERS, TEXT, WHOLE], fault, batching)
        return None if out is None else [(t._datatype, t.shape(), t.as_numpy().reshape(-1)[:1].tolist()) for t in out]

    assert told("missing-output") == []
    assert told("empty") == [("FP32", [0, 2], []), ("BYTES", [0], []), ("INT64", [0], [])]
    assert told("empty", True) == [("FP32", [1, 0], []), ("BYTES", [0], []), ("INT64", [0], [])]
    assert told("shape") == [("FP32", [1, 1, 2], [1.0]), ("BYTES", [1, 2], [b"a"]), ("INT64", [1, 2], [3])]
    assert told("data-type") == [("FP64", [1, 2], [1.0]), ("INT32", [2], [0]), ("FP32", [2], [3.0])]
    assert told("inf") == [("FP32", [1, 2], [float("inf")]), ("BYTES", [2], [b"a"]), ("INT64", [2], [3])]
    assert told("huge") == [
        ("FP32", [1, 2], [np.finfo(np.float32).max]),
        ("BYTES", [2], [b"x" * (1 << 20)]),
        ("INT64", [2], [np.iinfo(np.int64).max]),
    ]
    assert spoilt([TEXT, WHOLE], "nan", False) is None
    nan = spoilt([BF16], "nan", False)
    assert nan is not None
    assert (nan[0]._datatype, nan[0]._array.tolist()) == ("BF16", [0x7FC0])
    assert NUMBERS.as_numpy().tolist() == [[1.0, 2.0]]  # as it was


def test_delayed_responses_are_answered_once_released() -> None:
    delay = DelayedResponse()
    with bls.ModelRepository() as repo:
        define(repo, "twice")
        callee = Callee("twice", Mock(), Mock(flag_alone=False), 1, 1, False, False, None, {})
        failing = FailingAnswers(faults_named(["stall"])[0], callee, delay, lambda: None)
        with Substitution(repo, {"twice": failing}):
            asked = Caller(repo.infer, "twice", REQUEST)
            assert delay.entered.wait(LIMIT)
            assert not asked.done
            delay.release()
            assert "'twice' was released" in asked.result().error.message()
        delay = failing._delay = DelayedResponse()
        with Substitution(repo, {"twice": failing}):
            asked = Caller(repo.infer, "twice", REQUEST)
            assert delay.entered.wait(LIMIT)
        assert "'twice' was released" in asked.result().error.message()  # by the end of the substitution
        assert repo.infer("twice", REQUEST).error is None
