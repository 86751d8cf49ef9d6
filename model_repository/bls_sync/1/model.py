"""Business logic scripting at its plainest: a model that calls another one and waits for the answer.

Which model it calls is data: MODEL_NAME names any model with the inputs and outputs of `add_sub`.
"""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        # A TYPE_STRING tensor holds bytes, not str.
        callee = pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0].decode()
        call = pb_utils.InferenceRequest(
            model_name=callee,
            requested_output_names=["OUTPUT0", "OUTPUT1"],
            # Tensors that came in can be handed on as they are.
            inputs=[pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")],
        )
        response = call.exec()
        # exec() never raises when the callee fails: the error waits in the response to be asked for.
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.InferenceResponse(output_tensors=response.output_tensors())
