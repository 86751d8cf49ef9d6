"""`pb_utils.ModelConfig`, as a model's auto_complete_config uses it, and the look-ups in a config dict."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.pb_utils.model_config import (
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)

TENSOR = {"name": "A", "data_type": "TYPE_FP32", "dims": [4]}


def config(**fields: Any) -> ModelConfig:
    return ModelConfig(json.dumps({"name": "m", "max_batch_size": 0, "input": [], "output": [], **fields}))


def add(made: ModelConfig, direction: str, tensor: dict[str, Any]) -> None:
    getattr(made, f"add_{direction}")(tensor)


both = pytest.mark.parametrize("direction", ["input", "output"])


def test_the_dict_is_the_configuration() -> None:
    made = config(backend="python")
    assert made.as_dict()["backend"] == "python"
    made.as_dict()["backend"] = "other"
    assert made.as_dict()["backend"] == "other"


@given(st.integers(0, 64), st.integers(0, 64))
def test_the_batch_size_may_grow_but_not_shrink(configured: int, wanted: int) -> None:
    made = config(max_batch_size=configured)
    if wanted >= configured:
        made.set_max_batch_size(wanted)
        assert made.as_dict()["max_batch_size"] == wanted
    else:
        with pytest.raises(ValueError, match=rf"max_batch_size {configured}, .* model 'm' .* {wanted}"):
            made.set_max_batch_size(wanted)
        assert made.as_dict()["max_batch_size"] == configured


@pytest.mark.parametrize("configured", [{}, {"dynamic_batching": {"preferred_batch_size": [4]}}])
def test_dynamic_batching_is_set_unless_it_is_configured(configured: dict[str, Any]) -> None:
    made = config(**configured)
    made.set_dynamic_batching()
    assert made.as_dict()["dynamic_batching"] == configured.get("dynamic_batching", {})


@pytest.mark.parametrize("other", ["sequence_batching", "ensemble_scheduling"])
def test_dynamic_batching_does_not_replace_another_scheduler(other: str) -> None:
    made = config(**{other: {}})
    with pytest.raises(ValueError, match=rf"^Configuration specified scheduling_choice as '{other}', .* 'm' "):
        made.set_dynamic_batching()
    assert "dynamic_batching" not in made.as_dict()


@both
def test_tensors_are_added_in_order_and_once(direction: str) -> None:
    made = config()
    add(made, direction, TENSOR)
    add(made, direction, {**TENSOR, "name": "B"})
    assert [tensor["name"] for tensor in made.as_dict()[direction]] == ["A", "B"]
    once = copy.deepcopy(made.as_dict())
    add(made, direction, dict(TENSOR))
    assert made.as_dict() == once


@both
@pytest.mark.parametrize("missing", ["name", "data_type", "dims"])
def test_every_property_but_optional_is_needed(direction: str, missing: str) -> None:
    tensor = {key: value for key, value in TENSOR.items() if key != missing}
    made = config()
    with pytest.raises(ValueError, match=rf"{direction}.* model 'm' is missing '{missing}' property\.$"):
        add(made, direction, tensor)
    assert made.as_dict()[direction] == []


@both
@pytest.mark.parametrize("unknown", ["reshape", "label_filename", "format"])
def test_no_other_property_is_taken(direction: str, unknown: str) -> None:
    with pytest.raises(ValueError, match=rf"^{direction} 'A' in .* contains property other than 'name', "):
        add(config(), direction, {**TENSOR, unknown: 1})


def test_only_inputs_are_optional() -> None:
    made = config()
    made.add_input({**TENSOR, "optional": True})
    assert made.as_dict()["input"][0]["optional"] is True
    with pytest.raises(ValueError, match="contains property other than 'name', 'data_type' and 'dims'"):
        made.add_output({**TENSOR, "optional": True})


@both
def test_open_fields_of_the_configuration_are_filled_in(direction: str) -> None:
    made = config(**{direction: [{"name": "A", "data_type": "TYPE_INVALID", "dims": [], "reshape": 1}]})
    add(made, direction, TENSOR)
    assert made.as_dict()[direction] == [{**TENSOR, "reshape": 1}]


@both
@pytest.mark.parametrize(("field", "value"), [("data_type", "TYPE_INT32"), ("dims", [5])])
def test_a_contradiction_names_both_sides(direction: str, field: str, value: Any) -> None:
    made = config(**{direction: [dict(TENSOR)]})
    with pytest.raises(ValueError) as caught:
        add(made, direction, {**TENSOR, field: value})
    message = str(caught.value)
    assert "model 'm'" in message
    assert all(part in message for part in ("'A'", str(value), str(TENSOR[field])))
    assert made.as_dict()[direction] == [TENSOR]


def test_optional_may_be_left_out_but_not_contradicted() -> None:
    made = config(input=[{**TENSOR, "optional": False}])
    made.add_input(dict(TENSOR))
    with pytest.raises(ValueError, match="expects optional True but the model configuration specifies optional False"):
        made.add_input({**TENSOR, "optional": True})


def test_the_transaction_policy() -> None:
    made = config()
    made.set_model_transaction_policy({})
    assert made.as_dict()["model_transaction_policy"] == {}
    made.set_model_transaction_policy({"decoupled": True})
    made.set_model_transaction_policy({"decoupled": True})
    assert made.as_dict()["model_transaction_policy"] == {"decoupled": True}
    with pytest.raises(ValueError, match=r"change decoupled property .* which is already set to 'True'"):
        made.set_model_transaction_policy({"decoupled": False})
    made = config()
    with pytest.raises(ValueError, match="contains property other than 'decoupled'"):
        made.set_model_transaction_policy({"decoupled": True, "streaming": True})
    assert "model_transaction_policy" not in made.as_dict()


@pytest.mark.parametrize(
    ("look_up", "direction"), [(get_input_config_by_name, "input"), (get_output_config_by_name, "output")]
)
def test_look_up_by_name(look_up: Any, direction: str) -> None:
    other = {**TENSOR, "name": "B"}
    made = {direction: [TENSOR, other, {**TENSOR, "dims": [9]}]}
    assert look_up(made, "B") is other
    assert look_up(made, "A") is TENSOR, "the first of a name"
    assert look_up(made, "C") is None
    assert look_up({}, "A") is None


def test_decoupled() -> None:
    policies = ({}, *({"model_transaction_policy": {"decoupled": decoupled}} for decoupled in (True, False)))
    assert [using_decoupled_model_transaction_policy(made) for made in policies] == [False, True, False]
