"""Answers with the context of its request's trace; fails where X is negative."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            if (pb_utils.get_input_tensor_by_name(request, "X").as_numpy() < 0).any():
                error = pb_utils.TritonError("negative", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            text = np.array([json.dumps(request.trace().get_context())], np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("CONTEXT", text)]))
        return responses
