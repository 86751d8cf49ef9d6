"""Turn letter counts into probabilities of languages.

The probabilities are the likelihoods of the counts under each language's frequencies (`frequencies.json`).
"""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        file = Path(args["model_repository"]) / args["model_version"] / "frequencies.json"
        with file.open(encoding="utf-8") as opened:
            table = np.array(list(json.load(opened).values()), dtype=np.float64)
        table += 0.01  # no letter is impossible
        self.likelihoods = np.log(table / table.sum(axis=1, keepdims=True)).T

    def execute(self, requests):
        return [self._judge(pb_utils.get_input_tensor_by_name(request, "COUNTS")) for request in requests]

    def _judge(self, counts):
        scores = counts.as_numpy().astype(np.float64) @ self.likelihoods
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities = scores / scores.sum(axis=1, keepdims=True)
        output = pb_utils.Tensor("PROBABILITIES", probabilities.astype(np.float32))
        return pb_utils.InferenceResponse(output_tensors=[output])
