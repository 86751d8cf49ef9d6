"""What is filled in, by us or by the model, and what is left alone. The recorded cases hold the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from bls_notebook.engine.errors import ConfigError
from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.repository.config import (
    ModelConfigMessage,
    auto_complete,
    complete,
    model_spec,
    parse_pbtxt,
    to_dict,
    validate,
)
from bls_notebook.repository.config.protobuf_message import new_config

from .strategies import good_config


def done(text: str, **options: object) -> ModelConfigMessage:
    return complete(parse_pbtxt(text, model="m"), model="m", **options)  # type: ignore[arg-type]


def groups(text: str, gpus: int) -> list[tuple[str, int, list[int]]]:
    config = done(text if "backend" in text else f'backend: "python"\n{text}', gpus=gpus)
    return [(g["kind"], g["count"], g["gpus"]) for g in to_dict(config)["instance_group"]]


@given(good_config())
def test_completing_keeps_what_is_set_and_twice_changes_nothing_more(config: ModelConfigMessage) -> None:
    before = config.SerializeToString(deterministic=True)
    completed = complete(config, model="m")
    assert (config.SerializeToString(deterministic=True), complete(completed, model="m")) == (before, completed)
    validate(completed)
    assert completed.name == "m"
    for field in ("input", "output", "max_batch_size"):
        assert getattr(completed, field) == getattr(config, field)
    assert len(model_spec(completed).instances) == sum(
        max(1, group.count) for group in config.instance_group or [new_config().instance_group.add()]
    )


def test_the_name_is_that_of_the_folder() -> None:
    assert (done("").name, done('name: "m"').name) == ("m", "m")
    with pytest.raises(ConfigError, match="model 'm': its configuration has name: \"other\", expected"):
        done('name: "other"')


@pytest.mark.parametrize(
    ("text", "files", "backend", "platform", "filename"),
    [
        ("", ["model.py"], "python", "", "model.py"),
        ("", ["model.onnx"], "onnxruntime", "onnxruntime_onnx", "model.onnx"),
        ("", ["model.onnx", "model.py"], "onnxruntime", "onnxruntime_onnx", "model.onnx"),
        ('backend: "python"', ["model.onnx"], "python", "", "model.py"),
        ('backend: "onnxruntime"', [], "onnxruntime", "onnxruntime_onnx", "model.onnx"),
        ('platform: "onnxruntime_onnx"', ["model.py"], "onnxruntime", "onnxruntime_onnx", "model.onnx"),
        ('default_model_filename: "model.py"', [], "python", "", "model.py"),
        ('default_model_filename: "a.py" backend: "python"', ["model.py"], "python", "", "a.py"),
        ('default_model_filename: "b.onnx" backend: "onnxruntime"', [], "onnxruntime", "onnxruntime_onnx", "b.onnx"),
        ("", ["model.pt"], "pytorch", "pytorch_libtorch", "model.pt"),
        ('platform: "torch_aoti"', [], "pytorch", "torch_aoti", "model.pt2"),
        # The backend made of Python looks for model.py itself; a file that is named is TorchScript to it.
        ('backend: "pytorch" runtime: "model.py"', ["model.pt"], "pytorch", "pytorch_libtorch", ""),
        ('backend: "mine"', ["model.py"], "mine", "", ""),
    ],
)
def test_the_backend_is_told_from_the_configuration_or_the_files(
    text: str, files: list[str], backend: str, platform: str, filename: str
) -> None:
    config = done(text, files=files)
    assert (config.backend, config.platform, config.default_model_filename) == (backend, platform, filename)


def test_a_name_can_carry_the_backend_and_none_at_all_is_refused() -> None:
    config = complete(new_config(), model="model.mine", files=["weights.bin"])
    assert (config.backend, config.default_model_filename) == ("mine", "model.mine")
    with pytest.raises(ConfigError, match=r"its files do not identify one \(weights.bin\); add backend"):
        done("", files=["weights.bin"])


@pytest.mark.parametrize(
    ("text", "gpus", "expected"),
    [
        ("", 0, [("KIND_CPU", 1, [])]),
        ("", 2, [("KIND_GPU", 1, [0, 1])]),
        ("instance_group { count: 2 }", 2, [("KIND_GPU", 2, [0, 1])]),
        ("instance_group { kind: KIND_AUTO gpus: 1 }", 2, [("KIND_GPU", 1, [1])]),
        ("instance_group { kind: KIND_GPU gpus: [ 1 ] }", 2, [("KIND_GPU", 1, [1])]),
        ("instance_group { kind: KIND_CPU }", 2, [("KIND_CPU", 1, [])]),
        ("instance_group { kind: KIND_MODEL }", 2, [("KIND_MODEL", 1, [])]),
        ("instance_group { kind: KIND_CPU } instance_group {}", 1, [("KIND_CPU", 1, []), ("KIND_GPU", 1, [0])]),
        ('backend: "onnxruntime"', 0, [("KIND_CPU", 2, [])]),
        ('backend: "onnxruntime" instance_group { count: 1 }', 0, [("KIND_CPU", 1, [])]),
        ('backend: "onnxruntime"', 1, [("KIND_GPU", 1, [0])]),
    ],
)
def test_kind_and_devices_follow_the_gpus_that_are_there(
    text: str, gpus: int, expected: list[tuple[str, int, list[int]]]
) -> None:
    assert groups(text, gpus) == expected


@pytest.mark.parametrize(
    ("text", "gpus", "reason"),
    [
        ("kind: KIND_GPU", 0, "has kind KIND_GPU, but there is no GPU here"),
        ("kind: KIND_GPU gpus: 2", 2, "asks for GPU 2, but GPUs here: 0, 1"),
        ("kind: KIND_GPU gpus: -1", 2, "asks for GPU -1"),
        ("kind: KIND_AUTO gpus: 7", 2, "is of kind KIND_CPU but lists gpus"),
        ("kind: KIND_MODEL gpus: 0", 2, "is of kind KIND_MODEL but lists gpus"),
        ("kind: 77", 2, "has kind 77, which is not one of KIND_AUTO"),
    ],
)
def test_groups_that_cannot_be_placed_are_refused(text: str, gpus: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"model 'm': instance group 'm_0' {reason}"):
        groups(f"instance_group {{ {text} }}", gpus)


FULL = """
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: 1 }
output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
"""


def asked(function: Callable[[ModelConfig], Any], text: str = FULL) -> ModelConfigMessage:
    config = complete(parse_pbtxt(text, model="m"), model="m")
    return auto_complete(config, type("TritonPythonModel", (), {"auto_complete_config": staticmethod(function)}))


def test_the_model_completes_a_copy_of_the_completed_configuration() -> None:
    seen: list[dict[str, Any]] = []

    def function(config: ModelConfig) -> ModelConfig:
        seen.append(json.loads(json.dumps(config.as_dict())))
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        config.set_model_transaction_policy({"decoupled": True})
        return config

    config = complete(parse_pbtxt(FULL, model="m"), model="m")
    before = config.SerializeToString(deterministic=True)
    completed = auto_complete(config, type("M", (), {"auto_complete_config": staticmethod(function)}))
    assert (config.SerializeToString(deterministic=True), seen) == (before, [to_dict(config)])
    assert seen[0]["instance_group"][0]["name"] == "m"
    assert list(completed.dynamic_batching.preferred_batch_size) == [4]
    assert completed.model_transaction_policy.decoupled


@pytest.mark.parametrize(("answer", "named"), [(None, "None"), ({}, "a dict"), ("text", "a str")])
def test_anything_but_the_configuration_in_json_is_refused_as_on_the_server(answer: object, named: str) -> None:
    with pytest.raises(
        ConfigError, match=f"function in model 'm' must return a valid pb.ModelConfig object. It returned {named};"
    ):
        asked(lambda config: answer)
    with pytest.raises(ConfigError, match=r"auto_complete_config: .*int64 is not JSON serializable; use plain"):
        asked(change(input=[{"name": "A", "data_type": "TYPE_FP32", "dims": [np.int64(4)]}]))


def change(**fields: Any) -> Callable[[ModelConfig], ModelConfig]:
    def function(config: ModelConfig) -> ModelConfig:
        for name, value in fields.items():
            if value is None:
                del config.as_dict()[name]
            else:
                config.as_dict()[name] = value
        return config

    return function


# The server drops such an answer without a word, and serves the model without it.
@pytest.mark.parametrize(
    ("function", "text", "reason"),
    [
        (change(input=[{"name": "A", "data_type": "FP32", "dims": [1]}]), FULL, "did you mean 'TYPE_FP32'"),
        (change(nonsense=3), FULL, "no field 'nonsense' in ModelConfig"),
        (change(max_batch_size="many"), FULL, "many"),
        (change(dynamic_batching=None), FULL + "dynamic_batching {}", "replaced dynamic_batching by nothing"),
        (
            change(dynamic_batching=None, sequence_batching={}),
            FULL + "dynamic_batching {}",
            "replaced dynamic_batching by sequence_batching",
        ),
    ],
)
def test_an_answer_that_is_no_configuration_is_an_error(
    function: Callable[[ModelConfig], ModelConfig], text: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        asked(function, text)
