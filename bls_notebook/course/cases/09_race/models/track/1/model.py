import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        time.sleep(0.05 * float(value[0]))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 900 + value * 11)])
