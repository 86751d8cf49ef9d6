"""`overlap`: statements that were false of unusual models: versions, error codes, votes, shared callees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.profiling.dependences import schedule
from bls_notebook.profiling.dependences.evidence import Evidence, RunDifference, explore
from bls_notebook.profiling.dependences.proof import template
from bls_notebook.profiling.dependences.records import SentCall
from bls_notebook.profiling.records.spans import Span
from bls_notebook.profiling.session import Session
from bls_notebook.records.models import ModelSeen
from tests.profiling.overlap_graphs import CALLEE, CONFIG, Graph, define_callees, source_of

MS = 1_000_000
X = {"IN": np.array([1, 2, 3], np.float32)}


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bls.ModelRepository]:
    folder = tmp_path_factory.mktemp("models")
    for version in ("1", "2"):
        (folder / "two" / version).mkdir(parents=True)
        source = CALLEE.replace("{delay}", "0").replace("{body}", f"answer = x * {version}")
        (folder / "two" / version / "model.py").write_text(source)
    (folder / "two" / "config.pbtxt").write_text('backend: "python" version_policy { all {} }' + CONFIG)
    with bls.ModelRepository(folder) as repository:
        repository.load("two")
        define_callees(repository, str(folder))
        yield repository


def overlap_of(repo: bls.ModelRepository, body: str, is_async: bool = False) -> bls.profiling.Overlap:
    one = "" if body.startswith("def ") else f"    {'async ' * is_async}def one(self, x):\n"
    lines = "".join(f"    {'' if not one else '    '}{line}\n" for line in body.splitlines())
    repo.define("caller", source_of(Graph("", one + lines, "", is_async), ""), config=CONFIG)
    return bls.overlap("caller", X, repo=repo)


def test_two_versions_of_a_callee_have_no_state(repo: bls.ModelRepository) -> None:
    found = overlap_of(
        repo, "return ok(out(ask('two', x, model_version=1).exec()) + out(ask('two', x, model_version=2).exec()))"
    )
    assert (found.outcome, found.stages) == ("independent", ((0, 1),))


def test_a_recorded_error_keeps_its_code(repo: bls.ModelRepository) -> None:
    error = "TritonError('busy', TritonError.UNAVAILABLE)"
    source = CALLEE.replace("{delay}", "0").replace("{body}", f"TritonError = pb_utils.TritonError; raise_ = {error}\n"
        "        return pb_utils.InferenceResponse(error=raise_)")  # fmt: skip
    repo.define("busy", source, config=CONFIG)
    found = overlap_of(
        repo,
        "r = ask('busy', x).exec()\n"
        "is_busy = r.has_error() and r.error().code() == pb_utils.TritonError.UNAVAILABLE\n"
        "return ok(out(ask('b' if is_busy else 'c', x).exec()))",
    )
    assert (found.outcome, [call.model for call in found.calls]) == ("control", ["busy", "b"])


def test_answers_that_only_together_change_a_call_are_all_needed() -> None:
    def majority(group: set[int], change: int) -> RunDifference:
        is_changed = len(group & {0, 1, 2}) > 1
        return RunDifference({3: ()} if is_changed else {}, set() if is_changed else {3}, used=group)

    evidence = Evidence([set(), set(), set(), {0, 1, 2}])
    explore(evidence, range(4), majority)
    assert set(evidence.found) == {(0, 3), (1, 3), (2, 3)}


def test_calls_that_wait_for_one_instance_of_a_common_callee_gain_nothing() -> None:
    spans = [Span(1, "caller", instance="caller_0", inferred=40 * MS, ended=40 * MS)]
    for number, name in enumerate(("first", "second")):
        begin, end = number * 20 * MS, (number + 1) * 20 * MS
        for model, parent in ((name, 1), ("common", 2 + 2 * number)):
            spans.append(
                Span(
                    len(spans) + 1, model, instance=f"{model}_0", parent=parent,
                    sent=begin, queued=begin, started=begin, inferred=end, ended=end,
                )
            )  # fmt: skip
    names = ("caller", "first", "second", "common")
    session = Session(
        models=tuple(ModelSeen(m, instances=(f"{m}_0",)) for m in names), spans=tuple(spans), wall=40 * MS
    )
    calls = [SentCall("first", span=2), SentCall("second", span=4)]
    assert schedule.predicted(session, calls, [set(), set()])[0] >= 40 * MS
    apart = [replace(span, model=f"{span.model}{span.parent}") if span.parent > 1 else span for span in spans]
    assert schedule.predicted(replace(session, spans=tuple(apart)), calls, [set(), set()])[0] < 21 * MS


def test_answers_are_followed_into_modules_beside_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "outer" / "1"
    folder.mkdir(parents=True)
    head, _, _ = source_of(Graph("", "", ""), "").partition("class ")
    helpers = "def answer(model, x):\n    return out(ask(model, x).exec())\n"
    (folder / "helpers.py").write_text(head + helpers)
    body = (
        "    def one(self, x):\n"
        "        a = helpers.answer('a', x)\n"
        "        return ok(helpers.answer('b', x + (zlib.crc32(a.tobytes()) % 9973 == 5)))\n"
    )
    (folder / "model.py").write_text("import helpers\n" + source_of(Graph("", body, ""), ""))
    (tmp_path / "outer" / "config.pbtxt").write_text('backend: "python"' + CONFIG)
    with bls.ModelRepository(tmp_path) as own:
        define_callees(own, str(tmp_path))
        own.load("outer")
        found = bls.overlap("outer", X, repo=own)
    assert (found.outcome, "by the code" in found.sentence) == ("unknown", True)


def test_a_call_after_one_that_was_given_up_is_a_reaction(repo: bls.ModelRepository) -> None:
    body = """\
