"""Water meters do not run backwards, and nobody uses a hundred cubic metres a day."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.compare(request) for request in requests]

    def compare(self, request):
        yesterday = pb_utils.get_input_tensor_by_name(request, "YESTERDAY").as_numpy()
        today = pb_utils.get_input_tensor_by_name(request, "TODAY").as_numpy()
        used = today - yesterday
        return pb_utils.InferenceResponse([pb_utils.Tensor("PLAUSIBLE", (used >= 0) & (used < 100))])
