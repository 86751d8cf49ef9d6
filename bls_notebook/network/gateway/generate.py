"""`/generate` and `/generate_stream`: a request and its answers as plain JSON objects.

Members that are named as inputs of the model are its inputs, those of ``parameters`` too; the others are
parameters of the request. So it is with the answer's outputs.
"""

from __future__ import annotations

from math import prod
from typing import Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.spec import TensorSpec
from bls_notebook.network.kserve.errors import refuse
from bls_notebook.network.kserve.json_codec import (
    flattened,
    input_tensor_of_values,
    member,
    output_values,
    parsed,
    take_parameters,
)
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.pb_utils import InferenceResponse, Tensor

ONE_RESPONSE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates "
    "various number of responses"
)


def generating(model: LoadedModel, version: int, body: bytes | bytearray) -> DecodedRequest:
    """Decode a request."""
    if not body:
        refuse("failed to parse the request JSON buffer: The document is empty. at 0")
    found = parsed(body)
    if not isinstance(found, dict):
        refuse("attempt to get members for non-object")
    call = DecodedRequest(model, version, member(found, "id", str, ""))
    own: dict[str, Any] = {}
    nested = found.pop("parameters", {}) if "parameters" not in model.spec.inputs else {}
    if not isinstance(nested, dict):
        refuse("Expected JSON object for keyword: 'parameters'")
    for name, value in (*found.items(), *nested.items()):
        wanted = model.spec.inputs.get(name)
        if wanted is not None:
            call.inputs.append(_input(wanted, value))
        else:
            own[name] = value
    take_parameters(call, own)
    return call


def generated(call: DecodedRequest, response: InferenceResponse) -> dict[str, Any]:
    """Return an answer: one element by itself, more of them as a list."""
    answer: dict[str, Any] = {tensor._name: _output(tensor) for tensor in response._outputs}
    answer |= {"model_name": call.model.name, "model_version": str(call.model.version)}
    if call.request_id:
        answer["id"] = call.request_id
    return dict(sorted(answer.items()))


def _input(wanted: TensorSpec, value: Any) -> Tensor:
    """An input of a value or a list of them: the innermost size that may vary takes them all."""
    given = value if isinstance(value, list) else [value]
    fixed = prod(size for size in wanted.shape if size != -1)
    left, rest = divmod(len(given), fixed) if fixed else (0, len(given))
    shape = []
    for size in reversed(wanted.shape):
        shape.append(left if size == -1 else size)
        left = 1 if size == -1 else left
    if rest or left != 1:
        refuse(f"The schema can not convert input '{wanted.name}' to tensor with proper shape")
    return input_tensor_of_values(wanted.name, wanted.datatype, shape[::-1], flattened(given))


def _output(tensor: Tensor) -> Any:
    values = output_values(tensor)
    return values[0] if len(values) == 1 else values
