"""Answers its inputs, and the shapes in which they came."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(self._outputs(request)) for request in requests]

    def _outputs(self, request):
        arrays = {t.name(): t.as_numpy() for t in request.inputs()}
        shapes = np.array([str(sorted((n, list(a.shape)) for n, a in arrays.items()))], np.object_)
        outputs = [pb_utils.Tensor("OUT" + name[2:], array) for name, array in arrays.items()]
        return [*outputs, pb_utils.Tensor("SHAPES", shapes)]
