"""Ensembles, as a real tritonserver 2.51 runs them, with plain and decoupled steps."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.ensembles import SUM, chain, ensemble, with_steps
from tests.engine.harness import Caller, ctrl_c_once, idle, infer, ints, message, queued, until, value
from tests.engine.sources import GATED, caller_of, model, pbtxt

TELL = model("""
import json
def execute(self, requests):
    out = []
    for r in requests:
        told = dict(id=r.request_id(), correlation=r.correlation_id(), flags=r.flags(), timeout=r.timeout(),
                    parameters=r.parameters(), outputs=sorted(r.requested_output_names()),
                    inputs=[t.name() for t in r.inputs()])
        gates.log.put(told)
        out.append(answer(0))
    return out
""")

ECHO = model("def execute(self, requests): return [echo(r) for r in requests]")


@pytest.fixture
def models(repo: bls.ModelRepository) -> bls.ModelRepository:
    return with_steps(repo)


def test_two_outputs_of_which_one_is_an_input_of_a_later_step(models: bls.ModelRepository) -> None:
    models.define("e", "", ensemble(
        ("double", {"X": "X"}, {"Y": "Y"}), ("double", {"X": "Y"}, {"Y": "Z"}), outputs="Y Z",
    ))  # fmt: skip
    both = models.infer("e", ints(3)).as_numpy()
    assert (both["Y"][0], both["Z"][0]) == (6, 12)
    for output in "YZ":  # as on the server, which leaves out the step of an output that is not requested
        response = models.infer("e", ints(3), outputs=[output], request_id="q")
        assert message(response) == (
            "in ensemble 'e', [request id: q] unexpected deadlock, at least one output is not set while no more "
            "ensemble steps can be made"
        )
        assert response.error.code().name == "INVALID_ARG"
        assert "request all outputs of `e` (`Y`, `Z`)" in str(response.record.error.hint)
    models.define("inner", "", chain("e"))
    models.define("caller", caller_of("inner"), pbtxt())
    response = models.infer("caller", ints(3))
    assert "request all outputs of `e`" in str(response.record.error.hint)


# Steps (model, the tensors that it reads, the tensors that it writes), and the requests for some of the outputs that
# tritonserver 2.51 answers with the error.
STARVING = [
    ([("two", "X", "A B"), ("plus", "B", "C")], "ABC", "A B C"),  # B counts twice if A is requested
    ([("two", "X", "A B"), ("plus", "V", "C")], "ABC", "A B"),  # the unwanted input V counts against the first step
    ([("two", "X", "A t"), ("plus", "t", "C")], "AC", ""),
]


@pytest.mark.parametrize(("steps", "outputs", "starving"), STARVING)
def test_requests_for_some_outputs_that_deadlock(
    models: bls.ModelRepository, steps: list[tuple[str, str, str]], outputs: str, starving: str
) -> None:
    two = "return [pb.InferenceResponse([pb.Tensor(n, r.inputs()[0].as_numpy()) for n in 'YZ']) for r in requests]"
    models.define("two", model(f"def execute(self, requests): {two}"), pbtxt(outputs="Y:INT32 Z:INT32"))
    maps = [(name, {"X": reads}, dict(zip("YZ", writes.split(), strict=False))) for name, reads, writes in steps]
    inputs = sorted({"X", *(reads for _, reads, _ in steps if reads == "V")})
    models.define("e", "", ensemble(*maps, inputs=" ".join(inputs), outputs=" ".join(outputs)))
    sent = {name: np.ones(1, np.int32) for name in inputs}
    subsets = ["".join(s) for n in range(1, len(outputs) + 1) for s in itertools.combinations(outputs, n)]
    failed = [subset for subset in subsets if models.infer("e", sent, outputs=list(subset)).error is not None]
    assert failed == starving.split()


def test_steps_that_nothing_needs_are_left_out(models: bls.ModelRepository) -> None:
    models.define("e", "", ensemble(
        ("plus", {"X": "X"}, {"Y": "Y"}), ("raises", {"X": "X"}, {"Y": "Z"}), outputs="Y Z",
    ))  # fmt: skip
    assert list(models.infer("e", ints(1), outputs=["Y"])) == ["Y"]
    assert message(models.infer("e", ints(1), outputs=["Z"])).startswith("in ensemble 'e', Failed to process")


def test_chains_and_ensembles_in_ensembles(models: bls.ModelRepository) -> None:
    models.define("inner", "", chain("double", "plus"))
    models.define("outer", "", chain("inner", "inner"))
    assert infer(models, "outer", 1) == 7
    models.define("e", "", chain("double", "plus", "double"))
    assert infer(models, "e", 5) == 22


def test_ensemble_steps_get_id_flags_timeout_and_parameters(models: bls.ModelRepository) -> None:
    models.define("tell", TELL, pbtxt())
    models.define("e", "", chain("tell", "tell"))
    response = models.infer("e", ints(1), request_id="id", correlation_id=5, flags=1, timeout=7,
                            parameters={"a": 1})  # fmt: skip
    told = {"id": "id", "correlation": 5, "flags": 1, "timeout": 7, "parameters": '{"a":1}',
            "outputs": ["Y"], "inputs": ["X"]}  # fmt: skip
    assert gates.logged() == [told, told]
    assert response.parameters() == {"sequence_id": 5, "sequence_start": True, "sequence_end": False}


def test_an_empty_output_says_nothing_of_the_sequence(models: bls.ModelRepository) -> None:
    models.define("echo", ECHO, pbtxt())
    models.define("e", "", chain("echo"))
    assert models.infer("e", ints(1), correlation_id=5).parameters()
    assert not models.infer("e", {"X": np.zeros(0, np.int32)}, correlation_id=5).parameters()


def test_optional_inputs_are_left_out_of_the_step(models: bls.ModelRepository) -> None:
    config = pbtxt(inputs="X:INT32") + '\ninput [ { name: "O" data_type: TYPE_INT32 dims: [ -1 ] optional: true } ]'
    models.define("tell", TELL, config)
    models.define("e", "", ensemble(("tell", {"X": "X", "O": "O"}, {"Y": "Y"}), inputs="X O?"))
    assert models.infer("e", ints(1)).error is None
    assert models.infer("e", {**ints(1), "O": np.array([1], np.int32)}).error is None
    assert [sorted(t["inputs"]) for t in gates.logged()] == [["X"], ["O", "X"]]


def batching(dims: str = "2", batch: int = 4) -> str:
    return (
        f"max_batch_size: {batch}\n"
        f'input [ {{ name: "X" data_type: TYPE_INT32 dims: [ {dims} ] }} ]\n'
        f'output [ {{ name: "Y" data_type: TYPE_INT32 dims: [ {dims} ] }} ]'
    )


WHOLE = model("""
def execute(self, requests):
    return [pb.InferenceResponse([pb.Tensor("Y", r.inputs()[0].as_numpy() + 1)]) for r in requests]
