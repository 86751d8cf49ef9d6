"""Count the letters of each text, in the order of `LETTERS`."""

import numpy as np
import triton_python_backend_utils as pb_utils

LETTERS = "abcdefghijklmnopqrstuvwxyzäåéèêçñöüß"
PLACES = {letter: place for place, letter in enumerate(LETTERS)}


class TritonPythonModel:
    def execute(self, requests):
        return [self._count(pb_utils.get_input_tensor_by_name(request, "TEXT")) for request in requests]

    def _count(self, texts):
        texts = texts.as_numpy()
        counts = np.zeros((len(texts), len(LETTERS)), dtype=np.float32)
        for row, text in enumerate(texts):
            for letter in text.decode("utf-8").lower():
                if letter in PLACES:
                    counts[row, PLACES[letter]] += 1
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("COUNTS", counts)])
