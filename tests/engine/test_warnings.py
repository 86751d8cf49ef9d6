"""Warnings about mistakes that Triton accepts silently; in a strict repository, errors."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import bls_notebook as bls

HEAD = """
import asyncio
import weakref
import numpy as np
import triton_python_backend_utils as pb

FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL

def x(request):
    return pb.get_input_tensor_by_name(request, "X").as_numpy()

def tensor(name, value):
    return pb.Tensor(name, np.asarray(value, np.float32))

def ask(model, names=("Y",)):
    return pb.InferenceRequest(
        model_name=model, inputs=[tensor("X", [1])], requested_output_names=list(names))

class TritonPythonModel:
"""


def model(execute: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(execute).strip(), "    ")


def returning(*tensors: str) -> str:
    return model(f"""
        def execute(self, requests):
            return [pb.InferenceResponse([{", ".join(tensors)}]) for r in requests]
    """)


def config(*outputs: str, decoupled: bool = False, batch: int = 0) -> str:
    lines = [
        f"max_batch_size: {batch}",
        "instance_group [ { count: 1, kind: KIND_CPU } ]",
        'input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]',
    ]
    for output in outputs or ("Y FP32 -1",):
        name, datatype, dims = output.split(maxsplit=2)
        lines.append(f'output [ {{ name: "{name}", data_type: TYPE_{datatype}, dims: [ {dims} ] }} ]')
    if decoupled:
        lines.append("model_transaction_policy { decoupled: true }")
    return "\n".join(lines)


X = {"X": np.array([1], np.float32)}


def warnings_of(repo: bls.ModelRepository, name: str = "m", **options: object) -> tuple[str, ...]:
    answer = repo.infer(name, **{"inputs": X, **options})  # type: ignore[arg-type]
    assert answer.error is None, answer.error
    return answer.warnings


@pytest.mark.parametrize(("execute", "outputs", "words"), [
    ("pb.Tensor('Y', np.ones(1))", ["Y FP32 -1"], "output 'Y': got FP64, the configuration says FP32"),
    ("tensor('Y', [1, 2])", ["Y FP32 1"], "output 'Y': got shape [2], the configuration says [1]"),

    ("tensor('Y', [[1, 2]])", ["Y FP32 -1, 3"],
     "output 'Y': got shape [1, 2], the configuration says [-1, 3]"),
    ("tensor('Y', 1)", ["Y FP32 1"], "output 'Y': got shape [], the configuration says [1]"),

    ("tensor('Y', [1]), tensor('Z', [1])", ["Y FP32 1"], "output 'Z': not in the configuration"),
    ("tensor('Y', [1])", ["Y FP32 1", "Z FP32 1"], "output 'Z': missing"),
    ("", ["Y FP32 1"], "output 'Y': missing"),
    ("tensor('Y', [1]), pb.Tensor('Z', np.array([b'a'], object))", ["Y FP32 1", "Z FP32 1"],
     "output 'Z': got BYTES, the configuration says FP32"),
])  # fmt: skip
def test_outputs_that_are_not_as_declared(
    repo: bls.ModelRepository, strict: bls.ModelRepository, execute: str, outputs: list[str], words: str
) -> None:
    repo.define("m", returning(execute), config(*outputs))
    for _ in range(3):  # no answer makes the next one's difference go unseen
        found = warnings_of(repo)
        assert any(f"model 'm', {words}" in w for w in found), found
        assert all("\n" not in w for w in found)
    strict.define("m", returning(execute), config(*outputs))
    error = strict.infer("m", X).error
    assert error is not None
    assert words in error.message()
    assert error.message().startswith("Model m - strict: ")


@pytest.mark.parametrize(("execute", "outputs", "asked"), [
    ("tensor('Y', [1, 2])", ["Y FP32 -1"], None),
    ("tensor('Y', [1]), tensor('Z', [1])", ["Y FP32 1", "Z FP32 1"], None),
    ("tensor('Z', [1]), tensor('Y', [1])", ["Y FP32 1", "Z FP32 1"], None),
    ("tensor('Y', [1]), tensor('Z', [1])", ["Y FP32 1", "Z FP32 1"], ["Z"]),
    ("tensor('Z', [1])", ["Y FP32 1", "Z FP32 1"], ["Z"]),
    ("pb.Tensor('Y', np.array(['a', b'b'], object))", ["Y STRING 2"], None),
    ("tensor('Y', np.ones((0, 4)))", ["Y FP32 -1, 4"], None),
])  # fmt: skip
def test_outputs_that_are_as_declared(
    repo: bls.ModelRepository, execute: str, outputs: list[str], asked: list[str] | None
) -> None:
    repo.define("m", returning(execute), config(*outputs))
    for _ in range(2):
        assert warnings_of(repo, outputs=asked) == ()


def test_a_difference_that_comes_and_goes(repo: bls.ModelRepository) -> None:
    repo.define("m", returning("tensor('Y', np.ones(int(x(r)[0])))"), config("Y FP32 2"))
    found = [len(repo.infer("m", {"X": [float(n)]}).warnings) for n in (2, 3, 2, 2, 1, 2)]
    assert found == [0, 1, 0, 0, 1, 0]


def test_with_batches_the_first_dimension_is_the_batch(repo: bls.ModelRepository) -> None:
    repo.define("m", returning("tensor('Y', [[1, 2]])"), config("Y FP32 2", batch=4))
    assert repo.infer("m", {"X": np.ones((1, 1), np.float32)}).warnings == ()
    repo.define("m", returning("tensor('Y', [1, 2])"), config("Y FP32 2", batch=4))
    (warning,) = repo.infer("m", {"X": np.ones((1, 1), np.float32)}).warnings
    assert "the configuration says [-1, 2] (the first is the batch)" in warning


async def test_records_and_async_requests_carry_them(repo: bls.ModelRepository) -> None:
    repo.define("m", returning("tensor('Z', [1])"), config())
    for answer in (repo.infer("m", X), await repo.infer_async("m", X)):
        assert answer.record.warnings == answer.warnings
        assert len(answer.warnings) == 2  # Z is not declared, Y is missing


def test_an_error_response_is_not_looked_at(repo: bls.ModelRepository) -> None:
    failing = "return [pb.InferenceResponse(error=pb.TritonError('no'))]"
    repo.define("m", model(f"def execute(self, requests): {failing}"), config())
    answer = repo.infer("m", X)
    assert answer.error is not None
    assert answer.warnings == ()


def test_every_response_of_a_stream_is_looked_at(repo: bls.ModelRepository, strict: bls.ModelRepository) -> None:
    source = model("""
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            for n in (1, 2, 1):
                sender.send(pb.InferenceResponse([tensor("Y", np.ones(n))]))
            sender.send(pb.InferenceResponse(), FINAL)
    """)
    for each in (repo, strict):
        each.define("m", source, config("Y FP32 1", decoupled=True))
    assert [len(r.warnings) for r in repo.stream("m", X)] == [0, 1, 0]
    assert [r.error is None for r in strict.stream("m", X)][:2] == [True, False]
    source = source.replace("pb.InferenceResponse(), FINAL", "flags=FINAL")
    repo.define("m", source, config("Y FP32 1", decoupled=True))
    assert [len(r.warnings) for r in repo.stream("m", X)] == [0, 1, 0]


def test_the_number_of_warnings_is_limited(repo: bls.ModelRepository) -> None:
    repo.define("callee", returning(*[f"tensor('Z{i}', [1])" for i in range(50)]), config())
    assert len(warnings_of(repo, "callee")) == 20


BLOCKING = """
    async def execute(self, requests):
        answer = {call}
        return [pb.InferenceResponse([tensor("Y", [1])])]
