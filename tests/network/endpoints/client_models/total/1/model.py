"""Keeps a sum for each sequence."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        add, start, of = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy().flat[0] for name in ("ADD", "START", "ID")
        )
        self.sums[of] = int(add) + (0 if start else self.sums[of])
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", np.array([[self.sums[of]]], np.int32))])
