"""A pipeline that decides at run time: read a digit, and call a stronger model only if unsure.

    IMAGE -> digit_preprocess -> digit_classifier -> sure enough? -> DIGIT
                                                  \\-> no: digit_expert -> DIGIT

The data decides which models run. An ensemble cannot express that; a few lines of Python can.
THRESHOLD, a parameter in config.pbtxt, sets the required confidence. ASKED names the model that answered.
"""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        text = parameters.get("THRESHOLD", {}).get("string_value", "(missing)")
        try:
            self.threshold = float(text)
        except ValueError:
            self.threshold = float("nan")
        if not 0.0 <= self.threshold <= 1.0:
            raise pb_utils.TritonModelException(
                f"digit_reader: parameter THRESHOLD is {text!r}; give a number from 0 to 1 in config.pbtxt"
            )

    def execute(self, requests):
        return [self._read(request) for request in requests]

    def _read(self, request):
        image = pb_utils.get_input_tensor_by_name(request, "IMAGE")
        (features,) = self._call("digit_preprocess", [image], ["FEATURES"])
        # The classifiers take batches, so send the features as a batch of one.
        batch = pb_utils.Tensor("FEATURES", features.as_numpy()[np.newaxis])
        asked = "digit_classifier"
        digit, confidence = self._classify(asked, batch)
        if not confidence >= self.threshold:  # also true for NaN
            asked = "digit_expert"
            digit, confidence = self._classify(asked, batch)
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("DIGIT", digit),
                pb_utils.Tensor("CONFIDENCE", np.array([confidence], dtype=np.float32)),
                pb_utils.Tensor("ASKED", np.array([asked.encode()], dtype=np.object_)),
            ]
        )

    def _classify(self, model, batch):
        label, probabilities = self._call(model, [batch], ["LABEL", "PROBABILITIES"])
        return label.as_numpy()[0], probabilities.as_numpy()[0].max()

    def _call(self, model, inputs, outputs):
        """Return the named outputs of one call, or raise the error of the callee."""
        call = pb_utils.InferenceRequest(model_name=model, requested_output_names=outputs, inputs=inputs)
        response = call.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return [pb_utils.get_output_tensor_by_name(response, name) for name in outputs]
