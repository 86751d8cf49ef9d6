"""The smallest useful model: it returns the sum and the difference of two vectors."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
        if a.shape != b.shape:
            # Triton has checked each input against the config, but it does not compare their lengths,
            # and NumPy would silently broadcast a vector with one element.
            # An error response fails this request only. An exception would fail the whole batch.
            shapes = f"INPUT0 has shape {list(a.shape)} but INPUT1 {list(b.shape)}"
            message = f"add_sub: {shapes}; give them the same length"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor("OUTPUT0", np.add(a, b)), pb_utils.Tensor("OUTPUT1", np.subtract(a, b))]
        )
