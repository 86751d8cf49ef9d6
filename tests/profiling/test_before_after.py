"""Two profiles: which differences are changes, which are noise, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.profiling import Session
from bls_notebook.profiling.records.comparison import Comparison, Measured, MeasuredSetting, Verdict
from bls_notebook.profiling.records.spans import CodeStack, LineSamples, Source, StackLine
from bls_notebook.records import TensorSeen, quartiles
from tests.profiling.sessions import MS, Made

CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        load()\n        run(1)\n"


def requests(times: Sequence[float], code: str = CODE, run: Sequence[float] = (), **changes: Any) -> Session:
    """Requests to `a` that take so many ms; of each, `run` is the share of line 4 and the rest is of line 3."""
    made = Made(a=1)
    now = 0
    for time in times:
        made.call("a", now, round(time * MS), inputs=(TensorSeen("X", "FP32", (4,)),))
        now += round(time * MS) + MS
    session = made.session(sources=(Source("model.py", code, "a", 1, 2),), **changes)
    if not run:
        return session
    stacks = tuple(CodeStack((StackLine(1, line, "execute"),)) for line in (3, 4))
    samples = []
    for span, share in zip(session.spans, run, strict=True):
        ns = span.ended - span.started
        samples.append(LineSamples(span.id, 1, 20, round(ns * (1 - share))))
        samples.append(LineSamples(span.id, 2, 20, round(ns * share)))
    return replace(session, stacks=stacks, samples=tuple(samples))


STEADY = [20.0, 20.1, 19.9, 20.2, 20.0]


def test_a_difference_within_the_noise_is_called_noise() -> None:
    found = bls.compare(requests(STEADY), requests([20.3, 20.1, 20.4, 20.2, 20.2]))
    said = "No difference beyond the noise: a request to `a` took 20 ms before, 20.2 ms after"
    assert found.sentence.startswith(said)
    assert {change.verdict for change in found.changes} == {"noise"}
    wide = [20.0, 31.0, 24.0, 39.0, 22.0]
    assert bls.compare(requests(wide), requests([time * 0.8 for time in wide])).changes[0].verdict == "noise"


def test_a_difference_beyond_the_noise_is_named_with_its_line() -> None:
    code = "# new\n" + CODE.replace("run(1)", "run(2)")
    before = requests(STEADY, run=[0.5] * 5)
    after = requests([3 * time for time in STEADY], run=[0.8] * 5)
    stacks = tuple(CodeStack((StackLine(1, line, "execute"),)) for line in (4, 5))
    after = replace(after, stacks=stacks, sources=(replace(after.sources[0], text=code),))
    found = bls.compare(before, after)
    said = "A request to `a` is 3.0× slower: 20 ms before, 60 ms after (noise ±3%), most of it in"
    assert found.sentence.startswith(said)
    assert "`a`, line 5, `run(1)` → `run(2)`: 10 ms before, 48.1 ms after." in found.sentence
    whole, model, line, *_ = found.changes
    assert [each.kind for each in (whole, model, line)] == ["request", "model", "line"]
    assert (line.line_before, line.line) == (4, 5)
    assert bls.compare(after, before).changes[0].verdict == "faster"


def test_waits_for_processors_are_noise() -> None:
    before, after = requests(STEADY), requests([1.6 * time for time in STEADY])
    assert bls.compare(before, after).changes[0].verdict == "slower"
    busy = replace(after, cpu_waited=after.wall)
    found = bls.compare(before, busy)
    assert found.changes[0].verdict == "noise"
    assert any("the machine was busy" in note for note in found.notes)


def test_a_difference_with_much_noise_has_no_factor() -> None:
    wide = [20.0, 60.0, 24.0, 90.0, 22.0]
    found = bls.compare(requests([20 * time for time in wide]), requests(wide))
    assert found.changes[0].verdict == "faster"
    said = "A request to `a` is faster: 480 ms before, 24 ms after. By how much is unknown: chance alone can make a"
    assert found.sentence.startswith(said)
    assert "20×" not in str(found)


def test_noise_of_too_few_requests_is_unknown() -> None:
    found = bls.compare(requests([20.0]), requests([90.0]))
    assert "fewer than 3 requests, so the noise is unknown" in found.sentence
    three = [requests([time]) for time in (20.0, 20.1, 19.9)]
    assert bls.compare(three, [requests([time]) for time in (90.0, 91.0, 89.0)]).changes[0].verdict == "slower"


def test_other_models_and_other_inputs_are_said() -> None:
    one = requests(STEADY)
    wider = replace(one, spans=tuple(replace(span, inputs=(TensorSeen("X", "FP32", (64,)),)) for span in one.spans))
    found = bls.compare(one, wider)
    assert "with other inputs" in found.sentence
    assert found.notes[0] == "the inputs differ: `a` got X [4] before, X [64] after"
    old = replace(one, spans=tuple(replace(span, inputs=(), bytes_in=8) for span in one.spans))
    assert "the inputs differ: `a` got 4,096 bytes a request before, 8 after" in bls.compare(one, old).notes
    other = replace(one, spans=tuple(replace(span, model="b") for span in one.spans))
    assert bls.compare(one, other).sentence == (
        "Nothing to compare: the models differ: before, requests went to `a`, after, to `b`."
    )


def compared(ms: float) -> Comparison:
    session, times = requests(STEADY), quartiles([ms * MS, ms * MS, (ms + 0.5) * MS])
    measured = Measured(5, session.wall, round(ms * MS))
    setting = MeasuredSetting(0, session, session, measured, times, times)
    return Comparison("a", 5, 3, (setting,), Verdict("queue", ""))


def test_requests_at_once_of_two_comparisons_are_compared() -> None:
    found = bls.compare(compared(100), compared(40))
    assert found.sentence.startswith(
        "5 requests at once are 2.5× faster: 100 ms before, 40 ms after (noise ±3%). One after the other, no difference"
    )
    assert "`a`, 5 requests at once" in render(found).text
    assert bls.compare(compared(100), compared(101)).sentence.startswith("No difference beyond the noise")
    assert bls.compare(compared(100), requests(STEADY)).changes[0].kind == "request"


def test_saved_profiles_are_compared_by_their_paths(tmp_path: Path) -> None:
    before, after = requests(STEADY), requests([2 * time for time in STEADY])
    saved = [before.save(tmp_path / "before.json"), after.save(tmp_path / "after.json.gz")]
    found = bls.compare(*map(str, saved))
    assert (found.before, found.after) == ("before.json", "after.json.gz")
    assert found.changes == bls.compare(before, after).changes


@pytest.mark.parametrize("wrong", [3, [], None])
def test_a_profile_is_compared_with_profiles_only(wrong: Any) -> None:
    with pytest.raises(bls.BLSError, match=r"compare: after: got .*expected a profile"):
        bls.compare(requests(STEADY), wrong)
    with pytest.raises(bls.BLSError, match="two profiles take no other arguments"):
        bls.compare(requests(STEADY), requests(STEADY), n=3)  # type: ignore[call-overload]


def test_other_code_and_other_instances_are_said() -> None:
    one = requests(STEADY)
    (model,) = one.models
    more = replace(one, models=(replace(model, code="new", instances=("a_0_0", "a_0_1")),))
    assert bls.compare(one, more).notes == ("`a` has other code and instances (1 before, 2 after)",)
    other = replace(one, models=(replace(model, config="new"),))
    assert bls.compare(one, other).notes == ("`a` has other configuration",)
