import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

STATIONS = ["weigh", "label", "pack"]


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        parcels = pb_utils.get_input_tensor_by_name(request, "PARCELS").as_numpy()
        done = await asyncio.gather(*[self.handle(parcels[i : i + 1]) for i in range(len(parcels))])
        return pb_utils.InferenceResponse([pb_utils.Tensor("DONE", np.concatenate(done))])

    async def handle(self, parcel):
        for station in STATIONS:
            parcel = await self.ask(station, "IN", parcel, "OUT")
        return parcel

    async def ask(self, model, name, array, output):
        request = pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor(name, array)], requested_output_names=[output]
        )
        response = await request.async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, output).as_numpy()
