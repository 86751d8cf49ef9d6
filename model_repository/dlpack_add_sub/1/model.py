"""Sum and difference of two vectors, computed on their device without copies."""

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        inputs = [pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")]
        if inputs[0].shape() != inputs[1].shape():
            shapes = f"INPUT0 has shape {list(inputs[0].shape())} but INPUT1 {list(inputs[1].shape())}"
            message = f"dlpack_add_sub: {shapes}; give them the same length"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
        on_gpu = [tensor for tensor in inputs if not tensor.is_cpu()]
        if not on_gpu:
            a, b = (numpy.from_dlpack(tensor) for tensor in inputs)
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)])
        # Only machines with a GPU reach this line, so others do not need CuPy.
        import cupy

        _, number = on_gpu[0].__dlpack_device__()
        with cupy.cuda.Device(number):
            # Triton leaves each input on its last device, so the two may be on different devices.
            a, b = (
                cupy.asarray(tensor.as_numpy() if tensor.is_cpu() else cupy.from_dlpack(tensor)) for tensor in inputs
            )
            return pb_utils.InferenceResponse(
                [pb_utils.Tensor.from_dlpack("OUTPUT0", a + b), pb_utils.Tensor.from_dlpack("OUTPUT1", a - b)]
            )
