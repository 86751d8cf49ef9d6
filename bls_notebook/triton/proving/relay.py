"""A model that runs on the server: it asks a decoupled model, and gives its whole stream as one answer.

HTTP cannot stream tensors, and this needs no client for gRPC. The file is copied into the served repository
as it is; of this package it may import nothing.
"""

import base64
import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


def answer_of(response: Any) -> str:
    """Return a response as JSON."""
    if response.has_error():
        return json.dumps({"error": response.error().message()})
    outputs = []
    for tensor in response.output_tensors():
        array = tensor.as_numpy()
        if array.dtype == np.object_:
            serialized: Any = pb_utils.serialize_byte_tensor(array)
            data, kind = serialized.tobytes(), "BYTES"
        else:
            data, kind = array.tobytes(), array.dtype.name
        shape = list(array.shape)
        outputs.append([tensor.name(), kind, shape, base64.b64encode(data).decode()])
    return json.dumps({"outputs": outputs})


class TritonPythonModel:
    """Asks the model that its parameters name."""

    def initialize(self, args: dict[str, str]) -> None:
        """Take the name of the model to ask."""
        self.asked = json.loads(args["model_config"])["parameters"]["asked"]["string_value"]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Ask once a request."""
        responses = []
        for request in requests:
            asked = pb_utils.InferenceRequest(
                model_name=self.asked, requested_output_names=[], inputs=request.inputs(),
                correlation_id=request.correlation_id(), flags=request.flags(),
                parameters=json.loads(request.parameters() or "{}"),
            )  # fmt: skip
            answers = [answer_of(each).encode() for each in asked.exec(decoupled=True)]
            told = np.empty(len(answers), np.object_)
            told[:] = answers
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("ANSWERS", told)]))
        return responses
