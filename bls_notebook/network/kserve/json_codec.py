"""Inference requests and responses over HTTP: JSON, with the tensors' bytes behind it. Pure."""

from __future__ import annotations

import json
from typing import Any

from bls_notebook.network.connection.carried import parameters_of, parameters_of_model
from bls_notebook.network.connection.tensors import AnswerError, listed, raw_of, tensor_of, tensor_of_list
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

JSON_LENGTH = "Inference-Header-Content-Length"
"""The header with the length of the JSON, where tensors follow it in their binary form."""


def encode_request(request: InferenceRequest, all_outputs: bool, binary: bool) -> list[Any]:
    """Return the parts of a request's body: the JSON, then, if `binary`, the bytes of each tensor.

    Raises
    ------
    AnswerError
        A tensor has no form in JSON, and `binary` is false.
    """
    options = request._options
    inputs, parts = [], []
    for tensor in request._inputs:
        described: dict[str, Any] = {
            "name": tensor._name, "shape": list(tensor._array.shape), "datatype": tensor._datatype,
        }  # fmt: skip
        if binary:
            raw = raw_of(tensor)
            parts.append(raw)
            described["parameters"] = {"binary_data_size": len(raw)}
        else:
            described["data"] = listed(tensor)
        inputs.append(described)
    document: dict[str, Any] = {"inputs": inputs}
    parameters = parameters_of(options)
    if binary and all_outputs:
        parameters["binary_data_output"] = True
    if not all_outputs:
        wanted = {"parameters": {"binary_data": True}} if binary else {}
        document["outputs"] = [{"name": output, **wanted} for output in request._requested]
    if parameters:
        document["parameters"] = parameters
    if options.request_id:
        document["id"] = options.request_id
    return [json.dumps(document, separators=(",", ":")).encode(), *parts]


def decode_response(body: bytes, length: str | None) -> InferenceResponse:
    """Return the response in a body; `length` is the value of the header `JSON_LENGTH`, None without one.

    Raises
    ------
    AnswerError
        It is not what the protocol says.
    """
    view = memoryview(body)
    try:
        at = len(body) if length is None else int(length)
        document = json.loads(bytes(view[:at]))
        outputs = document.get("outputs") or []
        tensors = []
        for output in outputs:
            size = (output.get("parameters") or {}).get("binary_data_size")
            parts = (output["name"], output["datatype"], output["shape"])
            if size is None:
                tensors.append(tensor_of_list(*parts, output.get("data") or []))
            else:
                tensors.append(tensor_of(*parts, view[at : at + size]))
                at += size
        parameters = parameters_of_model(document.get("parameters") or {})
    except AnswerError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise AnswerError(
            f"the answer is not as the protocol says ({type(error).__name__}: {error})"
        ) from error
    response = InferenceResponse(tensors)
    response._parameters = parameters
    return response
