import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        sound = pb_utils.get_input_tensor_by_name(request, "CHANNELS").as_numpy()
        for name in ("tuner", "mixer"):
            streams = await asyncio.gather(*[self.ask(name, sound[i : i + 1]) for i in range(len(sound))])
            sound = np.concatenate([self.first(stream) for stream in streams])
        return pb_utils.InferenceResponse([pb_utils.Tensor("SOUND", sound)])

    async def ask(self, model, value):
        request = pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor("IN", value)], requested_output_names=["OUT"]
        )
        return await request.async_exec(decoupled=True)

    def first(self, stream):
        values = []
        for response in stream:
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            tensor = pb_utils.get_output_tensor_by_name(response, "OUT")
            values += [] if tensor is None else [tensor.as_numpy()]
        return values[0]
