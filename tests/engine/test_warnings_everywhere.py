"""Every scheduler tells what Triton passes in silence."""

from __future__ import annotations

import numpy as np
import pytest

import bls_notebook as bls
from tests.engine.warned import X, config, model, returning, warnings_of

# -- every way through the engine ----------------------------------------------------------------------

# An answer of two elements where one is declared; and one that calls another model the wrong way.
WRONG = "return [pb.InferenceResponse([tensor('Y', np.ones(x(r).shape[:-1] + (2,)))]) for r in requests]"
SEQUENCE = """
sequence_batching {{ {} max_sequence_idle_microseconds: 1000000 control_input [ {{ name: "START" control [
  {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} ] }} ] }}
"""
WAYS = {
    "default": "max_batch_size: 0\n",
    "dynamic": "max_batch_size: 4\ndynamic_batching {}\n",
    "direct": "max_batch_size: 1\n" + SEQUENCE.format("direct {}"),
    "oldest": "max_batch_size: 1\n" + SEQUENCE.format("oldest {}"),
    "cached": "max_batch_size: 0\nresponse_cache { enable: true }\n",
    "cached batches": "max_batch_size: 4\ndynamic_batching {}\nresponse_cache { enable: true }\n",
}
TENSORS = """
instance_group [ { count: 1, kind: KIND_CPU } ]
input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 1 ] } ]
"""


def sent_to(way: str) -> dict[str, object]:
    rows = "max_batch_size: 0" not in WAYS[way]
    more: dict[str, object] = {"correlation_id": 7, "flags": 3} if "sequence" in WAYS[way] else {}
    return {"inputs": {"X": np.ones((1, 1) if rows else (1,), np.float32)}, **more}


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("way", WAYS)
def test_every_scheduler_tells(repo: bls.ModelRepository, strict: bls.ModelRepository, way: str, kind: str) -> None:
    source = model(f"{kind} execute(self, requests): {WRONG}")
    for each in (repo, strict):
        each.define("m", source, WAYS[way] + TENSORS)
    call = sent_to(way)
    for _ in range(3):  # the cache answers from the second on
        answer = repo.infer("m", **call)  # type: ignore[arg-type]
        assert answer.error is None, answer.error.message()
        assert any("output 'Y': got shape" in w for w in answer.warnings), answer.warnings
        error = strict.infer("m", **call).error  # type: ignore[arg-type]
        assert error is not None
        assert error.message().startswith("Model m - strict: ")


@pytest.mark.parametrize("way", WAYS)
def test_what_any_scheduler_passes_on_comes_up(repo: bls.ModelRepository, way: str) -> None:
    """To the one who called: by exec, by async_exec, from the cache too."""
    repo.define("callee", model(f"def execute(self, requests): {WRONG}"), WAYS[way] + TENSORS)
    call = sent_to(way)
    options = "".join(f", {key}={value}" for key, value in call.items() if key != "inputs")
    rank = call["inputs"]["X"].ndim  # type: ignore[index]
    request = f"""pb.InferenceRequest(model_name="callee", requested_output_names=["Y"],
                inputs=[pb.Tensor("X", np.ones([1] * {rank}, np.float32))]{options})"""
    for name, kind, send in (
        ("sync", "def", f"{request}.exec()"),
        ("asynchronous", "async def", f"await {request}.async_exec()"),
    ):
        repo.define(name, model(f"""
            {kind} execute(self, requests):
                answer = {send}
                assert not answer.has_error(), answer.error().message()
                return [pb.InferenceResponse([tensor("Y", [1])])]
        """), config())  # fmt: skip
        for _ in range(2):
            assert any("model 'callee', output 'Y'" in w for w in warnings_of(repo, name))


