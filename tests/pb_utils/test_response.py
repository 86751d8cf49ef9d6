"""`InferenceResponse`, `TritonError`, the look-ups by name, and the sender's own checks."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.pb_utils import (
    InferenceRequest,
    InferenceResponse,
    InferenceResponseSender,
    Tensor,
    TritonError,
    TritonModelException,
    get_input_tensor_by_name,
    get_output_tensor_by_name,
)

A, B = Tensor("A", np.zeros(1)), Tensor("B", np.ones(2))
CODES = ["UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED"]


def test_an_empty_response() -> None:
    response = InferenceResponse()
    assert response.has_error() is False
    assert response.error() is None
    assert (response.output_tensors(), response.parameters()) == ([], "{}")


def test_positions_and_names() -> None:
    error = TritonError("bad")
    for response in (
        InferenceResponse((A, B), error, {"k": 1}),
        InferenceResponse(output_tensors=[A, B], error=error, parameters={"k": 1}),
    ):
        assert response.output_tensors() == [A, B]
        assert response.error() is error
        assert response.has_error() is True
        assert json.loads(response.parameters()) == {"k": 1}


def test_the_list_of_outputs_is_the_responses_own() -> None:
    outputs = [A]
    response = InferenceResponse(outputs)
    outputs.clear()
    response.output_tensors().clear()
    assert response.output_tensors() == [A]


@pytest.mark.parametrize(("number", "name"), list(enumerate(CODES)))
def test_codes(number: int, name: str) -> None:
    code = getattr(TritonError, name)
    assert (int(code), str(code), code.name) == (number, f"__ErrorCode.{name}", name)
    assert TritonError("m", code).code() is code
    assert TritonError(message="m", code=code).code() == number


def test_an_error() -> None:
    error = TritonError("what \u00e9")
    assert error.message() == "what \u00e9"
    assert error.code() is TritonError.INTERNAL
    assert TritonError(b"bytes").message() == "bytes"  # type: ignore[arg-type]
    assert TritonError("").message() == ""
    assert not isinstance(error, Exception)


def test_a_method_that_is_not_called_is_named_without_the_error_that_it_would_return() -> None:
    response = InferenceResponse(error=TritonError("no sensor 82"))
    with pytest.raises(TypeError, match=r"must be a TritonError, got InferenceResponse\.error of type method$") as info:
        InferenceResponse(error=response.error)  # type: ignore[arg-type]
    assert "82" not in str(info.value)


@pytest.mark.parametrize("message", [None, 5, 1.0, ["x"], ValueError("x"), "half \ud800"])
def test_a_message_is_text(message: Any) -> None:
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        TritonError(message)
    with pytest.raises(TypeError):
        TritonError()  # type: ignore[call-arg]


def test_error_messages_of_subclasses() -> None:
    class OddError(TritonError):
        def message(self) -> str:
            raise SystemExit

    class Text(str):
        __slots__ = ()

    class ForgetfulError(TritonError):
        def __init__(self) -> None:
            pass

    error = InferenceResponse(error=OddError(Text("what"), TritonError.NOT_FOUND))._error
    assert type(error) is TritonError
    assert type(error.message()) is str
    assert (error.message(), error.code()) == ("what", TritonError.NOT_FOUND)
    assert TritonError(b"caf\xe9").message() == "caf\\xe9"  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"__init__\(\) must be called"):
        InferenceResponse(error=ForgetfulError())


@pytest.mark.parametrize("code", [None, 1, "INTERNAL", 99])
def test_a_code_is_one_of_the_codes(code: Any) -> None:
    with pytest.raises(TypeError, match=r"incompatible constructor arguments.*use one of TritonError\.INTERNAL"):
        TritonError("m", code)


def test_tensors_are_found_by_name() -> None:
    request = InferenceRequest(inputs=[A, B], requested_output_names=[], model_name="m")
    response = InferenceResponse([A, B])
    assert get_input_tensor_by_name(request, "B") is B
    assert get_output_tensor_by_name(response, "A") is A
    assert get_input_tensor_by_name(request, "C") is None
    assert get_output_tensor_by_name(response, "C") is None
    assert get_input_tensor_by_name(inference_request=request, name="A") is A
    assert get_output_tensor_by_name(inference_response=response, name="B") is B
    assert get_output_tensor_by_name(InferenceResponse([A, Tensor("A", np.ones(1))]), "A") is A


class Mailbox:
    cancelled = False

    def __init__(self) -> None:
        self.sent: list[tuple[InferenceResponse | None, bool]] = []
        self.dropped = 0

    def is_cancelled(self) -> bool:
        return self.cancelled

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        self.sent.append((response, final))

    def drop_sender(self) -> None:
        self.dropped += 1


def test_a_sender_passes_responses_and_flags_on() -> None:
    mailbox = Mailbox()
    sender = InferenceResponseSender(mailbox)
    response = InferenceResponse()
    sender.send(response)
    sender.send(response, 1)
    sender.send(response=response, flags=0)
    sender.send(flags=1)
    sender.send(None, 1)
    assert mailbox.sent == [(response, False), (response, True), (response, False), (None, True), (None, True)]
    assert sender.is_cancelled() is False
    mailbox.cancelled = True
    assert sender.is_cancelled() is True
    del sender
    assert mailbox.dropped == 1


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ((InferenceResponse(), 2), TritonModelException, r"^Unable to send response\. Unsupported flag provided\.$"),
    ((InferenceResponse(), -1), TritonModelException, "Unsupported flag"),
    ((None, 5), TritonModelException, "Unsupported flag"),
    ((), TritonModelException, r"^Inference Response object must be provided when the response flags is set to"),
    ((None, 0), TritonModelException, "must be provided when the response flags is set to zero"),
    (([],), TypeError, "incompatible function arguments"),
    (("x",), TypeError, "incompatible function arguments"),
    ((TritonError("x"),), TypeError, "incompatible function arguments"),
    ((InferenceResponse(), "1"), TypeError, "flags must be int"),
    ((InferenceResponse(), 1.0), TypeError, "flags must be int"),
    ((InferenceResponse(), None), TypeError, "flags must be int"),
])  # fmt: skip
def test_wrong_responses_and_flags_of_a_sender(arguments: Any, error: type[Exception], message: str) -> None:
    mailbox = Mailbox()
    sender = InferenceResponseSender(mailbox)
    with pytest.raises(error, match=message):
        sender.send(*arguments)
    assert mailbox.sent == []


def test_outputs_should_not_be_empty() -> None:
    with pytest.raises(TritonModelException, match=r"Output tensor .* should not be empty"):
        InferenceResponse([A, None])  # type: ignore[list-item]


def test_the_text_of_an_error_has_no_message_in_a_model(repo: bls.ModelRepository) -> None:
    body = "pb_utils.InferenceResponse(error=pb_utils.TritonError(f'{pb_utils.TritonError(\"lost\")}'))"
    repo.define("m", f"""
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [{body} for _ in requests]
""")  # fmt: skip
    error = repo.infer("m", {}).error
    assert error is not None
    assert re.fullmatch(r"<c_python_backend_utils\.TritonError object at 0x[0-9a-f]+>", error.message())
    assert "lost" in str(TritonError("lost"))
