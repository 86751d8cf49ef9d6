"""Several streams at once: one decoupled call for each number in IN, all started before the first is read.

MODEL_NAME is the name of a model with the input and output of `square_int32`. SUM and COUNT contain
one number for each number in IN.
"""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self._answer(request) for request in requests]

    async def _answer(self, request):
        callee = pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0].decode()
        numbers = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        streams = await asyncio.gather(
            *(
                pb_utils.InferenceRequest(
                    model_name=callee,
                    requested_output_names=["OUT"],
                    inputs=[pb_utils.Tensor("IN", np.array([number], dtype=np.int32))],
                ).async_exec(decoupled=True)
                for number in numbers
            )
        )
        sums = np.zeros(len(numbers), dtype=np.int32)
        counts = np.zeros(len(numbers), dtype=np.int32)
        for i, stream in enumerate(streams):
            # async_exec returns a plain iterator: reading it blocks this model's event loop.
            for response in stream:
                if response.has_error():
                    raise pb_utils.TritonModelException(response.error().message())
                out = pb_utils.get_output_tensor_by_name(response, "OUT")
                if out is None:
                    # If the callee sends the final flag alone, it arrives as a last response without tensors.
                    continue
                sums[i] += out.as_numpy()[0]
                counts[i] += 1
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor("SUM", sums), pb_utils.Tensor("COUNT", counts)]
        )
