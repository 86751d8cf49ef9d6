import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        time.sleep(0.01)
        if value.min() < 0:
            error = pb_utils.TritonError(f"style got {value.min()}, expected no negative number")
            return pb_utils.InferenceResponse(error=error)
        points = np.array([value.max() * 10], np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", points)])
