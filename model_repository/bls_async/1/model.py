"""Two calls in flight at the same time: an async `execute` and `async_exec`.

OUTPUT0 (the sum) comes from the model in MODEL_NAME, OUTPUT1 (the difference) from `add_sub`.
Each call requests only the output that it needs.
"""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self._answer(request) for request in requests]

    async def _answer(self, request):
        named = pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0].decode()
        inputs = [pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")]
        sum_call = pb_utils.InferenceRequest(model_name=named, requested_output_names=["OUTPUT0"], inputs=inputs)
        difference_call = pb_utils.InferenceRequest(
            model_name="add_sub", requested_output_names=["OUTPUT1"], inputs=inputs
        )
        # Gathered calls take as long as the slower one. Awaited one after the other, their times add up.
        # (Two calls of one model still take turns if that model has a single instance.)
        responses = await asyncio.gather(sum_call.async_exec(), difference_call.async_exec())
        outputs = []
        for response in responses:
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            outputs += response.output_tensors()
        return pb_utils.InferenceResponse(output_tensors=outputs)
