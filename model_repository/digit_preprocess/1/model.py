"""Make any grey picture of a digit look like those that the classifiers learnt from.

Their pictures (scikit-learn's digits) are 8 x 8, bright ink on a dark ground, the ink as tall as the
picture. IMAGE may have any size, any contrast, ink of either kind and room around the digit. FEATURES is
the same digit in 64 numbers from 0 (ground) to 1 (ink).
"""

import numpy as np
import triton_python_backend_utils as pb_utils

SIDE = 8
# Below this share of the full contrast a pixel counts as ground when the digit is looked for.
FAINT = 0.2


def stretch(image):
    """Contrast from 0 to 1, ink bright."""
    low, high = float(image.min()), float(image.max())
    ink = (image - low) / (high - low)
    edge = np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]])
    # The edge of a picture is mostly ground. A bright one means dark ink on paper.
    return 1.0 - ink if np.median(edge) > 0.5 else ink


def centre(ink):
    """Cut the digit out and put it in the middle of a square."""
    rows = np.flatnonzero(ink.max(axis=1) > FAINT)
    columns = np.flatnonzero(ink.max(axis=0) > FAINT)
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    # A digit that fills its picture was placed by somebody already: moving it could only blur it.
    if max(bottom - top, right - left) < max(ink.shape):
        ink = ink[top:bottom, left:right]
    height, width = ink.shape
    side = max(height, width)
    above, before = (side - height) // 2, (side - width) // 2
    return np.pad(ink, ((above, side - height - above), (before, side - width - before)))


def area_weights(length):
    """The (SIDE, length) matrix that averages `length` pixels into SIDE, each by the share that it covers."""
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
        # Averaging pales thin strokes, so the brightest ink is brought back to 1.
        features = (small / small.max()).astype(np.float32).reshape(-1)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("FEATURES", features)])
