"""A decoupled model: the number of responses depends on the data.

It answers IN = n with n responses that each contain n (so their sum is n squared), and then sends the
final flag without a response. The config must set `model_transaction_policy { decoupled: true }`.
"""

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def execute(self, requests):
        # A decoupled model returns nothing: it sends every response through the request's sender.
        for request in requests:
            self._stream(request)

    def _stream(self, request):
        sender = request.get_response_sender()
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        if n < 0:
            error = pb_utils.TritonError(f"square_int32: IN is {n}; give a number of responses, 0 or more")
            sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
            return
        for _ in range(n):
            out = pb_utils.Tensor("OUT", np.array([n], dtype=np.int32))
            sender.send(pb_utils.InferenceResponse(output_tensors=[out]))
        # Callers wait for this flag. Without it they would never return.
        sender.send(flags=FINAL)
