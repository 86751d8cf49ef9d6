"""Asking the model. The recorded cases hold what counts of its answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bls_notebook.engine.errors import ConfigError
from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.repository.config import ModelConfigMessage, auto_complete, complete, parse_pbtxt, to_dict

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
        ConfigError, match=f"model 'm': auto_complete_config returned {named}, expected a pb_utils.ModelConfig"
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
