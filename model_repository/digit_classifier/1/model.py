"""A fast reader of digits, trained while it loads: logistic regression, one weighted sum per digit.

`initialize` runs once, before the model is ready, so no request waits for the training. The training
skips every third digit of scikit-learn's set (0, 3, 6, ...), so that you can try the model on them.
The config allows batches: FEATURES has the shape [batch, 64], and every output starts with the same batch.
"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        # Imported here, not at the top: Triton also imports this file in a process that only completes
        # the config and never calls initialize. That process should start fast.
        from sklearn.datasets import load_digits
        from sklearn.linear_model import LogisticRegression

        digits = load_digits()
        features = digits.data / digits.data.max(axis=1, keepdims=True)
        taught = np.arange(len(features)) % 3 != 0
        # Run to convergence, so that every version of scikit-learn finds the same weights.
        self.model = LogisticRegression(C=1.0, solver="newton-cg", tol=1e-8)
        self.model.fit(features[taught], digits.target[taught])

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        features = pb_utils.get_input_tensor_by_name(request, "FEATURES").as_numpy()
        if not np.isfinite(features).all():
            message = "digit_classifier: FEATURES holds NaN or infinity; give 64 numbers from 0 to 1"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
        probabilities = self.model.predict_proba(features.astype(np.float64)).astype(np.float32)
        labels = probabilities.argmax(axis=1).astype(np.int32).reshape(-1, 1)
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor("PROBABILITIES", probabilities), pb_utils.Tensor("LABEL", labels)]
        )
