"""Refusals name tensor, got, expected and remedy; each field is honored, rejected, or named."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.errors import ConfigError
from bls_notebook.repository.config import ModelConfigMessage, complete, model_config_class, parse_pbtxt, validate
from bls_notebook.repository.config.field_effects import decisions, idle_fields
from bls_notebook.repository.config.protobuf_message import new_config
from tests.checking.conftest import CONFIG, model, write

OUT = 'output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
IN = 'input { name: "IN" data_type: TYPE_FP32 dims: 1 }'


def made(text: str) -> ModelConfigMessage:
    return complete(parse_pbtxt(text, model="m"), model="m")


def refusal(text: str, folder: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(made(text), folder=folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'input { name: "IN" data_type: TYPE_FP32 dims: [ 3, 0 ] }',
            "input 'IN' has dims [3, 0]; use sizes of at least 1, or -1 for a variable size",
        ),
        (
            'output { name: "OUT" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 2, 3 ] } }',
            "output 'OUT' has dims [4] but reshape [2, 3]; both must have equally many elements, "
            "also between variable sizes",
        ),
        (
            "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 2, 8 ] }",
            "dynamic_batching.preferred_batch_size has 8; use sizes from 1 to max_batch_size (4)",
        ),
        (
            'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "off" } }',
            'parameter FORCE_CPU_ONLY_INPUT_TENSORS is \'off\'; use "yes" or "no"',
        ),
        (
            "response_cache { enable: true } model_transaction_policy { decoupled: true }",
            "Response Cache does not currently support model m with 'decoupled' transaction "
            "policy; leave response_cache out",
        ),
        (
            'parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "x.so" } }',
            "parameter TRITON_BATCH_STRATEGY_PATH names a compiled batching library of the server, "
            "which cannot run here; leave it out",
        ),
        (
            "response_cache { enable: true } sequence_batching { }",
            "Response Cache does not currently support model m with sequence batching scheduler; "
            "leave response_cache out",
        ),
        (
            'model_metrics { metric_control { metric_identifier { family: "x" } } }',
            "model_metrics.metric_control[0] has no buckets; set histogram_options { buckets: [ ... ] }",
        ),
        (
            "model_metrics { metric_control { histogram_options { buckets: 1 } } }",
            "model_metrics.metric_control[0] names no metric; set metric_identifier { family: ... }",
        ),
        (
            'platform: "python" default_model_filename: "x.py"',
            "unknown platform 'python'; name the backend, for instance backend: \"python\"",
        ),
    ],
)
def test_the_whole_line(text: str, message: str) -> None:
    assert refusal(text) == f"model 'm': {message}"


DIM = st.one_of(st.just(-1), st.integers(1, 6))


@given(st.lists(DIM, min_size=1, max_size=5), st.lists(DIM, max_size=5), st.integers(0, 1))
def test_a_reshape_keeps_the_elements_between_sizes_that_vary(dims: list[int], shape: list[int], batch: int) -> None:
    def stretches(sizes: list[int]) -> list[int]:
        split = [list(group) for varies, group in itertools.groupby(sizes, (-1).__eq__) if not varies]
        # Empty stretches, at the ends or between two sizes that vary, hold one element.
        text = ",".join("x" if size == -1 else "d" for size in sizes)
        numbers = iter(split)
        return [math.prod(next(numbers)) if part.strip(",") else 1 for part in text.split("x")]

    config = made(
        f'input {{ name: "IN" data_type: TYPE_FP32 dims: {dims} reshape {{ shape: {shape} }} }} max_batch_size: {batch}'
    )
    fits = stretches(dims) == stretches(shape) and (bool(shape) or batch > 0)
    if fits:
        validate(config)
    else:
        with pytest.raises(ConfigError, match="reshape"):
            validate(config)


def test_label_files(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    text = OUT.replace("dims", 'label_filename: "%s" dims')
    validate(made(text % "labels.txt"))
    assert "there is no label file" in refusal(text % "labels.txt", folder)
    (folder / "labels.txt").write_text("a\nb\n")
    validate(made(text % "labels.txt"), folder=folder)
    (tmp_path / "secret.txt").write_text("a")
    assert "is outside the model's folder" in refusal(text % "../secret.txt", folder)
    assert "is outside the model's folder" in refusal(text % (tmp_path / "secret.txt").as_posix(), folder)


STEP = """step { model_name: "x" model_version: -1 input_map { key: "I" value: "%s" }
               output_map { key: "O" value: "%s" } }"""


def ensemble(*steps: tuple[str, str]) -> str:
    flow = " ".join(STEP % step for step in steps)
    tensors = IN.replace('"IN"', '"A"') + OUT.replace('"OUT"', '"B"')
    return f'platform: "ensemble" {tensors} ensemble_scheduling {{ {flow} }}'


def test_an_ensemble_in_any_order_of_steps() -> None:
    for steps in itertools.permutations([("A", "p"), ("p", "q"), ("q", "B")]):
        validate(made(ensemble(*steps)))


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (
            [("A", "p"), ("q", "B"), ("p", "q2")],
            "output 'B' for ensemble 'm' is not written: at least one of its depending tensors, 'q', is not",
        ),
        ([("A", "p"), ("A", "B")], "ensemble tensor 'p' is unused in ensemble 'm': it is written but never used"),
        ([("A", "B"), ("x", "y"), ("y", "x")], "ensemble tensor 'x' is unused in ensemble 'm': it is never written"),
        (
            [("p", "B"), ("A", "p"), ("A", "p")],
            "ensemble tensor 'p' can appear in an output map only once for ensemble 'm' step 2",
        ),
        ([("A", "p")], "ensemble output 'B' for ensemble m' is not used: no step writes it"),
    ],
)
def test_a_flow_that_does_not_work_out(steps: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"model 'm': {reason}"):
        made(ensemble(*steps))


STATE = """sequence_batching {{ state {{ input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: 1
  initial_state {{ name: "z" data_type: TYPE_FP32 dims: 1 data_file: "{}" }} }} }}"""
WARM = """model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "IN" value {{
  data_type: TYPE_FP32 dims: 1 input_data_file: "{}" }} }} }}"""


@pytest.mark.parametrize(
    ("field", "what"),
    [
        ('default_model_filename: "{}"', "default_model_filename"),
        ('cc_model_filenames {{ key: "8.0" value: "{}" }}', "cc_model_filenames['8.0']"),
        (IN.replace("{", "{{").replace("}", "}}") + WARM, "input_data_file of warm-up input 'IN'"),
        (STATE, "data_file of state 'S'"),
    ],
)
@pytest.mark.parametrize(
    "name", ["../../other.py", "/etc/passwd", "a/../../../x", "..\\\\..\\\\x", "C:x", "../..", "../../model/1/model.py"]
)
def test_a_file_of_another_folder_is_refused_and_of_the_models_taken(field: str, what: str, name: str) -> None:
    for taken in ("other.py", "parts/other.py", "../shared.py", "a/../b.py", "..py", "a..b"):
        validate(made(f'backend: "python" {OUT} default_model_filename: "{taken}"'))
    message = refusal(f'backend: "python" {OUT} ' + field.format(name))
    assert message.startswith(f"model 'm': {what} ")
    assert message.endswith(" leads out of the model's folder; put the file into that folder")


@pytest.mark.parametrize(
    ("text", "words", "name"),
    [
        (IN + WARM.format("data"), "model_warmup 'w', input 'IN'", "warmup"),
        (STATE.format("data"), "sequence_batching.state 'S'", "initial_state"),
    ],
)
def test_data_files(tmp_path: Path, text: str, words: str, name: str) -> None:
    validate(made(text))
    assert f"{words}: there is no file" in refusal(text, tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / "data").write_bytes(bytes(4))
    validate(made(text), folder=tmp_path)


Nested = tuple[Any, ...]  # field descriptors, outermost first


def fields(message: Any, path: Nested = ()) -> Iterator[tuple[str, Nested]]:
    """Yield the fields of ModelConfig with their names in fields.json, to the depth of the decisions."""
    for field in message.fields:
        name, nested = f"{message.full_name}.{field.name}", field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            nested = nested.fields_by_name["value"].message_type
        yield name, (*path, field)
        if nested is not None and decisions()["fields"].get(name) == "honored":
            yield from fields(nested, (*path, field))


FIELDS = dict(fields(model_config_class().DESCRIPTOR))


def set_field(message: Any, path: Nested) -> None:
    field, *rest = path
    part, kind = getattr(message, field.name), field.message_type
    if kind is None:
        value = {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True}.get(field.cpp_type, 1)
        part.append(value) if field.is_repeated else setattr(message, field.name, value)
        return
    if kind.GetOptions().map_entry:
        key = "x" if kind.fields_by_name["key"].cpp_type == field.CPPTYPE_STRING else 1
        if kind.fields_by_name["value"].message_type is None:
            part[key] = "y"
            return
        part = part[key]
    elif field.is_repeated:
        part = part.add()
    part.SetInParent()
    if rest:
        set_field(part, tuple(rest))


def test_each_field_has_a_decision_and_those_without_effect_are_found() -> None:
    assert FIELDS.keys() == decisions()["fields"].keys()
    for name, path in FIELDS.items():
        decision = decisions()["fields"][name]
        for backend in ("python", "onnxruntime", "pytorch", "ensemble"):
            config = new_config("m")
            config.backend = backend
            set_field(config, path)
            idle = isinstance(decision, dict) and bool({backend, "*"} & decision.keys())
            dotted = ".".join(field.name for field in path)
            assert [found.path for found in idle_fields(config)] == [dotted] * idle, (name, backend)


def test_of_python_models_a_server_honors_only_explained_fields_more() -> None:
    explained = {
        "ModelOptimizationPolicy.input_pinned_memory": "no value",
        "ModelOptimizationPolicy.output_pinned_memory": "no value",
        "ModelOptimizationPolicy.gather_kernel_buffer_threshold": "no value",
        "ModelInstanceGroup.host_policy": "no value",
        "ModelSequenceBatching.State.use_growable_memory": "refuses the sequences",
        "ModelInstanceGroup.rate_limiter": "ModelRepository(rate_limit='execution_count')",
        "ModelConfig.model_metrics": "ModelRepository(metrics_config=",
    }
    found = {
        name.removeprefix("inference."): judged["why"]
        for name, decision in decisions()["fields"].items()
        if isinstance(decision, dict) and (judged := decision.get("python", decision.get("*"))) and judged.get("here")
    }
    assert found.keys() == explained.keys()
    assert [name for name, words in explained.items() if words not in found[name]] == []


@pytest.mark.parametrize("name", [name for name, decision in decisions()["fields"].items() if decision == "rejected"])
def test_rejected_fields_are_refused(name: str) -> None:
    config = parse_pbtxt(CONFIG, model="m")
    target = new_config()
    set_field(target, FIELDS[name])
    for part in ("input", "output"):
        if getattr(target, part):  # the field belongs to a tensor that is valid otherwise
            getattr(config, part)[0].MergeFrom(getattr(target, part)[0])
            target.ClearField(part)
    config.MergeFrom(target)
    with pytest.raises(ConfigError):
        validate(complete(config, model="m"))


def test_load_and_check_name_fields_without_effect(tmp_path: Path) -> None:
    environment = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/env.tar.gz" } }\n'
    pinned = "optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: false } }\n"
    with bls.ModelRepository(write(tmp_path, model("a", CONFIG + environment + pinned))) as repo:
        of_a = repo.load("a").warnings
        idle = [f for f in bls.check(repo=repo).findings if f.code == "field-idle"]
    assert [w.split()[1] for w in of_a] == ["optimization.output_pinned_memory", "parameters.EXECUTION_ENV_PATH"]
    assert [(f.model, f.severity, f.line) for f in idle] == [("a", "note", 5), ("a", "note", 4)]
