import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        time.sleep(0.005)
        tile = np.arange(256 * 256, dtype=np.int32).reshape(256, 256) % value[0]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tile)])
