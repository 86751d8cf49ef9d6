"""A running sum for each sequence, and the control inputs as they came."""

import numpy as np
import triton_python_backend_utils as pb_utils

CONTROLS = ("START", "END", "CORRID")


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [pb_utils.InferenceResponse(self._outputs(request)) for request in requests]

    def _outputs(self, request):
        tensors = {t.name(): t.as_numpy() for t in request.inputs()}
        total, seen = 0, ""
        if tensors["READY"].ravel()[0]:  # an empty slot of the direct strategy is not ready
            start, end, key = (tensors[name].ravel()[0] for name in CONTROLS)
            total = (0 if start else self.sums.get(key, 0)) + int(tensors["IN"].ravel()[0])
            self.sums[key] = total
            if end:
                del self.sums[key]
            seen = "; ".join(f"{n} {tensors[n].dtype} {tensors[n].shape} {tensors[n]}" for n in CONTROLS)
        return [
            pb_utils.Tensor("SUM", np.array([[total]], np.int32)),
            pb_utils.Tensor("SEEN", np.array([[seen]], np.object_)),
        ]
