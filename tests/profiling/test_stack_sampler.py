"""Time by line: models stop at gates, so that every sample from then on is at a known line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import bls_notebook as bls
from bls_notebook.profiling import Profile, Session
from bls_notebook.profiling.analysis.line_times import model_lines
from bls_notebook.profiling.line_report import time_by_line
from bls_notebook.profiling.records.line_times import LineTime, ModelLines
from bls_notebook.profiling.stack_samples import shorter_turns, usual_turns
from tests.engine import gates
from tests.engine.harness import Caller, infer, ints, until
from tests.engine.sources import DOUBLE, model, pbtxt

LINE = LineTime("a.py", 3, "f", "g()", 1.0, 1.0, 0.0, 9, 12)
HELPERS = (
    model("""
def execute(self, requests):
    return [self.one(request) for request in requests]

def one(self, request):
    return wait_at_gate(request)
""")
    + """
def wait_at_gate(request):
    gates.gate("helped").wait()  # here
    return answer(number(request))
"""
)

GATHERS = model("""
async def execute(self, requests):
    return [await self.one(request) for request in requests]

async def one(self, request):
    answers = await asyncio.gather(*[self.call(i) for i in range(2)])
    return answer(value_of(answers[0]))

async def call(self, i):
    return await ask("helped", i).async_exec()
""")


def sampled(profile: Profile, name: str, enough: int = 20) -> Callable[[], bool]:
    return lambda: sum(lines.samples for lines in model_lines(profile.record) if lines.model == name) >= enough


def lines_of(session: Session, name: str) -> ModelLines:
    return next(lines for lines in model_lines(session) if lines.model == name)


def profile_at_gate(repo: bls.ModelRepository, name: str) -> Session:
    with bls.profile() as profile:
        caller = Caller(infer, repo, name)
        until(sampled(profile, "helped"))
        if name != "helped":
            until(sampled(profile, name))
        gates.gate("helped").set()
        caller.result()
    return profile.record


def test_samples_have_the_call_chain_through_helpers(repo: bls.ModelRepository) -> None:
    repo.define("helped", HELPERS, pbtxt())
    lines = lines_of(profile_at_gate(repo, "helped"), "helped")
    slowest = lines.lines[0]
    assert slowest.text == 'gates.gate("helped").wait()  # here'
    assert slowest.function == "wait_at_gate"
    assert slowest.waits > 0.5  # in threading
    functions = {line.function: line for line in lines.lines}
    assert [*functions] == ["wait_at_gate", "execute", "one"]
    assert functions["execute"].share >= functions["one"].share >= slowest.own > 0.5
    assert functions["execute"].own < 0.5


def test_samples_of_coroutines_are_where_gathered_tasks_await(repo: bls.ModelRepository, tmp_path: Path) -> None:
    repo.define("helped", HELPERS, pbtxt(count=2))
    repo.define("gathers", GATHERS, pbtxt())
    session = profile_at_gate(repo, "gathers")
    lines = lines_of(session, "gathers").lines
    assert lines[0].text == 'return await ask("helped", i).async_exec()'
    assert lines[0].waits > 0.5
    assert {line.function for line in lines} == {"execute", "one", "call"}
    sent = next(span for span in session.spans if span.model == "helped")
    assert [line.function for line in session.stacks[sent.stack - 1].lines] == ["execute", "one", "call"]
    assert bls.open_file(session.save(tmp_path / "s.json.gz")) == session


def test_spans_have_the_real_shapes_of_their_inputs(repo: bls.ModelRepository) -> None:
    repo.define("d", DOUBLE, pbtxt())
    with bls.profile() as profile, bls.profile(lines=False) as without:
        repo.infer("d", ints(1, 2, 3))
        asyncio.run(repo.infer_async("d", ints(1)))
    shapes = [[(each.name, each.dtype, each.dims) for each in span.inputs] for span in profile.record.spans]
    assert shapes == [[("X", "INT32", (3,))], [("X", "INT32", (1,))]]
    assert without.record.samples == ()


def test_turns_with_the_gil_are_shorter_while_any_sampler_runs() -> None:
    default, first, second = sys.getswitchinterval(), object(), object()
    try:
        for sampler, are_wanted in ((first, True), (second, True), (first, False), (first, False)):
            shorter_turns(sampler, are_wanted)
            assert sys.getswitchinterval() < default
        sys.setswitchinterval(0.015)  # other code's wish counts
        shorter_turns(second, False)
        assert sys.getswitchinterval() == 0.015
        shorter_turns(first, True)
        assert sys.getswitchinterval() == 0.015
        shorter_turns(first, False)
        sys.setswitchinterval(default)
        shorter_turns(first, True)
        shorter_turns(first, False)
        assert sys.getswitchinterval() == default
    finally:
        sys.setswitchinterval(default)


def test_turns_with_the_gil_stay_as_they_are_while_a_duration_is_measured() -> None:
    default, first, second = sys.getswitchinterval(), object(), object()
    try:
        shorter_turns(first, True)
        with usual_turns():
            assert sys.getswitchinterval() == default
            shorter_turns(second, True)
            assert sys.getswitchinterval() == default
        assert sys.getswitchinterval() < default
    finally:
        shorter_turns(first, False)
        shorter_turns(second, False)
    assert sys.getswitchinterval() == default


def test_shares_of_very_short_executions_are_unknown() -> None:
    for each, is_known in ((4_000_000, True), (400_000, False)):
        lines = ModelLines("m", 1, 10, 10 * each, 12, 0.0, (LINE,))
        assert (lines.known, lines.are_short) == (is_known, not is_known)
        words = repr(time_by_line([lines]))
        assert ("g()" in words, "its executions are too short" in words) == (is_known, not is_known)
