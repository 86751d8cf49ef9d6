"""What is filled in, and what is left alone. The recorded cases hold the rest."""

from __future__ import annotations

import pytest
from hypothesis import given

from bls_notebook.engine.errors import ConfigError
from bls_notebook.repository.config import (
    ModelConfigMessage,
    complete,
    model_spec,
    new_config,
    parse_pbtxt,
    to_dict,
    validate,
)

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
