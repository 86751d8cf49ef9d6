"""Calling a decoupled model: `exec(decoupled=True)` returns an iterator over its responses.

MODEL_NAME is the name of a model with the input and output of `square_int32`. SUM is the sum of its
responses, COUNT their number.
"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        callee = pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0].decode()
        call = pb_utils.InferenceRequest(
            model_name=callee, requested_output_names=["OUT"], inputs=[pb_utils.get_input_tensor_by_name(request, "IN")]
        )
        total = count = 0
        # The loop starts with the first response, while the callee may still work on the next.
        for response in call.exec(decoupled=True):
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            out = pb_utils.get_output_tensor_by_name(response, "OUT")
            if out is None:
                # If the callee sends the final flag alone, it arrives as a last response without tensors.
                continue
            total += int(out.as_numpy()[0])
            count += 1
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("SUM", np.array([total], dtype=np.int32)),
                pb_utils.Tensor("COUNT", np.array([count], dtype=np.int32)),
            ]
        )
