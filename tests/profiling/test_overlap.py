"""`overlap`: what it says about calls is true of graphs whose dependences are known."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.profiling import Overlap
from bls_notebook.profiling.dependences import analysis, counterfactual, perturbation, proof, schedule
from bls_notebook.profiling.dependences.evidence import ENOUGH, OPTIONS, Evidence, RunDifference, closure, explore
from bls_notebook.profiling.dependences.named_values import named_values
from bls_notebook.profiling.dependences.proof import template
from bls_notebook.profiling.dependences.records import SentCall
from bls_notebook.profiling.records.spans import LockHeld, Span
from bls_notebook.profiling.session import Session
from bls_notebook.records.models import ModelSeen
from tests.profiling.overlap_graphs import CALLEE, CONFIG, GRAPHS, Graph, define_callees, source_of

MS = 1_000_000
X = {"IN": np.array([1, 2, 3], np.float32)}
no_processes = pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def repo(place: str) -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        define_callees(repository, place)
        yield repository


def order_of(found: Overlap) -> str:
    """Return the calls by stages, as `Graph.order` has them."""
    if found.problem:
        return "?"
    return ", ".join("+".join(sorted(found.calls[n].model for n in stage)) for stage in found.stages)


def found_of(repo: bls.ModelRepository, graph: Graph, place: str = "", **options: object) -> Overlap:
    repo.define("caller", source_of(graph, place), config=CONFIG)
    return bls.overlap("caller", X, repo=repo, **options)  # type: ignore[arg-type]


def graph(body: str, name: str = "", is_async: bool = False) -> Graph:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return Graph(name, f"    {'async ' * is_async}def one(self, x):\n{lines}", "", is_async)


@pytest.mark.slow
@pytest.mark.parametrize("example", [pytest.param(g, id=g.name, marks=[pytest.mark.extra] * g.repeats) for g in GRAPHS])
def test_the_order_of_calls_is_the_true_one(repo: bls.ModelRepository, place: str, example: Graph) -> None:
    found = found_of(repo, example, place)
    parts = [", ".join("+".join(sorted(s.split("+"))) for s in example.order.split(", "))]
    assert [order_of(found)] == parts, found.sentence
    assert found.runs <= 2 + counterfactual.RUNS + 2 + 30
    assert Overlap.from_dict(found.to_dict()) == found
    shown = render(found)
    assert " ".join(found.sentence.split()) in " ".join(shown.text.split())
    assert repo.infer("caller", X).error is None or example.name == "fails"


@pytest.mark.parametrize(
    ("body", "outcome", "words"),
    [
        ("return ok(10 * out(ask('cnt', x).exec()) + out(ask('cnt', x).exec()))", "dependent",
         "depend on its earlier requests (state)"),
        ("return ok(out(ask('b', out(ask('a', x).exec())).exec()))", "dependent",
         "`b` (line 23) needs the answer of `a` (line 23): with that changed (mirrored), input `IN` changed"),
        ("a = out(ask('a', x).exec())\nreturn ok(out(ask('b', x).exec()) if a.sum() > 3 else a)", "control",
         "whether `b` (line 24) is sent depends on the answer of `a` (line 23)"),
        ("a = out(ask('a', x).exec())\nreturn ok(out(ask('b', x).exec()) if a.max() < 5_000_000 else a)", "control",
         "with that changed (large), it was not sent"),
        ("return ok(out(ask('a', x).exec()) + out(ask('b', x).exec()))", "independent",
         "sends `a` and `b` (line 23) one after the other. No dependence between them was seen in 9 changes"),
        ("a = out(ask('a', x).exec())\nassert (a == x * 2 + 1).all()\nreturn ok(out(ask('b', x).exec()))", "unknown",
         "drop its check to settle it"),
        ("return ok(out(ask('r', x).exec()) + out(ask('r', x).exec()))", "unknown", "stubs settle it"),
        ("ask('mem', x).exec()\nreturn ok(out(ask('mem', -x).exec()))", "dependent",
         "the answers of `mem` (line 24) depend on its earlier requests (state)"),
        ("return ok(out(ask('b', x + os.urandom(1)[0]).exec()) + out(ask('a', x).exec()))", "unknown", "fix its seed"),
        ("return ok(out(ask('b', x + (next(os.bls_runs) > 2)).exec()) + out(ask('a', x).exec()))", "unknown",
         "its earlier runs (a file, or state elsewhere), or on chance"),
        ("return ok(out(ask('a', x).exec()))", "independent", "`caller` sends one call: there is"),
        ("return ok(x)", "independent", "`caller` sends no calls: there is"),
    ],
)  # fmt: skip
def test_the_sentence_states_one_outcome(
    repo: bls.ModelRepository, body: str, outcome: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.bls_runs", itertools.count(), raising=False)  # state outside of the model
    found = found_of(repo, graph(body))
    assert (found.outcome, words in found.sentence) == (outcome, True), found.sentence
    if outcome != "independent":
        assert (found.predicted, found.code) == (1.0, None)


@pytest.mark.slow
def test_many_calls_cost_few_runs(repo: bls.ModelRepository) -> None:
    found = found_of(repo, graph("return ok(sum(out(ask('a', x + i).exec()) for i in range(64)))"))
    assert order_of(found) == "+".join(64 * ["a"])
    assert found.runs <= 16 + 5 * (found.code is not None)  # trying the change takes five
    assert found.callee_requests == 2 * 64 + 2 * 4 + 2 * 2  # recorded, profiled; two of them asked again
    found = found_of(repo, graph("for i in range(40):\n    x = out(ask('a', x * 0.4).exec())\nreturn ok(x)"))
    assert (order_of(found), found.runs <= 24) == (", ".join(40 * ["a"]), True)


def test_untried_orders_are_not_claimed(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "RUNS", 5)
    monkeypatch.setattr(counterfactual, "RUNS", 5)
    found = found_of(repo, graph("return ok(out(ask('a', x).exec()) + out(ask('b', x).exec()))"))
    assert found.together == ()
    assert found.outcome == "unknown"
    assert "is unknown: the limit of 5 runs was reached" in found.sentence


@pytest.mark.slow
def test_a_run_that_never_ends_is_cancelled(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counterfactual, "SECONDS", 1.0)
    body = "a = out(ask('a', x).exec())\nwhile a.max() > 8:\n    pass\n"
    found_of(repo, graph(body + "return ok(a + out(ask('b', x).exec()))"))
    assert repo.infer("caller", X).error is None


@pytest.mark.slow
def test_the_serving_model_keeps_its_state(repo: bls.ModelRepository) -> None:
    """Neither the runs of the analysis nor their answers reach the instance that serves."""
    body = "self.n = getattr(self, 'n', 0) + 1\na = out(ask('a', x).exec())\nprint('from the model')\n"
    counting = graph(body + "return ok(out(ask('b', x).exec()) * 0 + self.n)")
    repo.define("caller", source_of(counting, ""), config=CONFIG)
    before = repo.infer("caller", X)["OUT"].as_numpy()[0]
    found = bls.overlap("caller", X, repo=repo)
    assert order_of(found) == "a+b"
    assert repo.infer("caller", X)["OUT"].as_numpy()[0] == before + 1


@pytest.mark.slow
def test_a_cache_of_the_model_hides_no_calls(repo: bls.ModelRepository) -> None:
    body = "if not hasattr(self, 'known'):\n    self.known = out(ask('a', x).exec()) + out(ask('b', x).exec())\n"
    found = found_of(repo, graph(body + "return ok(out(ask('c', x).exec()) + self.known)"))
    assert order_of(found) == "a+b+c"
    assert found.together == ((0, 1, 2),)
    assert all(call.line is not None for call in found.calls)


def test_chance_is_the_same_in_each_run_and_restored(repo: bls.ModelRepository) -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index]
    found = found_of(repo, graph("a = out(ask('a', x + np.random.rand(3)).exec())\nreturn ok(out(ask('b', a).exec()))"))
    assert (found.outcome, order_of(found)) == ("dependent", "a, b"), found.sentence
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]


@pytest.mark.slow
def test_every_free_axis_changes_and_the_inputs_are_those_of_the_cause(repo: bls.ModelRepository) -> None:
    config = CONFIG.replace("dims: [ -1 ] } ]\noutput", "dims: [ 1 ] reshape: { shape: [ ] } } ]\noutput")
    config = "max_batch_size: 4" + config.replace(
        '"OUT" data_type: TYPE_FP32 dims: [ -1 ]', '"OUT" data_type: TYPE_FP32 dims: [ -1, -1 ]'
    )
    answer = "answer = np.zeros((1, 2, 3), np.float32) + x.reshape(1, 1, 1)"
    repo.define("plane", CALLEE.replace("{delay}", "0").replace("{body}", answer), config=config)
    body = "a = out(ask('plane', [[1]]).exec())\nreturn ok(out(ask('b', x[:1] + a.shape[2]).exec()))"
    found = found_of(repo, graph(body))
    assert [d.reason for d in found.dependences] == [
        "`b` (line 24) needs the answer of `plane` (line 23): with that changed (wider), input `IN` changed, too"
    ]
    assert not found.notes  # a callee with a reshape gives the same answer again


def test_several_requests(repo: bls.ModelRepository) -> None:
    body = "a = out(ask('a', x + getattr(self, 'last', 0)).exec())\nself.last = a\n"
    found = found_of(repo, graph(body + "return ok(out(ask('b', a).exec()))"), n=3)
    assert [call.request for call in found.calls] == [0, 0, 1, 1, 2, 2]
    assert {(d.earlier, d.later) for d in found.dependences} == {(0, 1), (2, 3), (4, 5)}


@pytest.mark.slow
def test_requests_of_a_sequence_keep_their_order(repo: bls.ModelRepository) -> None:
    config = CONFIG + "sequence_batching { max_sequence_idle_microseconds: 60000000 }"
    source = CALLEE.replace("{delay}", "0").replace("{body}", "answer = x * 0 + self.count")
    repo.define("counter", source, config=config)
    body = "r = [ask('counter', x, flags=f, correlation_id=7).exec() for f in (1, 0, 2)]\n"
    body += "return ok(sum(map(out, r)) + out(ask('a', x).exec()))"
    example = graph(body)
    source = source_of(example, "").replace("def ask(model, x):", "def ask(model, x, **options):")
    repo.define("caller", source.replace("inputs=inputs)", "inputs=inputs, **options)"), config=CONFIG)
    found = bls.overlap("caller", X, repo=repo)
    assert order_of(found) == "a+counter, counter, counter"
    assert any("one sequence keep their order" in note for note in found.notes)


def test_requests_that_overlap_cannot_analyze(repo: bls.ModelRepository) -> None:
    failing = found_of(repo, graph("return ok(out(ask('fails', x).exec()))"))
    assert "a request fails" in failing.problem
    repo.set_config("pair", ENSEMBLE)
    with pytest.raises(bls.BLSError, match="is an ensemble"):
        bls.overlap("pair", X, repo=repo)
    with pytest.raises(bls.BLSError, match="n: got 0"):
        bls.overlap("a", X, n=0, repo=repo)


ENSEMBLE = f"""platform: "ensemble" {CONFIG}
ensemble_scheduling {{ step [ {{ model_name: "a" model_version: -1
    input_map {{ key: "IN" value: "IN" }} output_map {{ key: "OUT" value: "OUT" }} }} ] }}"""
GPU_CALLEE = """import cupy
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        arrays = [cupy.asarray(r.inputs()[0].as_numpy()) + 1 for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", a)]) for a in arrays]
"""


@pytest.mark.slow
def test_answers_stay_on_their_device() -> None:
    """A model that asks `is_cpu()` takes the same way with kept answers."""
    body = "import cupy\nparts = []\nfor m in ('one', 'other'):\n    t = ask(m, x).exec().output_tensors()[0]\n"
    body += "    assert not t.is_cpu()\n    parts.append(cupy.from_dlpack(t.to_dlpack()).get())\n"
    source = source_of(graph(body + "return ok(parts[0] + parts[1])"), "")
    wanted = "preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU), "
    bls.simulate_gpus(1, even_with_cuda=True)
    try:
        with bls.ModelRepository() as repo:
            for name in ("one", "other"):
                repo.define(name, GPU_CALLEE, config=CONFIG + "instance_group { kind: KIND_GPU }")
            source = source.replace("inputs=inputs", wanted + "inputs=inputs")
            repo.define("caller", source, config=CONFIG + "instance_group { kind: KIND_CPU }")
            found = bls.overlap("caller", X, repo=repo)
    finally:
        bls.simulate_gpus(0)
    assert order_of(found) == "one+other", found.sentence


# -- the code to write -------------------------------------------------------------------------------

LOOP = """results = []
for n, value in enumerate(x):
    tensor = np.array([value], np.float32)
    request = ask('a', tensor)
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    results.append(out(response) + n)
return ok(np.concatenate(results))"""
COROUTINES = """async def step(m):
    return out(ask(m, x).exec())
return ok(sum(await asyncio.gather(*[step(m) for m in ('a', 'b')])))"""
STATEMENTS = """first = ask('a', x)
first_response = first.exec()
if first_response.has_error():
    return pb_utils.InferenceResponse(error=first_response.error())
second = ask('b', x)
second_response = second.exec()
return ok(out(first_response) + out(second_response))"""


@pytest.fixture(scope="module")
def slow(place: str) -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        define_callees(repository, place, delay=0.02, instances=4)
        yield repository


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (LOOP, ("calls.append(request.async_exec())", "for (n, value), response in zip(items, await asyncio")),
        (COROUTINES, ("out(await ask(m, x).async_exec())", "ok(sum(await asyncio.gather(*[step(m) for")),
        (STATEMENTS, ("first_response, second_response = await asyncio.gather(",)),
        ("return ok(sum(out(ask('a', x + i).exec()) for i in range(3)))", ("for answer in await asyncio",)),
        ("return ok(sum({m: out(ask(m, x).exec()) for m in ('a', 'b')}.values()))", ("for m, answer in zip(",)),
    ],
    ids=("loop", "coroutines", "statements", "generator", "dict"),
)
def test_the_changed_program_is_proven(slow: bls.ModelRepository, body: str, lines: tuple[str, ...]) -> None:
    found = found_of(slow, graph(body, is_async="async " in body), apply=True, repeat=1)
    code = found.code
    assert code is not None
    assert all(line in code.source for line in lines), code.source
    assert "equal answers on 2 runs" in code.proof.lower()
    assert code.file == "caller/1/model.py"
    assert found.changed is not None
    shown = render(found)
    assert "asyncio.gather" in shown.text
    assert "asyncio.gather" in shown.html
    slow.define("caller", code.source, config=CONFIG)
    again = bls.overlap("caller", X, repo=slow)
    assert again.together == ()
    assert "already runs" in again.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return ok(sum(map(lambda m: out(ask(m, x).exec()), ('a', 'b'))))", "outside async function"),
        ("try:\n    a = out(ask('a', x).exec())\nfinally:\n    b = out(ask('b', x).exec())\nreturn ok(a + b)",
         "not in a form that can be changed"),
        ("y = x.copy()\na = out(ask('a', y).exec())\ny += 1\nreturn ok(a + out(ask('b', y).exec()))",
         "not in a form that can be changed"),
        ("a, b = out(ask('a', x).exec()), out(ask('b', x).exec())\nreturn ok(a + b + np.random.default_rng().random())",
         "its answer is another one"),
    ],
)  # fmt: skip
def test_other_forms_have_a_reason_and_a_template(slow: bls.ModelRepository, body: str, why: str) -> None:
    code = found_of(slow, graph(body)).code
    assert code is not None
    assert code.source == ""
    assert why in code.reason
    assert "request_1.async_exec(),  # `a`, sent at line " in code.template
    assert code.template.startswith("responses = await")


@pytest.mark.parametrize(
    ("source", "name"),
    [("response = 0", "responses"), ("responses = []", "answers"), ("responses answers", "answers_1")],
)
def test_a_template_overwrites_no_variable_of_the_model(source: str, name: str) -> None:
    assert template([], source).startswith(f"{name} = await asyncio.gather(")


@pytest.mark.slow
def test_requests_of_a_batch_are_independent(slow: bls.ModelRepository) -> None:
    answer = "out(await ask('a', x[0]).async_exec())[None]"
    body = f'return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", {answer})])'
    source = source_of(graph(body, is_async=True), "")
    batches = "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 50000 }"
    slow.define("batches", source, config=CONFIG + batches)
    found = bls.overlap("batches", {"IN": np.ones((1, 3), np.float32)}, apply=True, repeat=1, repo=slow)
    assert (found.outcome, found.batch) == ("independent", 4)
    assert "serves the requests of a batch one after the other (line " in found.sentence
    assert found.predicted > 1.2
    assert found.code is not None
    assert "return await asyncio.gather(*[self.one(pb_utils" in found.code.source
    assert "equal answers on 2 runs" in found.code.proof.lower()
    assert any("sends one call" in note for note in found.notes)
    late = CALLEE.format(delay=0.02, body="answer = x + (self.count % 25 == 0)")
    slow.define("a", late, config=CONFIG + "instance_group [ { count: 4 kind: KIND_CPU } ]")
    found = bls.overlap("batches", {"IN": np.ones((1, 3), np.float32)}, repo=slow)
    assert (found.outcome, "Whether the requests of a batch may be served" in found.sentence) == ("unknown", True)


STREAM = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for name in "a", "b":
                options = dict(model_name=name, requested_output_names=["OUT"], inputs=request.inputs())
                sender.send(pb_utils.InferenceResponse(pb_utils.InferenceRequest(**options).exec().output_tensors()))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.mark.slow
def test_a_stream_is_late_if_its_calls_are_gathered(slow: bls.ModelRepository) -> None:
    slow.define("streams", STREAM, config=CONFIG + "model_transaction_policy { decoupled: true }")
    notes = bls.overlap("streams", X, repo=slow).notes
    assert any(note.startswith("The first response of `streams` then comes after all gathered calls") for note in notes)
    assert not any(
        "gathered calls" in note
        for note in found_of(slow, graph("ask('a', x).exec(); ask('b', x).exec()\nreturn out(x)")).notes
    )


@pytest.mark.slow
def test_answers_may_come_in_any_order(slow: bls.ModelRepository) -> None:
    """Gathered coroutines that append to a list do so in the order of the answers: no change is written."""
    body = "acc = []\ndef step(m):\n    acc.append(out(ask(m, x).exec()))\nstep('a')\nstep('b')\n"
    code = found_of(slow, graph(body + "return ok(acc[0] - acc[1])")).code
    assert code is not None
    assert "depends on their order" in code.reason


@pytest.mark.slow
def test_too_few_instances_are_named(repo: bls.ModelRepository) -> None:
    found = found_of(repo, graph("return ok(sum(out(ask('a', x + i).exec()) for i in range(3)))"))
    assert "3 calls queue for fewer instances of `a`" in found.sentence
    assert found.together == ((0, 1, 2),)
    assert (found.code is None) == (found.predicted < schedule.WORTH)  # the caller's own work may have taken long
    model = ModelSeen("a", instances=("a_0",), max_batch_size=4, scheduler="dynamic_batching")
    batched = replace(found, written=replace(found.written, models=(model,)))
    assert not schedule.lacking(batched)  # a batch takes all three


def test_a_template_can_be_pasted() -> None:
    calls = [SentCall(name) for name in ("3d-model", "class", "a-b", "a_b", "a_b")]
    code = compile(f"async def f():\n{indent(proof.template(calls), '    ')}", "", "exec")
    assert "responses" in code.co_consts[0].co_varnames


@pytest.mark.slow
def test_without_libcst_one_line_says_how_to_get_it(slow: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bls_notebook.profiling.dependences.program_change", None)
    code = found_of(slow, graph(STATEMENTS)).code
    assert code is not None
    assert "pip install 'bls_notebook[overlap]'" in code.reason


def test_a_gain_that_the_gil_took_is_explained() -> None:
    models = (ModelSeen("a", instances=("a_0",)), ModelSeen("b", instances=("b_0",)))
    spans = (
        Span(1, "a", instance="a_0", thread=11, inferred=20 * MS, ended=20 * MS),
        Span(2, "b", instance="b_0", thread=12, started=10 * MS, inferred=30 * MS, ended=30 * MS),
    )
    run = Session(spans, models, wall=30 * MS, lock=(LockHeld(0, 10 * MS, (11,)),))
    assert "`b` waited 10 ms for the GIL: on a server, each instance has its own process" in proof.held_up(run, 20 * MS)
    assert not proof.held_up(run, 29 * MS), "it was as fast as predicted"
    assert not proof.held_up(replace(run, wall=60 * MS), 20 * MS), "most of the time went elsewhere"
    assert not proof.held_up(replace(run, lock=()), 20 * MS)


@pytest.mark.slow
def test_a_wrong_change_is_not_applied(slow: bls.ModelRepository) -> None:
    found = found_of(slow, graph(STATEMENTS))
    assert found.code is not None
    wrong = source_of(graph(STATEMENTS.replace("out(second_response))", "2 * out(second_response))")), "")
    runs = counterfactual.Runs(slow, "caller", [X])
    proven = proof.proven(runs, replace(found, code=replace(found.code, source=wrong)), 1)
    assert proven.code is not None
    assert proven.code.proof == "Not equal: the answers differ. Nothing is applied."
    unchanged = replace(found.code, source=source_of(graph(STATEMENTS), ""))
    proven = proof.proven(runs, replace(found, code=unchanged), 1)
    assert proven.code is not None
    assert "were not in flight together" in proven.code.proof


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["kernel", pytest.param("process", marks=no_processes)])
def test_models_of_folders_are_not_written_to(tmp_path: Path, place: str, isolation: str) -> None:
    folder = tmp_path / "caller" / "1"
    folder.mkdir(parents=True)
    source = source_of(graph(STATEMENTS), place).replace("import asyncio, ", "import ")
    (folder / "caller.py").write_text("import beside\n" + source)
    (folder / "beside.py").write_text("")
    (folder.parent / "config.pbtxt").write_text('backend: "python"\ndefault_model_filename: "caller.py"' + CONFIG)
    before = sorted(p.read_bytes() for p in folder.glob("*.py"))
    with bls.ModelRepository(tmp_path) as repo:
        define_callees(repo, place, delay=0.01)
        repo.load("caller", isolation=isolation)
        found = bls.overlap("caller", X, repo=repo, apply=True, repeat=1)
    assert found.code is not None
    assert (found.code.file, bool(found.code.folder)) == ("caller/1/caller.py", True)
    assert "import asyncio" in found.code.source
    assert "equal answers on 2 runs" in found.code.proof.lower()
    assert sorted(p.read_bytes() for p in folder.glob("*.py")) == before


# -- which answers to change -------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 8).flatmap(lambda n: st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))))
def test_groups_of_answers_find_every_dependence(pairs: set[tuple[int, int]]) -> None:
    direct = {(a, b) for a, b in pairs if a < b}
    count = 1 + max((b for _, b in direct), default=1)
    evidence = Evidence([set(range(n)) for n in range(count)])

    def run(group: set[int], change: int) -> RunDifference:
        changed = {b: ("IN",) for a, b in direct if a in group}
        return RunDifference(changed, set(range(count)) - set(changed), (), group)

    explore(evidence, range(3), run)
    assert evidence.ancestors() == closure(direct, count)
    assert not any(evidence.open(ENOUGH))  # every other pair was tried


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool", "object"])
def test_changes_are_diverse_and_keep_the_type(dtype: str) -> None:
    array = np.array([b"en", b"de 12"], object) if dtype == "object" else np.array([1, 0, 3]).astype(dtype)
    kept = (perturbation.KeptResponse({"OUT": array}),)
    made = [perturbation.changed(kept, change, 1, {}, {"OUT": [0]}) for change in range(len(perturbation.CHANGES) - 1)]
    arrays = [each[0].outputs["OUT"] for each in made if each is not None]
    assert len({repr(each.tolist()) for each in arrays}) >= (4 if dtype == "bool" else 6)
    assert {each.dtype for each in arrays} == {array.dtype}
    assert {len(each) for each in arrays} == {0, len(array) - 1, len(array), len(array) + 1}
    assert all(perturbation.content(each) != perturbation.content(array) for each in arrays)


# -- what the code names, and what no run reached ------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "outcome", "words"),
    [
        ("v = out(ask('a', x).exec())\nif 20.5 < v.max() < 20.6:\n    return ok(v)", "control", "set to 20.55"),
        ("v = out(ask('a', x).exec())\nif abs(v.sum() - 123) < 0.05:\n    return ok(v)", "control", "with the sum 123"),
        (
            "v = out(ask('a', x).exec())\nif zlib.crc32(v.tobytes()) == 5:\n    return ok(v)",
            "unknown",
            "was never reached; a request that reaches it, or code without it, settles it",
        ),
        (
            "v = out(ask('a', x).exec())\nw = 0 if v.ndim == 1 else 1",
            "unknown",
            "was always true; a request for which it is false, or code without it, settles it",
        ),
    ],
)
def test_branches_on_answers(repo: bls.ModelRepository, body: str, outcome: str, words: str) -> None:
    found = found_of(repo, graph(f"{body}\nreturn ok(v + out(ask('b', x).exec()))"))
    assert (found.outcome, words in found.sentence) == (outcome, True), found.sentence
    assert found.uncalled == ()


@pytest.mark.slow
def test_a_request_that_took_a_branch_and_sent_no_later_call_leaves_it_in_doubt(repo: bls.ModelRepository) -> None:
    body = "v = out(ask('a', x).exec())\nif v.max() > 1e30:\n    return ok(v)\nreturn ok(v + out(ask('b', x).exec()))"
    assert "was never reached" in found_of(repo, graph(body)).sentence
    found = bls.overlap("caller", [X, {"IN": np.full_like(X["IN"], 1e35)}], n=2, repo=repo)
    assert found.outcome == "unknown"
    assert "after it, another request sent no call in line" in found.sentence


@pytest.mark.slow
def test_versions_and_time_limits_are_what_a_model_sends(repo: bls.ModelRepository) -> None:
    body = "v = out(ask('a', x).exec())\nb = ask('b', x, timeout=int(1e6 + abs(v[0])))\nreturn ok(out(b.exec()))"
    found = found_of(repo, graph(body))
    assert (found.outcome, OPTIONS in found.sentence) == ("dependent", True), found.sentence


def test_a_call_after_a_time_out_is_a_reaction(repo: bls.ModelRepository) -> None:
    body = """
waiting = asyncio.ensure_future(ask('late', x).async_exec())
await asyncio.wait([waiting], timeout=0.1)
y = x if waiting.done() else out(await ask('b', x).async_exec())
return ok(y + out(await waiting))
"""
    repo.define("late", CALLEE.format(delay=0.8, body="answer = x"), config=CONFIG)
    found = found_of(repo, graph(body.strip(), is_async=True))
    assert (found.outcome, "is not answered in time" in found.sentence) == ("control", True), found.sentence


@pytest.mark.slow
def test_a_callee_that_another_one_prepares_has_state(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.bls_keys", set(), raising=False)
    bodies = {"register": "os.bls_keys.add(x.tobytes())", "query": "1 / (x.tobytes() in os.bls_keys)"}
    for name, body in bodies.items():
        body = f"import os; {body}; answer = x"
        repo.define(name, CALLEE.format(delay=0, body=body), config=CONFIG)
    found = found_of(repo, graph("a = out(ask('register', x).exec())\nreturn ok(out(ask('query', x).exec()))"))
    assert (found.outcome, "`query` depend on earlier requests" in found.sentence) == ("unknown", True), found.sentence


def test_state_that_shows_late_leaves_calls_in_doubt(repo: bls.ModelRepository) -> None:
    for name in "ef":
        repo.define(name, CALLEE.format(delay=0, body="answer = x + (self.count % 25 == 0)"), config=CONFIG)
    found = found_of(repo, graph("return ok(out(ask('e', x).exec()) + out(ask('e', x + 1).exec()))"))
    assert (found.outcome, "state in common, `self.count` (line" in found.sentence) == ("unknown", True)
    found = found_of(repo, graph("return ok(out(ask('e', x).exec()) + out(ask('f', x + 1).exec()))"))
    assert found.outcome == "independent", found.sentence


def test_state_that_the_caller_sets_for_a_callee_leaves_calls_in_doubt(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLS_OVERLAP", "0")
    reads = "import os; answer = x + np.float32(os.environ['BLS_OVERLAP'])"
    repo.define("reads", CALLEE.format(delay=0, body=reads), config=CONFIG)
    body = "os.environ['BLS_OVERLAP'] = str(out(ask('a', x).exec()).sum())\nreturn ok(out(ask('reads', x).exec()))"
    found = found_of(repo, graph(body))
    assert (found.outcome, "`reads` have state in common, `os.environ` (line" in found.sentence) == ("unknown", True)


def test_values_of_helpers_and_of_lists_in_parameters_are_tried() -> None:
    sources = "x = 7", "a syntax error", "def skip(s):\n    return 0.25 < s < 0.5"
    found = {named.value for named in named_values(sources, ["dog;person", '{"low": 0.75}'])}
    assert {7, 0.25, 0.375, 0.5, "dog", "person", 0.75} <= found
