"""A pipeline: asks waits_short, then waits_long about its answer."""

import triton_python_backend_utils as pb_utils


def ask(model, x):
    request = pb_utils.InferenceRequest(
        model_name=model, requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)]
    )
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, "Y").as_numpy()


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            y = ask("waits_long", ask("waits_short", x))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return responses
