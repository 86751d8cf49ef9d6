"""Finding a tensor by its name."""

from __future__ import annotations

from .request import InferenceRequest
from .response import InferenceResponse
from .tensor import Tensor

__all__ = ["get_input_tensor_by_name", "get_output_tensor_by_name"]


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """Return the input tensor of that name, None where there is none."""
    for tensor in inference_request._inputs:
        if tensor._name == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """Return the output tensor of that name, None where there is none."""
    for tensor in inference_response._outputs:
        if tensor._name == name:
            return tensor
    return None
