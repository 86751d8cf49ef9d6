"""A stronger and slower reader of digits: it compares each picture with every training digit.

The five nearest digits vote, weighted by distance. The inputs and outputs equal those of
`digit_classifier`, so each can replace the other. Both train on the same digits: all but 0, 3, 6, ...
"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        # Imported here, not at the top: Triton also imports this file in a process that only completes
        # the config and never calls initialize. That process should start fast.
        from sklearn.datasets import load_digits
        from sklearn.neighbors import KNeighborsClassifier

        digits = load_digits()
        features = digits.data / digits.data.max(axis=1, keepdims=True)
        taught = np.arange(len(features)) % 3 != 0
        self.model = KNeighborsClassifier(n_neighbors=5, weights="distance", algorithm="brute")
        self.model.fit(features[taught], digits.target[taught])

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        features = pb_utils.get_input_tensor_by_name(request, "FEATURES").as_numpy()
        if not np.isfinite(features).all():
            message = "digit_expert: FEATURES holds NaN or infinity; give 64 numbers from 0 to 1"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
        probabilities = self.model.predict_proba(features.astype(np.float64)).astype(np.float32)
        labels = probabilities.argmax(axis=1).astype(np.int32).reshape(-1, 1)
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor("PROBABILITIES", probabilities), pb_utils.Tensor("LABEL", labels)]
        )
