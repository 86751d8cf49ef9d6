import numpy as np
import triton_python_backend_utils as pb_utils

JUDGES = ["facts", "style", "speed"]


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        sheet = pb_utils.get_input_tensor_by_name(request, "SHEET").as_numpy()
        total = sum(self.points(judge, sheet) for judge in JUDGES)
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOTAL", np.array([total], np.int32))])

    def points(self, judge, sheet):
        request = pb_utils.InferenceRequest(
            model_name=judge, inputs=[pb_utils.Tensor("IN", sheet)], requested_output_names=["OUT"]
        )
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        points = pb_utils.get_output_tensor_by_name(response, "OUT")
        return int(points.as_numpy()[0])
