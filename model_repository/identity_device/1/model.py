"""Return the input on its own device, the CPU or a GPU."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        # FORCE_CPU_ONLY_INPUT_TENSORS is "no" in the config; otherwise Triton would move every input to the
        # CPU first. as_numpy fails for a tensor on a GPU. DLPack shares the memory on any device.
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT")
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUTPUT", tensor)])