""")


def test_batches_between_models_that_batch_and_those_that_do_not(repo: bls.ModelRepository) -> None:
    repo.define("batches", WHOLE, batching())
    repo.define("whole", WHOLE, batching("-1, 2", 0))
    repo.define("rows", WHOLE, batching("2", 0))
    two, one = np.zeros((2, 2), np.int32), np.zeros((1, 2), np.int32)

    def through(member: str, array: np.ndarray[Any, Any], batch: int, dims: str) -> Any:
        config = ensemble(("batches", {"X": "X"}, {"Y": "t"}), (member, {"X": "t"}, {"Y": "Y"}), batch=batch)
        repo.define("e", "", config.replace("-1 ]", f"{dims} ]"))
        return repo.infer("e", {"X": array})

    assert through("whole", two, 4, "2")["Y"].as_numpy().tolist() == [[2, 2], [2, 2]]
    assert through("rows", one, 4, "2")["Y"].as_numpy().tolist() == [[2, 2]]
    refused = through("rows", two, 4, "2")
    assert "unexpected shape for input 'X' for model 'rows'. Expected [2], got [2,2]" in message(refused)
    assert refused.error.code().name == "INVALID_ARG"
    assert through("rows", one[0], 0, "2")["Y"].as_numpy().tolist() == [2, 2]
    five = through("whole", np.zeros((5, 2), np.int32), 0, "-1, 2")
    assert message(five) == (
        "in ensemble 'e', [request id: <id_unknown>] inference request batch-size must be <= 4 for 'batches'"
    )


def test_a_step_that_raises(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("plus", "raises", "double"))
    response = models.infer("e", ints(1))
    assert message(response).startswith(
        "in ensemble 'e', Failed to process the request(s) for model 'raises_0_0', message: ValueError: no good"
    )
    assert response.record.error.chain == ("e", "raises")
    assert [f.line > 0 for f in response.record.error.frames] == [True]
    models.define("outer", "", chain("plus", "e"))
    assert message(models.infer("outer", ints(1))).startswith("in ensemble 'outer', in ensemble 'e', Failed")


def test_an_output_that_a_step_does_not_give(models: bls.ModelRepository, caplog: pytest.LogCaptureFixture) -> None:
    models.define("first", "", chain("silent", "plus"))
    models.define("last", "", chain("silent"))
    assert message(models.infer("first", ints(1), request_id="q")) == (
        "in ensemble 'first', [request id: q] expected 1 inputs but got 0 inputs for model 'plus'. "
        "Got input(s) [], but missing required input(s) ['X']. Please provide all required input(s)."
    )
    with caplog.at_level("DEBUG", "bls_notebook"):
        response = models.infer("last", ints(1))
    assert response.error is None
    assert list(response) == []
    assert "Composing models did not output tensor Y" in caplog.messages


def test_wrong_requests_to_an_ensemble(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("plus"))
    assert "data-type is 'FP32', but model 'e' expects 'INT32'" in message(
        models.infer("e", {"X": np.zeros(1, np.float32)})
    )
    assert "unexpected inference output 'Q' for model 'e'" in message(models.infer("e", ints(1), outputs=["Q"]))


def test_one_branch_fails_while_another_runs(models: bls.ModelRepository) -> None:
    """The error comes once the other branch has ended, as on Triton."""
    gated = GATED.replace("    return [answer", "    gates.count('ended')\n        return [answer")
    models.define("waits", gated, pbtxt())
    models.define("e", "", ensemble(
        ("waits", {"X": "X"}, {"Y": "a"}), ("raises", {"X": "X"}, {"Y": "b"}),
        ("sum", {"A": "a", "B": "b"}, {"Y": "Y"}),
    ))  # fmt: skip
    caller = Caller(models.infer, "e", ints(1))
    gates.pass_gate("begun")
    assert not caller.done
    gates.open_gate("go on")
    assert "no good" in message(caller.result())
    assert gates.counts["ended"] == 1


MEET = model("""
def execute(self, requests):
    gates.shared["barrier"].wait(gates.LIMIT)
    return [answer(number(r)) for r in requests]
