"""Which input is which argument, which output which result, and what is refused: no PyTorch needed."""

from __future__ import annotations

from typing import Any

import pytest

from bls_notebook.backends.protocol import BackendError
from bls_notebook.engines.pytorch import Argument, parameter_warnings, positions_of, settings_of


def arguments(*names: str, kind: str = "TensorType", type: str = "Tensor") -> list[Argument]:
    return [Argument(name, kind, type) for name in names]


def config(inputs: list[str], outputs: list[str], **more: Any) -> dict[str, Any]:
    def tensors(names: list[str]) -> list[dict[str, Any]]:
        return [{"name": n, "data_type": "TYPE_FP32", "dims": ["3"]} for n in names]

    return {"name": "m", "max_batch_size": 0, "input": tensors(inputs), "output": tensors(outputs), **more}


@pytest.mark.parametrize(("names", "expected"), [
    (["b", "a"], {"b": 1, "a": 0}),  # as the arguments of forward
    (["INPUT__1", "INPUT__0"], {"INPUT__1": 1, "INPUT__0": 0}),
    (["x__1", "other__0"], {"x__1": 1, "other__0": 0}),
    (["first", "second"], {"first": 0, "second": 1}),  # in the configuration's order
    (["b", "x__0"], {"b": 0, "x__0": 1}),  # not all of them follow a rule
    (["in__x__1", "in__x__0"], {"in__x__1": 0, "in__x__0": 1}),  # the index is what follows the first __
    (["x__", "y__1"], {"x__": 0, "y__1": 1}),  # no digits are 0, as in C
    (["x__²", "y__1"], {"x__²": 0, "y__1": 1}),  # digits of ASCII only
])  # fmt: skip
def test_positions_of_inputs(names: list[str], expected: dict[str, int]) -> None:
    assert positions_of(config(names, ["OUT"]), arguments("a", "b")).inputs == expected


@pytest.mark.parametrize(("names", "expected"), [
    (["y", "x"], {"y": 0, "x": 1}),
    (["OUT__2", "OUT__0"], {"OUT__2": 2, "OUT__0": 0}),
    (["OUT__2", "x"], {"OUT__2": 0, "x": 1}),
])  # fmt: skip
def test_positions_of_outputs(names: list[str], expected: dict[str, int]) -> None:
    assert positions_of(config(["a"], names), arguments("a")).outputs == expected


def test_a_dict_takes_any_inputs_by_name() -> None:
    found = positions_of(config(["left", "right"], ["OUT"]), arguments("x", kind="DictType"))
    assert found.takes_dict
    assert set(found.inputs) == {"left", "right"}


def controls(name: str, **more: str) -> dict[str, Any]:
    return {"control_input": [{"name": name, "control": [{"kind": "CONTROL_SEQUENCE_START", **more}]}]}


def test_control_inputs_have_an_index() -> None:
    one = config(["x__0"], ["OUT"], sequence_batching=controls("START__1"))
    assert positions_of(one, arguments("x", "start")).inputs == {"START__1": 1, "x__0": 0}


@pytest.mark.parametrize(("change", "given", "message"), [
    ({}, arguments("a"), "configuration expects 2 inputs, model provides 1: a"),
    ({}, [*arguments("a"), *arguments("n", kind="IntType", type="int")],
     "An input of type 'int' was detected in the model. Only a single input of type Dict(str, "),
    ({}, [*arguments("a"), *arguments("d", kind="DictType")], "Multiple inputs of kind DictType were detected."),
    ({"sequence_batching": controls("START")}, arguments("a", "b"), "input 'START' does not follow <name>"),
    ({"sequence_batching": controls("ID__2", data_type="TYPE_UINT64")}, arguments("a", "b", "c"),
     "input 'ID__2' type 'TYPE_UINT64' is not supported by PyTorch."),
    ({"output": []}, arguments("a", "b"), "must contain at least one output, none were specified."),
    ({"input": [{"name": f"{n}__1", "data_type": "TYPE_FP32", "dims": []} for n in "ab"]}, arguments("a", "b"),
     "'a__1' is argument 1, 'b__1' is argument 1; count the indexes"),
    ({"output": [{"name": "OUT", "data_type": "TYPE_BF16", "dims": ["1"]}]}, arguments("a", "b"),
     "unsupported datatype TYPE_BF16 for output 'OUT' for model 'm'"),
    ({"output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": ["1"]}], "max_batch_size": 2},
     arguments("a", "b"), "Triton only supports 1 dimensional List of String as output for 'OUT' for model 'm'"),
])  # fmt: skip
def test_arguments_that_do_not_fit_the_config(change: dict[str, Any], given: list[Argument], message: str) -> None:
    with pytest.raises(BackendError) as caught:
        positions_of({**config(["a", "b"], ["OUT"]), **change}, given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_text_may_be_reshaped_to_a_list() -> None:
    text = {"name": "x", "data_type": "TYPE_STRING", "dims": ["1"], "reshape": {"shape": []}}
    assert positions_of(config([], ["OUT"], input=[text], max_batch_size=2), arguments("x")).inputs == {"x": 0}


def parameters(**texts: str) -> dict[str, Any]:
    return {"name": "m", "parameters": {key: {"string_value": text} for key, text in texts.items()}}


def test_parameters() -> None:
    plain = settings_of(parameters())
    assert [key for key, value in plain.items() if value] == ["INFERENCE_MODE"]
    texts = dict(zip(plain, ("TRUE", "1", "on", "true", "off"), strict=True))
    assert settings_of(parameters(**texts)) == {key: not value for key, value in plain.items()}


def test_parameters_of_the_whole_process_are_reported_and_not_applied() -> None:
    assert parameter_warnings(parameters()) == ()
    (warning,) = parameter_warnings(parameters(INTRA_OP_THREAD_COUNT="1", ENABLE_JIT_PROFILING="false"))
    assert "not applied here: ENABLE_JIT_PROFILING, INTRA_OP_THREAD_COUNT." in warning


@pytest.mark.parametrize(("key", "text", "message"), [
    ("INFERENCE_MODE", "perhaps", "failed to convert 'perhaps' to boolean"),
    ("INTER_OP_THREAD_COUNT", "many", "failed to convert 'many' to integral number"),
])  # fmt: skip
def test_bad_parameters(key: str, text: str, message: str) -> None:
    with pytest.raises(BackendError) as caught:
        (settings_of(parameters(**{key: text})), parameter_warnings(parameters(**{key: text})))
    assert str(caught.value) == message
