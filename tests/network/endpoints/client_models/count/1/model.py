"""Decoupled: counts to N, a response a number; an N below zero is an error after the first."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            number = int(request.inputs()[0].as_numpy()[0])
            for at in range(abs(number)):
                told = pb_utils.Tensor("AT", np.array([at], np.int32))
                sender.send(pb_utils.InferenceResponse([told]))
                if number < 0:
                    failed = pb_utils.TritonError("below zero")
                    sender.send(pb_utils.InferenceResponse(error=failed))
                    break
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
