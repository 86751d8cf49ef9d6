"""Gives its inputs back, and says what else came with the request."""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The parameter `wait` is seconds to take; `fail` a message to fail with."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = json.loads(request.parameters() or "{}")
        time.sleep(float(given.get("wait", 0)))
        if "fail" in given:
            error = pb_utils.TritonError(given["fail"], pb_utils.TritonError.NOT_FOUND)
            return pb_utils.InferenceResponse(error=error)
        about = {"id": request.request_id(), "timeout": request.timeout(), "parameters": given}
        told = pb_utils.Tensor("ABOUT", np.array([json.dumps(about).encode()], np.object_))
        return pb_utils.InferenceResponse([*map(again, request.inputs()), told])


def again(tensor):
    if tensor.name() == "BF16":  # which NumPy does not have
        return pb_utils.Tensor.from_dlpack("BF16", tensor.to_dlpack())
    return pb_utils.Tensor(tensor.name(), tensor.as_numpy())
