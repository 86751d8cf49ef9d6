import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        picture = pb_utils.get_input_tensor_by_name(request, "IN")
        value = picture.as_numpy()
        time.sleep(0.01)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.minimum(value, 200) + np.uint8(9))])
