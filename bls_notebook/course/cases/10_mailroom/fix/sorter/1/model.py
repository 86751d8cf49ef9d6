import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        code = pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy()
        try:
            street = self.ask("lookup", "IN", code.ravel(), "OUT")
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse([pb_utils.Tensor("STREET", street.reshape(1, 1))])

    def ask(self, model, name, array, output):
        request = pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor(name, array)], requested_output_names=[output]
        )
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, output).as_numpy()
