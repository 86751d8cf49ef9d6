"""Gives back what it gets, where it is: on the CPU or on a GPU."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        # FORCE_CPU_ONLY_INPUT_TENSORS is "no" in the config; otherwise Triton would move every input to the
        # CPU first. as_numpy would fail for a tensor on a GPU. DLPack shares the memory wherever it is.
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT")
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUTPUT", tensor)])
