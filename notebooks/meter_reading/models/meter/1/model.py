"""Read a water meter from a photo."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.wheels = int(parameters["wheels"]["string_value"])

    def execute(self, requests):
        return [self.read(request) for request in requests]

    def read(self, request):
        photo = pb_utils.get_input_tensor_by_name(request, "PHOTO").as_numpy()
        (boxes,) = self.call("find_wheels", {"PHOTO": photo.astype(np.float32) / 255}, ["BOXES"])
        boxes = boxes[np.argsort(boxes[:, 0])][: self.wheels]

        digits = []
        for box in boxes:
            (digit,) = self.call("read_wheel", {"WHEEL": crop(photo, box)[np.newaxis]}, ["DIGIT"])
            digits.append(digit)
        reading = np.array([int("".join(str(digit.item()) for digit in digits) or 0)], np.int32)

        yesterday = pb_utils.get_input_tensor_by_name(request, "YESTERDAY").as_numpy()
        (plausible,) = self.call("plausible", {"YESTERDAY": yesterday, "TODAY": reading}, ["PLAUSIBLE"])
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("READING", reading), pb_utils.Tensor("PLAUSIBLE", plausible)]
        )

    def call(self, model, inputs, outputs):
        response = pb_utils.InferenceRequest(
            model_name=model,
            inputs=[pb_utils.Tensor(name, array) for name, array in inputs.items()],
            requested_output_names=outputs,
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(f"{model}: {response.error().message()}")
        return [pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in outputs]


def crop(photo, box):
    """Return the part of the photo in the box (left, top, right, bottom: 0 to 1), as 8 x 8 pixels."""
    left, top, right, bottom = np.clip(box, 0, 1)
    height, width = photo.shape
    centres = (np.arange(8) + 0.5) / 8
    rows = np.minimum((top + (bottom - top) * centres) * height, height - 1).astype(int)
    columns = np.minimum((left + (right - left) * centres) * width, width - 1).astype(int)
    return photo[rows[:, np.newaxis], columns]