"""


@pytest.mark.parametrize("callee", ["plain", "asynchronous", "stream"])
def test_exec_in_an_async_execute(repo: bls.ModelRepository, strict: bls.ModelRepository, callee: str) -> None:
    for each in (repo, strict):
        each.define("plain", returning("tensor('Y', [1])"), config())
        each.define("asynchronous", model("""
            async def execute(self, requests):
                return [pb.InferenceResponse([tensor("Y", [1])])]
        """), config())  # fmt: skip
        each.define("stream", model("""
            def execute(self, requests):
                requests[0].get_response_sender().send(pb.InferenceResponse([tensor("Y", [1])]), FINAL)
        """), config(decoupled=True))  # fmt: skip
        call = f'ask("{callee}").exec()' if callee != "stream" else 'list(ask("stream").exec(decoupled=True))'
        each.define("m", model(BLOCKING.format(call=call)), config())
    for _ in range(2):
        (warning,) = warnings_of(repo)
        assert f"model 'm': exec of '{callee}' inside an async execute stops its event loop" in warning
    error = strict.infer("m", X).error
    assert error is not None
    assert "await request.async_exec()" in error.message()


@pytest.mark.parametrize("call", [
    'await ask("plain").async_exec()',
    'await asyncio.to_thread(lambda: ask("plain").exec())',
    'list(await ask("plain").async_exec(decoupled=True))',
])  # fmt: skip
def test_calls_that_do_not_block_the_loop_are_not_warned_about(repo: bls.ModelRepository, call: str) -> None:
    repo.define("plain", returning("tensor('Y', [1])"), config())
    repo.define("m", model(BLOCKING.format(call=call)), config())
    assert warnings_of(repo) == ()


async def test_exec_in_a_sync_execute_below_a_running_loop(repo: bls.ModelRepository) -> None:
    """As in Jupyter, whose own loop runs on the thread that sends the request."""
    repo.define("plain", returning("tensor('Y', [1])"), config())
    repo.define("m", model("""
        def execute(self, requests):
            return [ask("plain").exec()]
    """), config())  # fmt: skip
    assert warnings_of(repo) == ()


SENDER = """
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        {sends}
        return {returned}
