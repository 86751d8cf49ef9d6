"""The first step of most vision pipelines: convert a photo of any size to the input of a network.

RAW_IMAGE is height x width x RGB in bytes. PROCESSED_IMAGE is RGB x 224 x 224, normalized by the mean
and deviation of ImageNet. It needs only NumPy, so it runs wherever Triton's Python backend runs.
"""

import numpy as np
import triton_python_backend_utils as pb_utils

SIZE = 224
# Mean and standard deviation of red, green and blue over ImageNet, on a scale of 0 to 1.
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def bilinear_weights(length, size):
    """Return the (size, length) matrix that resamples an image axis from `length` to `size` pixels."""
    step = length / size
    centres = (np.arange(size) + 0.5) * step
    distance = np.abs(centres[:, np.newaxis] - (np.arange(length) + 0.5))
    # When shrinking, the triangle widens to cover every pixel, so fine patterns blur and do not alias.
    weights = np.maximum(0.0, 1.0 - distance / max(1.0, step))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        image = pb_utils.get_input_tensor_by_name(request, "RAW_IMAGE").as_numpy()
        height, width, _ = image.shape
        if image.size == 0:
            message = f"preprocess: RAW_IMAGE is empty, height {height} and width {width}; both must be 1 or more"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
        # One axis at a time: two small matrix products instead of a loop over pixels.
        rows = bilinear_weights(height, SIZE) @ image.reshape(height, -1).astype(np.float32)
        resized = bilinear_weights(width, SIZE) @ rows.reshape(SIZE, width, 3)
        normalised = (resized / np.float32(255) - MEAN) / STD
        # Networks expect the colors first. The transposed view has the memory order of the original,
        # so make it contiguous.
        processed = np.ascontiguousarray(normalised.transpose(2, 0, 1))
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("PROCESSED_IMAGE", processed)])