try:
    y = out(await asyncio.wait_for(ask('never', x).async_exec(), 0.05))
except asyncio.TimeoutError:
    y = out(await ask('b', x).async_exec())
return ok(y)"""
    never = "time.sleep(0.8); answer = x"  # longer than its caller waits, with a margin for a busy machine
    repo.define("never", CALLEE.replace("{delay}", "0").replace("{body}", never), config=CONFIG)
    found = overlap_of(repo, body, is_async=True)
    assert (found.outcome, "is not answered in time" in found.sentence) == ("control", True), found.sentence
    assert found.notes == ()


def test_a_template_asks_decoupled_models_for_iterators() -> None:
    calls = [SentCall("stream"), SentCall("b")]
    lines = template(calls, "", {"stream"}).splitlines()
    assert ["decoupled=True" in line for line in lines[1:3]] == [True, False]


def test_a_cached_function_becomes_no_coroutine() -> None:
    pytest.importorskip("libcst")
    from bls_notebook.profiling.dependences.program_change import AWAITED, NotSimpleError, changed_program

    source = "class TritonPythonModel:\n    @{}\n    def get(self, m):\n        return ask(m).exec()\n"
    with pytest.raises(NotSimpleError, match="`get` sends calls and has a decorator"):
        changed_program(source.format("lru_cache(None)"), [AWAITED])
    assert "async def get" in changed_program(source.format("staticmethod"), [AWAITED])[0]


@pytest.mark.slow
def test_the_gain_of_a_change_is_that_of_the_calls_that_it_gathers(tmp_path: Path) -> None:
    pytest.importorskip("libcst")
    with bls.ModelRepository() as own:
        define_callees(own, str(tmp_path), delay=0.02, instances=4)
        loops = "for i in range(2):\n    for m in 'ab':\n        y = y + out(ask(m, x + i).exec())\n"
        found = overlap_of(own, f"y = 0\n{loops}return ok(y)")
    assert found.code is not None
    assert found.code.source
    assert found.code.predicted < 0.7 * found.predicted
    assert any("has only some of these calls in flight together" in note for note in found.notes)


def test_an_empty_answer_has_no_values_to_change(repo: bls.ModelRepository) -> None:
    source = CALLEE.replace("{delay}", "0").replace("{body}", "answer = np.zeros(0, np.float32)")
    repo.define("empty", source, config=CONFIG)
    found = overlap_of(repo, "a = out(ask('empty', x).exec())\nreturn ok(out(ask('b', x).exec()) + len(a))")
    assert (found.outcome, "it has no values that could be changed" in found.sentence) == ("unknown", True)
