"""Does what its input DO names: a coroutine of deeds.py, a module of the same name as another model's."""

import deeds
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self._answer(request) for request in requests]

    async def _answer(self, request):
        name = pb_utils.get_input_tensor_by_name(request, "DO").as_numpy()[0].decode()
        return await getattr(deeds, name)(request)