""")


def test_steps_that_do_not_need_each_other_run_side_by_side(models: bls.ModelRepository) -> None:
    gates.shared["barrier"] = threading.Barrier(3)
    for name in "abc":
        models.define(name, MEET, pbtxt())
    models.define("sum3", SUM.replace('number(r, "A") +', 'number(r, "A") + number(r, "C") +'),
                  pbtxt(inputs="A:INT32 B:INT32 C:INT32"))  # fmt: skip
    models.define("e", "", ensemble(
        *[(name, {"X": "X"}, {"Y": name.upper()}) for name in "abc"],
        ("sum3", {n: n for n in "ABC"}, {"Y": "Y"}),
    ))  # fmt: skip
    assert infer(models, "e", 4) == 12
    assert asyncio.run(models.infer_async("e", ints(5)))["Y"].as_numpy()[0] == 15


def test_a_branch_goes_on_while_the_caller_runs_another(models: bls.ModelRepository) -> None:
    models.define("last", model('''
def execute(self, requests):
    gates.open_gate("went on")
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    models.define("long", model('''
def execute(self, requests):
    gates.pass_gate("went on")
    return [answer(2)]
'''), pbtxt())  # fmt: skip
    for order in (1, -1):
        gates.gate("went on").clear()
        branches = [("long", {"X": "X"}, {"Y": "a"}), ("plus", {"X": "X"}, {"Y": "t"})]
        models.define("e", "", ensemble(
            *branches[::order], ("last", {"X": "t"}, {"Y": "b"}), ("sum", {"A": "a", "B": "b"}, {"Y": "Y"}),
        ))  # fmt: skip
        assert infer(models, "e", 1) == 3


INFLIGHT = "ensemble_scheduling {\nmax_inflight_requests: 1"


def test_requests_to_an_ensemble_share_the_slots_of_a_step(models: bls.ModelRepository) -> None:
    """As on a server since 26.04: at most `max_inflight_requests` requests of a step, in the order of arrival."""
    models.define("gated", model("""
