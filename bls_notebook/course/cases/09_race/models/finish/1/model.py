import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        lanes = pb_utils.get_input_tensor_by_name(request, "LANES").as_numpy()
        runs = [self.ask("track", "IN", lanes[i : i + 1], "OUT") for i in range(len(lanes))]
        times = [await run for run in asyncio.as_completed(runs)]
        return pb_utils.InferenceResponse([pb_utils.Tensor("TIMES", np.concatenate(times))])

    async def ask(self, model, name, array, output):
        request = pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor(name, array)], requested_output_names=[output]
        )
        response = await request.async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, output).as_numpy()
