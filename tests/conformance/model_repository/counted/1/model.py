"""Counts its executions: with the response cache on, an equal request is answered without one."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.calls = 0

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        self.calls += 1
        total = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().sum(dtype=np.int32)
        if total < 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"call {self.calls}: below zero"))
        outputs = {"CALLS": self.calls, "SUM": total}
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.array([value], np.int32)) for name, value in outputs.items()]
        )
