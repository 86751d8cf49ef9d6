import triton_python_backend_utils as pb_utils

STEPS = ["crop", "sharpen", "tone"]


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        picture = pb_utils.get_input_tensor_by_name(request, "PICTURE").as_numpy()
        for step in STEPS:
            picture = self.ask(step, "IN", picture, "OUT")
        return pb_utils.InferenceResponse([pb_utils.Tensor("PRINT", picture)])

    def ask(self, model, name, array, output):
        request = pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor(name, array)], requested_output_names=[output]
        )
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, output).as_numpy()