def execute(self, requests):
    gates.log.put(number(requests[0]))
    gates.open_gate(f"begun {number(requests[0])}")
    gates.pass_gate(f"end {number(requests[0])}")
    return [answer(number(r)) for r in requests]
"""), pbtxt(3))  # fmt: skip
    models.define("e", "", chain("plus", "gated").replace("ensemble_scheduling {", INFLIGHT))
    callers = [Caller(infer, models, "e", 1)]
    gates.pass_gate("begun 2")
    for n in (2, 3):
        callers.append(Caller(infer, models, "e", n))
        until(lambda n=n: len(models._server.find("e").scheduler._limits[1]._waiting) == n - 1)
    for n in (2, 3, 4):
        gates.pass_gate(f"begun {n}")
        assert gates.logged() == [n]
        gates.open_gate(f"end {n}")
    assert [caller.result() for caller in callers] == [2, 3, 4]
    assert infer(models, "e", 1) == 2


def test_responses_of_a_decoupled_step_share_the_slots_of_the_next(models: bls.ModelRepository) -> None:
    config = ensemble(("countdown", {"X": "X"}, {"Y": "t"}), ("raises", {"X": "t"}, {"Y": "Y"}))
    models.define("e", "", config.replace("ensemble_scheduling {", INFLIGHT))
    for _ in range(2):  # errors free their slots, too
        assert "no good" in message([*models.stream("e", ints(500))][-1])
    models.define("e", "", config.replace("raises", "plus").replace("ensemble_scheduling {", INFLIGHT))
    assert streamed(models, "e", 500) == [n + 1 for n in range(500, 0, -1)]


def test_a_step_whose_queue_is_full_fails_the_ensemble(models: bls.ModelRepository) -> None:
    models.define("gated", GATED, f"{pbtxt()}\ndynamic_batching {{ default_queue_policy {{ max_queue_size: 1 }} }}")
    models.define("e", "", chain("plus", "gated"))
    callers = [Caller(infer, models, "e", 1)]
    gates.pass_gate("begun")
    callers.append(Caller(infer, models, "e", 2))
    until(lambda: queued(models, "gated") == 1)
    assert message(models.infer("e", ints(3))) == (
        "in ensemble 'e', [request id: <id_unknown>] Exceeds maximum queue size"
    )
    found = models.statistics("e")["model_stats"][0]["inference_stats"]["fail"]["count"]
    assert found == 2  # recorded: nothing else of the request runs
    gates.open_gate("go on")
    assert [caller.result() for caller in callers] == [2, 3]


def test_large_tensors_move_from_step_to_step(repo: bls.ModelRepository) -> None:
    repo.define("same", model('''
def execute(self, requests):
    array = requests[0].inputs()[0].as_numpy()
    gates.log.put(array.__array_interface__["data"][0])
    array += 1
    del requests
    return [pb.InferenceResponse([pb.Tensor("Y", array)])]
'''), pbtxt())  # fmt: skip
    repo.define("e", "", chain("same", "same", "same"))
    mine = np.zeros(100_000, np.int32)
    out = repo.infer("e", {"X": mine})["Y"].as_numpy()
    assert mine.sum() == 0
    assert (out == 3).all()
    where = gates.logged()
    assert where[1] == where[2] == out.__array_interface__["data"][0]


def test_a_tensor_that_two_steps_read_is_each_ones_own(models: bls.ModelRepository) -> None:
    models.define("writes", model('''
def execute(self, requests):
    array = requests[0].inputs()[0].as_numpy()
    array += 100
    return [answer(int(array[0]))]
'''), pbtxt())  # fmt: skip
    models.define("e", "", ensemble(
        ("plus", {"X": "X"}, {"Y": "t"}),
        ("writes", {"X": "t"}, {"Y": "a"}), ("writes", {"X": "t"}, {"Y": "b"}),
        ("sum", {"A": "a", "B": "b"}, {"Y": "Y"}),
    ))  # fmt: skip
    assert infer(models, "e", 1) == 204


BRANCHES = ensemble(
    ("plus", {"X": "X"}, {"Y": "a"}), ("caller", {"X": "X"}, {"Y": "b"}), ("sum", {"A": "a", "B": "b"}, {"Y": "Y"})
)


@pytest.mark.parametrize("steps", [chain("plus", "caller"), BRANCHES], ids=["chain", "branches"])
def test_a_circle_through_an_ensemble_is_refused(models: bls.ModelRepository, steps: str) -> None:
    models.define("caller", caller_of("e", 1), pbtxt())
    models.define("e", "", steps)
    problem = message(models.infer("caller", ints(1)))
    assert "circular BLS: caller -> e -> caller" in problem
    assert "instance_group.count = 2" in problem


def test_a_circle_that_closes_late_and_in_the_background_is_refused(models: bls.ModelRepository) -> None:
    models.define("slow", model('''
def execute(self, requests):
    gates.pass_gate("asleep")
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    models.define("caller", model('''
async def execute(self, requests):
    waiting = ask("e", 1).async_exec()
    gates.open_gate("sent")
    return [answer(value_of(await waiting))]
'''), pbtxt())  # fmt: skip
    models.define("e", "", chain("slow", "caller"))
    caller = Caller(models.infer, "caller", ints(1))
    gates.pass_gate("sent")
    found = models._server.find("caller")
    assert found is not None
    until(lambda: found.instances[0].loop.selector.idle, "the caller's loop sleeps")
    gates.open_gate("asleep")
    assert "circular BLS: caller -> e -> caller" in message(caller.result())


def test_no_circle_where_an_instance_is_left(models: bls.ModelRepository) -> None:
    models.define("caller", model('''
def execute(self, requests):
    if number(requests[0]) < 2:
        return [answer(number(requests[0]))]
    return [answer(value_of(ask("e", 0).exec()))]
'''), pbtxt(2))  # fmt: skip
    models.define("e", "", chain("plus", "caller"))
    assert infer(models, "caller", 2) == 1


def test_ctrl_c_reaches_the_steps(models: bls.ModelRepository) -> None:
    models.define("long", model('''
def execute(self, requests):
    gates.open_gate("began")
    while not requests[0].is_cancelled() and not gates.over[0]:
        gates.gate("never").wait(0.001)
    return [answer(1)]
'''), pbtxt())  # fmt: skip
    models.define("e", "", chain("long", "plus"))

    with ctrl_c_once(lambda: gates.gate("began").is_set()):
        infer(models, "e", 1)
    until(lambda: idle(models, "long") == 1)
    assert infer(models, "plus", 1) == 2


@pytest.mark.parametrize("leaves", ["plus", "e"])
def test_a_request_in_flight_is_finished_before_an_unload(models: bls.ModelRepository, leaves: str) -> None:
    models.define("waits", GATED, pbtxt())
    models.define("e", "", chain("waits", "plus"))
    caller = Caller(models.infer, "e", ints(1))
    gates.pass_gate("begun")
    unload = Caller(models.unload, leaves)
    until(lambda: not models.ready("e"))
    states = {r.name: r.state for r in models.index()}
    assert states["e"] == "UNLOADING"
    gates.open_gate("go on")
    assert value(caller.result()) == 2
    unload.result()
    assert {r.name: r.state for r in models.index()}[leaves] == "UNAVAILABLE"
    assert "has no available versions" in message(models.infer("e", ints(1)))


def test_a_model_that_two_steps_name_in_different_ways_can_leave(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("double", "double/1"))
    assert infer(models, "e", 5) == 20
    Caller(models.unload, "double").result()
    assert {r.name: r.state for r in models.index()}["double"] == "UNAVAILABLE"


def streamed(repo: bls.ModelRepository, name: str, x: int, output: str = "Y") -> list[Any]:
    return [
        "error" if r.error is not None else int(r[output].as_numpy()[0]) if output in r else None
        for r in repo.stream(name, ints(x))
    ]


def test_a_decoupled_step_makes_a_decoupled_ensemble(models: bls.ModelRepository) -> None:
    record = models.define("e", "", chain("countdown", "double"))
    assert record.decoupled
    assert models.config("e").model_transaction_policy.decoupled
    assert [v for v in streamed(models, "e", 3) if v is not None] == [6, 4, 2]
    assert [v for v in streamed(models, "e", 0) if v is not None] == []
    assert "using the decoupled" in message(models.infer("e", ints(1)))


def test_a_decoupled_step_does_not_go_with_a_response_cache(models: bls.ModelRepository) -> None:
    cached = "response_cache { enable: true }"
    words = "Response Cache does not currently support model {} with 'decoupled' transaction policy"
    models.define("inner", "", chain("countdown", "double"))
    for name, steps in {"e": ("countdown", "double"), "f": ("plus", "inner")}.items():
        with pytest.raises(bls.ModelLoadError, match=words.format(name)):
            models.define(name, "", chain(*steps) + cached)
        assert not models.ready(name)
    models.define("e", "", chain("plus", "double") + cached)


def test_responses_of_a_decoupled_step_stay_apart(models: bls.ModelRepository) -> None:
    models.define("e", "", ensemble(
        ("countdown", {"X": "X"}, {"Y": "t"}),
        ("double", {"X": "t"}, {"Y": "a"}), ("plus", {"X": "t"}, {"Y": "b"}),
        ("sum", {"A": "a", "B": "b"}, {"Y": "Y"}),
    ))  # fmt: skip
    assert sorted(v for v in streamed(models, "e", 40) if v is not None) == [3 * n + 1 for n in range(1, 41)]


def test_decoupled_after_decoupled(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("countdown", "countdown"))
    assert sorted(v for v in streamed(models, "e", 3) if v is not None) == [1, 1, 1, 2, 2, 3]


def test_an_error_ends_the_stream(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("countdown", "raises"))
    last = list(models.stream("e", ints(2)))[-1]
    assert last.final
    assert message(last).startswith("in ensemble 'e', Failed to process")


def test_an_ensemble_that_is_not_decoupled_can_be_streamed(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("plus", "double"))
    assert streamed(models, "e", 1) == [4]


def test_of_two_outputs_of_one_name_the_next_step_gets_the_first(models: bls.ModelRepository) -> None:
    two = "[pb.InferenceResponse([pb.Tensor('Y', np.array([v], np.int32)) for v in (7, 8)]) for _ in requests]"
    models.define("two", model(f"def execute(self, requests): return {two}"), pbtxt())
    models.define("e", "", chain("two", "double"))
    assert value(models.infer("e", ints(1))) == 14
