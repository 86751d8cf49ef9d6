import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        articles = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        texts = await asyncio.gather(*[self.look_up(article) for article in articles * 2])
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.concatenate(texts))])

    async def look_up(self, article):
        request = pb_utils.InferenceRequest(
            model_name="archive",
            inputs=[pb_utils.Tensor("IN", np.array([article], np.int32))],
            requested_output_names=["OUT"],
        )
        response = await request.async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