"""
ONE = 'sender.send(pb.InferenceResponse([tensor("Y", [1])])'


@pytest.mark.parametrize("returned", ["None", "[None]"])
def test_a_sender_that_is_never_finalised(
    repo: bls.ModelRepository, strict: bls.ModelRepository, returned: str
) -> None:
    source = model(SENDER.format(sends=f"{ONE})", returned=returned))
    repo.define("m", source, config())
    answer = repo.infer("m", X)
    assert answer["Y"].as_numpy().tolist() == [1.0]
    (warning,) = answer.warnings
    assert "model 'm': the response sender was dropped without its final flag" in warning
    strict.define("m", source, config())
    error = strict.infer("m", X).error
    assert error is not None
    assert "final flag" in error.message()


@pytest.mark.parametrize("sends", [f"{ONE}, FINAL)", f"{ONE}); sender.send(flags=FINAL)"])
def test_a_sender_that_is_finalised(repo: bls.ModelRepository, strict: bls.ModelRepository, sends: str) -> None:
    for each in (repo, strict):
        each.define("m", model(SENDER.format(sends=sends, returned="None")), config())
        answer = each.infer("m", X)
        assert answer.error is None
        assert answer["Y"].as_numpy().tolist() == [1.0]
        assert answer.warnings == ()


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
def test_warnings_come_up_through_every_scheduler(repo: bls.ModelRepository, way: str) -> None:
    repo.define("callee", model(f"def execute(self, requests): {WRONG}"), WAYS[way] + TENSORS)
    call = sent_to(way)
    options = "".join(f", {key}={value}" for key, value in call.items() if key != "inputs")
    rank = call["inputs"]["X"].ndim  # type: ignore[index]
    request = f"""pb.InferenceRequest(model_name="callee", requested_output_names=["Y"],
                inputs=[pb.Tensor("X", np.ones([1] * {rank}, np.float32))]{options})"""
    for name, kind, send in (
        ("sync", "def", f"{request}.exec()"),
        ("asynchronous", "async def", f"await {request}.async_exec()"),
        ("blocking", "async def", f"{request}.exec()"),
    ):
        repo.define(name, model(f"""
            {kind} execute(self, requests):
                answer = {send}
                assert not answer.has_error(), answer.error().message()
                return [pb.InferenceResponse([tensor("Y", [1])])]
        """), config())  # fmt: skip
        for _ in range(2):
            found = warnings_of(repo, name)
            assert any("model 'callee', output 'Y'" in w for w in found)
            assert any("exec of 'callee' inside an async execute" in w for w in found) == (name == "blocking")
    repo.define("outer", model("""
        def execute(self, requests):
            return [ask("sync").exec() for _ in range(2)][:1]
    """), config())  # fmt: skip
    (warning,) = warnings_of(repo, "outer")  # two levels up, and once
    assert "model 'callee', output 'Y'" in warning


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


RETURNS = '    return [pb.InferenceResponse([tensor("Y", [1])]) for r in requests]'
IGNORES = {
    "dropped": ("ask('bad').exec()", "the disk is full (bad/1/model.py line "),
    "kept": ("self.kept = ask('bad').exec()", "the disk is full"),
    "hidden": (
        "try: pb.get_output_tensor_by_name(ask('bad').exec(), 'Y').as_numpy()\nexcept AttributeError: pass",
        "full",
    ),
    "refused": ("ask('nobody').exec()", "Request for unknown model: 'nobody' is not found"),
    "one of two": ("a, b = await asyncio.gather(*[ask('bad').async_exec() for _ in 'ab'])\na.has_error()", "full"),
    "of a stream": ("[r.output_tensors() for r in ask('late').exec(decoupled=True)]", "too late (late/1/model.py"),
    "read of a stream": ("[r.error() for r in ask('late').exec(decoupled=True)]", ""),
    "tested": ("y = 0 if ask('bad').exec().has_error() else 1", ""),
    "read": ("ask('bad').exec().error()", ""),
    "all of two": ("[r.error() for r in await asyncio.gather(*[ask('bad').async_exec() for _ in 'ab'])]", ""),
    "no error": ("ask('good').exec()", ""),
}


@pytest.mark.parametrize("case", IGNORES)
def test_an_error_of_a_callee_that_the_model_does_not_ask_for(
    repo: bls.ModelRepository, strict: bls.ModelRepository, case: str
) -> None:
    body, words = IGNORES[case]
    late = """
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            for error in None, pb.TritonError("too late"), None:
                sender.send(pb.InferenceResponse([tensor("Y", [1])], error))
            sender.send(flags=FINAL)
    """
    body = textwrap.indent(body, "    ")
    for where in repo, strict:
        where.define("good", returning('tensor("Y", [1])'), config())
        where.define("bad", model('def execute(self, requests):\n    raise ValueError("the disk is full")'), config())
        where.define("late", model(late), config(decoupled=True))
        is_async = "async " * ("await" in body)
        where.define("caller", model(f"{is_async}def execute(self, requests):\n{body}\n" + RETURNS), config())
        where.define(
            "outer", model(f"def execute(self, requests):\n    ask('caller').exec().error()\n{RETURNS}"), config()
        )
    response = repo.infer("caller", X)
    assert response.error is None
    assert [words in w and w.startswith("model 'caller' ignored an error of '") for w in response.warnings] == (
        [True] if words else []
    )
    assert repo.infer("outer", X).warnings == response.warnings
    assert (strict.infer("caller", X).error is None) == (not words)


def test_a_stream_reports_an_error_only_once_its_model_cannot_ask_any_more(repo: bls.ModelRepository) -> None:
    repo.define("bad", model('def execute(self, requests):\n    raise ValueError("the disk is full")'), config())
    body = """
        async def execute(self, requests):
            sender = requests[0].get_response_sender()
            failed = await ask("bad").async_exec()
            sender.send(pb.InferenceResponse([tensor("Y", [1])]))
            failed.has_error() if x(requests[0])[0] else None
            kept, failed = weakref.ref(failed), None
            while kept() is not None:  # asyncio keeps the result for a while
                await asyncio.sleep(0.001)
            sender.send(pb.InferenceResponse([tensor("Y", [2])]), flags=FINAL)
    """
    repo.define("caller", model(body), config(decoupled=True))
    for read in 0, 1:
        warnings = [r.warnings for r in repo.stream("caller", {"X": np.array([read], np.float32)})]
        assert [len(w) for w in warnings] == [0, 1 - read]
