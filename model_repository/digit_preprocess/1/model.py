"""Make any gray picture of a digit look like the training pictures of the classifiers.

The training pictures (scikit-learn's digits) are 8 x 8, with bright ink on a dark ground, and the ink is
as tall as the picture. IMAGE may have any size and contrast, bright or dark ink, and space around the
digit. FEATURES is the same digit as 64 numbers from 0 (ground) to 1 (ink).
"""

import numpy as np
import triton_python_backend_utils as pb_utils

SIDE = 8
# Pixels below this share of the full contrast count as ground in the search for the digit.
FAINT = 0.2


def stretch(image):
    """Stretch the contrast to 0..1, with bright ink."""
    low, high = float(image.min()), float(image.max())
    ink = (image - low) / (high - low)
    edge = np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]])
    # The edge of a picture is mostly ground. A bright edge means dark ink on paper.
    return 1.0 - ink if np.median(edge) > 0.5 else ink


def centre(ink):
    """Cut out the digit and center it in a square."""
    rows = np.flatnonzero(ink.max(axis=1) > FAINT)
    columns = np.flatnonzero(ink.max(axis=0) > FAINT)
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    # A digit that fills its picture is already centered: moving it could only blur it.
    if max(bottom - top, right - left) < max(ink.shape):
        ink = ink[top:bottom, left:right]
    height, width = ink.shape
    side = max(height, width)
    above, before = (side - height) // 2, (side - width) // 2
    return np.pad(ink, ((above, side - height - above), (before, side - width - before)))


def area_weights(length):
    """Return the (SIDE, length) matrix that averages `length` pixels into SIDE, weighted by coverage."""
    step = length / SIDE
    start = np.arange(SIDE)[:, np.newaxis] * step
    pixel = np.arange(length)
    overlap = np.minimum(start + step, pixel + 1) - np.maximum(start, pixel)
    return np.maximum(overlap, 0.0) / step


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        image = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
        if image.size == 0 or image.min() == image.max():
            message = f"digit_preprocess: IMAGE of shape {list(image.shape)} is blank; give one with a digit on it"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
        square = centre(stretch(image.astype(np.float64)))
        weights = area_weights(len(square))
        small = weights @ square @ weights.T
        # Averaging makes thin strokes paler, so scale the brightest ink back to 1.
        features = (small / small.max()).astype(np.float32).reshape(-1)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("FEATURES", features)])
