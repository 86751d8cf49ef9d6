import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        articles = pb_utils.get_input_tensor_by_name(request, "ARTICLES").as_numpy()
        parts = await asyncio.gather(*[self.ask(name, "IN", articles, "OUT") for name in ("culture", "sports")])
        return pb_utils.InferenceResponse([pb_utils.Tensor("PAGES", np.concatenate(parts))])

    async def ask(self, model, name, array, output):
        request = pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor(name, array)], requested_output_names=[output]
        )
        response = await request.async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, output).as_numpy()
