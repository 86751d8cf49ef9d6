"""`model_spec`, and every configuration of recorded.json: it ends as it did on the real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook import pb_utils
from bls_notebook.engine.core.model_spec import InstanceSpec, ModelSpec
from bls_notebook.engine.errors import ConfigError
from bls_notebook.pb_utils.dtypes import triton_string_to_numpy
from bls_notebook.repository.config import (
    ModelConfigMessage,
    auto_complete,
    complete,
    model_spec,
    parse_json,
    parse_pbtxt,
    pick_versions,
    to_json,
    validate,
)
from bls_notebook.repository.config.protobuf_message import new_config

from .strategies import TENSOR_TYPES


def spec(text: str, gpus: int = 0) -> ModelSpec:
    return model_spec(complete(parse_pbtxt(text, model="m"), model="m", gpus=gpus))


def test_data_types() -> None:
    for name in TENSOR_TYPES:
        tensor = spec(f'input {{ name: "A" data_type: {name} dims: 1 }}').inputs["A"]
        assert tensor.datatype == ("BYTES" if name == "TYPE_STRING" else name.removeprefix("TYPE_"))
        assert tensor.dtype == (None if name == "TYPE_BF16" else np.dtype(triton_string_to_numpy(name)))
    tensor = spec('input { name: "A" data_type: 99 dims: 1 }').inputs["A"]
    assert (tensor.datatype, tensor.dtype) == ("INVALID", None)


def test_flags_of_inputs() -> None:
    made = spec(
        'input { name: "A" data_type: TYPE_FP32 dims: 1 optional: true }'
        'input { name: "B" data_type: TYPE_FP32 dims: 1 allow_ragged_batch: true }'
        'input { name: "A" data_type: TYPE_INT32 dims: 2 } output { name: "C" data_type: TYPE_FP32 dims: 1 }'
    )
    a, b = made.inputs.values()
    assert (a.name, a.datatype, a.optional) == ("A", "FP32", True), "the first of a name counts"
    assert (b.name, b.allow_ragged_batch) == ("B", True)
    assert (made.required, made.outputs["C"].optional) == (("B", "A"), False)


def test_instances_are_named_as_on_triton() -> None:
    assert spec("").instances == (InstanceSpec("m_0", "CPU", 0),)
    two = spec("instance_group { count: 2 kind: KIND_CPU }")
    assert [i.name for i in two.instances] == ["m_0_0", "m_0_1"]
    mixed = spec(
        'instance_group { name: "fast" count: 2 kind: KIND_GPU }instance_group { kind: KIND_MODEL passive: true }',
        gpus=2,
    )
    fast = tuple(InstanceSpec(f"fast_{number}", "GPU", gpu) for number in (0, 1) for gpu in (0, 1))
    assert mixed.instances == (*fast, InstanceSpec("m_1_0", "MODEL", 0, passive=True))
    assert mixed.instance_kind == "GPU"


def test_switches() -> None:
    plain = spec("")
    assert (plain.force_cpu_only_input_tensors, plain.decoupled, plain.response_cache) == (True, False, False)
    made = spec(
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }'
        "response_cache { enable: true } max_batch_size: 3"
    )
    assert (made.force_cpu_only_input_tensors, made.response_cache) == (False, True)
    assert (made.max_batch_size, dict(made.parameters)) == (3, {"FORCE_CPU_ONLY_INPUT_TENSORS": "no"})
    assert spec("model_transaction_policy { decoupled: true }").decoupled


VERSIONS = st.lists(st.integers(0, 12), max_size=8)


@given(VERSIONS, st.integers(0, 5))
def test_the_latest_versions(available: list[int], newest: int) -> None:
    config = parse_pbtxt(f"version_policy {{ latest {{ num_versions: {newest} }} }}", model="m")
    picked = pick_versions(config, available)
    assert (picked, len(picked)) == (sorted(picked), min(newest, len(set(available))))
    assert all(left < min(picked) for left in set(available) - set(picked) if picked)


@given(VERSIONS, VERSIONS)
def test_specific_and_all_versions(available: list[int], wanted: list[int]) -> None:
    specific = parse_pbtxt(f"version_policy {{ specific {{ versions: {wanted} }} }}", model="m")
    assert pick_versions(specific, available) == sorted(set(available) & set(wanted))
    every = parse_pbtxt("version_policy { all {} }", model="m")
    assert pick_versions(every, available) == sorted(set(available))
    assert pick_versions(complete(every, model="m"), available) == sorted(set(available))


RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
CASES: dict[str, dict[str, Any]] = RECORDED["cases"]
# Fields of the message that are newer than the server that was recorded.
NEWER = {"ensemble_scheduling": {"max_inflight_requests"}}


def model_class(source: str) -> type:
    namespace: dict[str, Any] = {"pb_utils": pb_utils}
    exec("class TritonPythonModel:\n    " + (source or "pass"), namespace)
    made: type = namespace["TritonPythonModel"]
    return made


def load(name: str, case: dict[str, Any]) -> ModelConfigMessage:
    if "json" in case:
        config = parse_json(case["json"], model=name)
    elif "pbtxt" in case:
        config = parse_pbtxt(case["pbtxt"], model=name)
    else:
        config = new_config()
    config = complete(config, model=name, files=case.get("files", ["model.py", "other.py"]))
    versions = [int(version) for version in case.get("versions", ["1"])]
    if not pick_versions(config, versions):
        raise ConfigError(f"model '{name}': its version policy picks none of {versions}")
    if config.backend == "python":
        config = auto_complete(config, model_class(case.get("auto_complete", "")))
    validate(config)
    return config


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "expected" in case])
def test_accepted_as_recorded(name: str) -> None:
    case = CASES[name]
    config = load(name, case)
    got = json.loads(to_json(config))
    wanted = {**RECORDED["base"], "name": name, **case["expected"]}
    wanted = {key: value for key, value in wanted.items() if value is not None}
    for group in wanted["instance_group"]:
        if group["name"] in ("", "_0", "_1"):
            group = wanted["instance_group"] = [{**g, "name": name + g["name"]} for g in wanted["instance_group"]]
            break
    for key, fields in NEWER.items():
        for newer in fields:
            got.get(key, {}).pop(newer, None)
    assert got == wanted
    if "instances" in case:
        own = ("_0", "_1", "_2")
        recorded = [(name + n if n.startswith(own) else n, kind, device) for n, kind, device in case["instances"]]
        made = [(i.name, i.kind, i.device_id) for i in model_spec(config).instances]
        assert sorted(made) == sorted(recorded)
    if "loaded" in case:
        assert pick_versions(config, map(int, case["versions"])) == case["loaded"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.get("refused")])
def test_refused_as_recorded(name: str) -> None:
    with pytest.raises((ConfigError, ValueError, TypeError)) as caught:
        load(name, CASES[name])
    message = str(caught.value)
    assert "\n" not in message
    if isinstance(caught.value, ConfigError):
        assert f"model '{name}'" in message
