"""Does what its input DO names: a function of a module beside this one."""

import deeds
import edge_deeds
import odd_deeds
import refusal_deeds
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        name = pb_utils.get_input_tensor_by_name(request, "DO").as_numpy()[0].decode()
        home = next(m for m in (deeds, edge_deeds, odd_deeds, refusal_deeds) if hasattr(m, name))
        return getattr(home, name)(request)
