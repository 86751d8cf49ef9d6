"""Waits for 20 ms, as waits_long for 40: work that does not hang on how fast the machine is."""

import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.seconds = 0.04 if args["model_name"] == "waits_long" else 0.02

    def execute(self, requests):
        responses = []
        for request in requests:
            time.sleep(self.seconds)
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + 1)]))
        return responses