@pytest.mark.parametrize("way", WAYS)
def test_exec_of_any_scheduler_in_an_async_execute(repo: bls.ModelRepository, way: str) -> None:
    right = "return [pb.InferenceResponse([pb.Tensor('Y', x(r))]) for r in requests]"
    repo.define("callee", model(f"def execute(self, requests): {right}"), WAYS[way] + TENSORS)
    call = sent_to(way)
    options = "".join(f", {key}={value}" for key, value in call.items() if key != "inputs")
    rank = call["inputs"]["X"].ndim  # type: ignore[index]
    repo.define("m", model(f"""
        async def execute(self, requests):
            answer = pb.InferenceRequest(model_name="callee", requested_output_names=["Y"],
                inputs=[pb.Tensor("X", np.ones([1] * {rank}, np.float32))]{options}).exec()
            assert not answer.has_error(), answer.error().message()
            return [pb.InferenceResponse([tensor("Y", [1])])]
    """), config())  # fmt: skip
    for _ in range(2):
        (warning,) = warnings_of(repo)
        assert "exec of 'callee' inside an async execute" in warning


ENSEMBLE = """
platform: "ensemble"
input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1
    input_map { key: "X" value: "X" } output_map { key: "Y" value: "M" } },
  { model_name: "second" model_version: -1
    input_map { key: "X" value: "M" } output_map { key: "Y" value: "Y" } }
] }
"""


def test_warnings_of_steps_are_the_ensembles(repo: bls.ModelRepository, strict: bls.ModelRepository) -> None:
    for each in (repo, strict):
        each.define("first", returning("tensor('Y', [1, 2])"), config("Y FP32 1"))
        each.define("second", returning("pb.Tensor('Y', x(r))"), config("Y FP32 -1"))
        each.define("m", "", ENSEMBLE)
        each.define("caller", model("""
            async def execute(self, requests):
                return [await ask("m").async_exec()]
        """), config("Y FP32 -1"))  # fmt: skip
        each.define("blocking", model("""
            async def execute(self, requests):
                return [ask("m").exec()]
        """), config("Y FP32 -1"))  # fmt: skip
    for _ in range(2):
        for name in ("m", "caller"):
            (warning,) = warnings_of(repo, name)
            assert "model 'first', output 'Y': got shape [2]" in warning
        found = warnings_of(repo, "blocking")
        assert any("exec of 'm' inside an async execute" in w for w in found)
    error = strict.infer("m", X).error
    assert error is not None
    assert error.message().startswith("in ensemble 'm', Model first - strict: ")
    repo.define("first", returning("tensor('Y', [1])"), config("Y FP32 1"))
    assert warnings_of(repo, "m") == ()


def test_an_ensemble_that_streams_tells_too(repo: bls.ModelRepository) -> None:
    repo.define("first", returning("tensor('Y', [1])"), config("Y FP32 1"))
    repo.define("second", model("""
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            sender.send(pb.InferenceResponse([tensor("Y", [1, 2])]))
            sender.send(flags=FINAL)
    """), config("Y FP32 1", decoupled=True))  # fmt: skip
    repo.define("m", "", ENSEMBLE + "model_transaction_policy { decoupled: true }")
    assert any("output 'Y': got shape [2]" in w for r in repo.stream("m", X) for w in r.warnings)


def test_warnings_in_the_cache_obey_strict_when_it_is_switched_on(repo: bls.ModelRepository) -> None:
    repo.define("m", returning("tensor('Y', [1, 2])"), "response_cache { enable: true }\n" + config("Y FP32 1"))
    assert len(warnings_of(repo)) == 1
    repo.strict = True
    assert repo.infer("m", X).error is not None


def test_an_iterative_sequence_that_is_never_finalised(repo: bls.ModelRepository) -> None:
    source = model("""
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            sender.send(pb.InferenceResponse([tensor("Y", [[1, 2]])]))
    """)
    iterative = "max_batch_size: 1\nsequence_batching { iterative_sequence: true }\n"
    decoupled = "model_transaction_policy { decoupled: true }\n"
    repo.define("m", source, iterative + decoupled + TENSORS)
    first, last = repo.stream("m", {"X": np.ones((1, 1), np.float32)})
    assert "output 'Y': got shape [1, 2]" in first.warnings[0]
    assert last.error is not None
    assert "dropped before its final flag" in last.error.message()
