"""`InferenceRequest`: its arguments, its getters, and every argument that is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.pb_utils import (
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceRequest,
    InferenceResponse,
    InferenceTrace,
    MemoryType,
    PreferredMemory,
    Tensor,
    TritonModelException,
)
from bls_notebook.testing import responses_of

T = Tensor("IN", np.zeros(1, np.float32))
NEEDED: dict[str, Any] = {"inputs": [T], "requested_output_names": ["OUT"], "model_name": "m"}


def request(**options: Any) -> InferenceRequest:
    return InferenceRequest(**{**NEEDED, **options})


def test_defaults_of_a_request() -> None:
    r = request()
    assert (r.request_id(), r.correlation_id(), r.inputs()) == ("", 0, [T])
    assert (r.requested_output_names(), r.flags(), r.timeout()) == ({"OUT"}, 0, 0)
    assert r.parameters() == "{}"
    assert isinstance(r.trace(), InferenceTrace)
    assert r.trace().get_context() is None
    assert r.is_cancelled() is False


def test_positions() -> None:
    memory = PreferredMemory(MemoryType.TRITONSERVER_MEMORY_CPU, 0)
    trace = request().trace()
    r = InferenceRequest("id", 7, [T], ["A", "B"], "m", 3, 2, 9, memory, trace, {"k": "v"})
    assert (r.request_id(), r.correlation_id(), r.inputs()) == ("id", 7, [T])
    assert (r.requested_output_names(), (r._model_name, r._model_version)) == ({"A", "B"}, ("m", 3))
    assert (r.flags(), r.timeout()) == (2, 9)
    assert r._options.preferred_memory is memory
    assert r._options.trace is trace
    assert json.loads(r.parameters()) == {"k": "v"}


def test_getters_have_tritons_types() -> None:
    r = request(correlation_id="seq", flags=np.int32(1), timeout=np.uint8(5), parameters={"b": True})
    getters = (r.inputs, r.requested_output_names, r.flags, r.timeout, r.correlation_id, r.parameters)
    assert [type(getter()) for getter in getters] == [list, set, int, int, str, str]
    assert not hasattr(r, "model_name")


@pytest.mark.parametrize("needed", sorted(NEEDED))
def test_missing_arguments_of_a_request(needed: str) -> None:
    rest = {k: v for k, v in NEEDED.items() if k != needed}
    with pytest.raises(TypeError, match=f"{needed} must be .*, which is missing"):
        InferenceRequest(**rest)


WRONG: dict[type[Exception], dict[str, list[Any]]] = {
    TritonModelException: {
        "correlation_id": [1.0, b"x"],
        "parameters": [[1], "{}", {"a": 1.5}, {"a": None}, {"a": [1]}, {"a": {}}, {"a": np.int64(1)}, {1: "a"}],
    },
    TypeError: {
        "correlation_id": [None],
        "flags": [-1, 1 << 32, 1.0, "1", None],
        "timeout": [-1, 1 << 64, 1.5, None],
        "model_version": ["1", 1.0, None, 1 << 63],
        "inputs": [None, T, "IN", b"IN", [np.zeros(1)], {T}, iter([T])],
        "requested_output_names": [None, "OUT", b"OUT", [1], [None], 5, {"OUT"}, {"OUT": 1}],
        "model_name": [None, 5],
        "request_id": [5, None],
        "preferred_memory": ["cpu", None, MemoryType.TRITONSERVER_MEMORY_CPU],
        "trace": [None, "x"],
        "unknown": [1],
    },
    RuntimeError: {"correlation_id": [-1, 1 << 64]},
}


WRONG_IN_RESPONSE: dict[type[Exception], dict[str, list[Any]]] = {
    TypeError: {
        "output_tensors": [None, T, [np.zeros(1)], iter([T]), {T}, "A"],
        "error": ["text", ValueError("x"), True],
        "unknown": [1],
    },
    TritonModelException: {"parameters": [[1], {"a": 1.5}, {"a": None}, {1: "a"}]},
}


@pytest.mark.parametrize(
    ("make", "error", "name", "value"),
    [
        (make, error, name, value)
        for make, table in ((request, WRONG), (InferenceResponse, WRONG_IN_RESPONSE))
        for error, names in table.items() for name in names for value in names[name]
    ],
    ids=lambda v: getattr(v, "__name__", str(v)).split(" object at ")[0],
)  # fmt: skip
def test_an_argument_of_a_wrong_kind(make: Any, error: type[Exception], name: str, value: Any) -> None:
    with pytest.raises(error) as info:
        make(**{name: value})
    assert type(info.value) is error
    assert name.replace("_id", "").replace("_", " ") in str(info.value).lower().replace("_", " ")


@pytest.mark.parametrize(("options", "getter", "expected"), [
    ({"model_name": b"m"}, "_model_name", "m"), ({"request_id": b"id"}, "request_id", "id"),
    ({"inputs": (T,)}, "inputs", [T]), ({"inputs": ()}, "inputs", []),
    ({"requested_output_names": ("A", "A", "B")}, "requested_output_names", {"A", "B"}),
    ({"requested_output_names": []}, "requested_output_names", set()),
    ({"correlation_id": (1 << 64) - 1}, "correlation_id", (1 << 64) - 1),
    ({"correlation_id": ""}, "correlation_id", ""), ({"timeout": (1 << 64) - 1}, "timeout", (1 << 64) - 1),
    ({"flags": (1 << 32) - 1}, "flags", (1 << 32) - 1), ({"parameters": None}, "parameters", "{}"),
    ({"parameters": {}}, "parameters", "{}"), ({"flags": True}, "flags", 1),
])  # fmt: skip
def test_an_argument_that_triton_takes(options: dict[str, Any], getter: str, expected: Any) -> None:
    made = getattr(request(**options), getter)
    assert (made if getter.startswith("_") else made()) == expected


values = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text())


@given(st.dictionaries(st.text(), values))
def test_parameters_are_json(parameters: dict[str, Any]) -> None:
    back = json.loads(request(parameters=parameters).parameters())
    assert back == parameters
    assert {k: type(v) for k, v in back.items()} == {k: type(v) for k, v in parameters.items()}


def test_the_lists_are_the_requests_own() -> None:
    inputs, names = [T], ["A"]
    r = request(inputs=inputs, requested_output_names=names)
    inputs.clear()
    names.clear()
    r.inputs().clear()
    r.requested_output_names().clear()
    assert (r.inputs(), r.requested_output_names()) == ([T], {"A"})


def test_flags_can_be_set_again() -> None:
    r = request(request_id="id", timeout=5)
    other = request()
    r.set_flags(3)
    assert (r.flags(), r.request_id(), r.timeout()) == (3, "id", 5)
    assert other.flags() == 0, "what requests share is never changed"
    other.set_flags(1)
    assert request().flags() == 0
    for bad in (-1, 1.0, None, 1 << 32):
        with pytest.raises(TypeError):
            r.set_flags(bad)  # type: ignore[arg-type]


def test_release_flags_are_numbers_of_32_bits() -> None:
    r = request()
    for flags in (0, 1, 2, 3, 99, True, (1 << 32) - 1):
        r.set_release_flags(flags)
    bad: Any
    for bad in (-1, 1 << 32, 1.0, "x", None):
        with pytest.raises(TypeError):
            r.set_release_flags(bad)


@pytest.mark.parametrize("flag", [None, "x", [], {}])
def test_the_flag_of_decoupled_requests_is_a_bool(flag: Any) -> None:
    for send in (request().exec, request().async_exec):
        with pytest.raises(TypeError, match="decoupled must be bool"):
            send(decoupled=flag)


def test_a_request_of_ones_own_has_no_sender(repo: bls.ModelRepository) -> None:
    with pytest.raises(TritonModelException, match="only a request that `execute` received"):
        repo.run(request().get_response_sender)


def test_a_sender_outside_of_models_keeps_responses() -> None:
    mine = request()
    sender = mine.get_response_sender()
    assert sender is mine.get_response_sender()
    assert not sender.is_cancelled()
    first = InferenceResponse()
    sender.send(first)
    sender.send(flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    with pytest.raises(TritonModelException, match="has been closed"):
        sender.send(InferenceResponse())
    with pytest.raises(TritonModelException, match="the request has ended"):
        mine.is_cancelled()
    assert (responses_of(mine), responses_of(request())) == ([first], [])


def test_no_model_runs_here() -> None:
    for send in (request().exec, request().async_exec):
        with pytest.raises(TritonModelException, match=r"^BLS is only supported during the 'execute' function\."):
            send()


def test_only_received_requests_can_be_cancelled(repo: bls.ModelRepository) -> None:
    with pytest.raises(TritonModelException, match="only a request that `execute` received can be cancelled"):
        repo.run(lambda: request().is_cancelled())


def test_subclasses_are_requests(repo: bls.ModelRepository) -> None:
    class Mine(InferenceRequest):
        extra = 1

    response = repo.run(lambda: Mine(**NEEDED).exec())
    assert response.error().message().endswith("Request for unknown model: 'm' is not found")


@pytest.mark.parametrize("bad", [0, 1, "cpu", None, "0", 1.0])
def test_a_memory_type_is_one_of_the_two_and_a_device_a_number(bad: Any) -> None:
    with pytest.raises(TypeError, match="preferred_memory_type must be TRITONSERVER_MEMORY_CPU or"):
        PreferredMemory(bad)
    if type(bad) is not int:
        with pytest.raises(TypeError, match="preferred_device_id must be int"):
            PreferredMemory(MemoryType.TRITONSERVER_MEMORY_CPU, bad)


def test_empty_arguments_of_a_request() -> None:
    with pytest.raises(TritonModelException) as raised:
        request(inputs=[T, None], request_id="r", model_name="m")
    assert str(raised.value) == "Input tensor for request with id 'r' and model name 'm' should not be empty."
    with pytest.raises(TritonModelException) as raised:
        request(requested_output_names=["OUT", ""], request_id="r", model_name="m")
    assert str(raised.value).startswith("Requested output name for request with id 'r' and model name 'm'")


def test_whether_it_is_decoupled_is_yes_or_no() -> None:
    for method in (request().exec, request().async_exec):
        with pytest.raises(TypeError, match="decoupled must be bool"):
            method(None)
