"""Find the loudest moment of a recording without its noise. This model leaks memory; see `tidy`."""

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []  # every response, for debugging
        self.previews = []  # the first samples of each recording

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        signal, noise = (pb_utils.get_input_tensor_by_name(request, name) for name in ("SIGNAL", "NOISE"))
        if signal.shape() == [0]:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("leaky: SIGNAL is empty"))
        response = pb_utils.InferenceRequest(
            model_name="dlpack_add_sub",
            requested_output_names=["OUTPUT1"],
            inputs=[pb_utils.Tensor.from_dlpack("INPUT0", signal), pb_utils.Tensor.from_dlpack("INPUT1", noise)],
        ).exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        self.kept.append(response)
        clean = self._array_of(pb_utils.get_output_tensor_by_name(response, "OUTPUT1"))
        self.previews.append(clean[:8])
        at = int(abs(clean).argmax())
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("LOUDEST", numpy.array([float(clean[at])], numpy.float32)),
                pb_utils.Tensor("AT", numpy.array([at], numpy.int32)),
            ]
        )

    @staticmethod
    def _array_of(tensor):
        if tensor.is_cpu():
            return tensor.as_numpy()
        # Only machines with a GPU reach this line, so others do not need CuPy.
        import cupy

        return cupy.from_dlpack(tensor)
