"""The simplest form of business logic scripting: a model calls another and waits for the response.

The input MODEL_NAME selects the callee: any model with the inputs and outputs of `add_sub`.
"""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        # A TYPE_STRING tensor contains bytes, not str.
        callee = pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0].decode()
        call = pb_utils.InferenceRequest(
            model_name=callee,
            requested_output_names=["OUTPUT0", "OUTPUT1"],
            # Input tensors can be passed on unchanged.
            inputs=[pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")],
        )
        response = call.exec()
        # exec() does not raise if the callee fails: check the response for an error.
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.InferenceResponse(output_tensors=response.output_tensors())
