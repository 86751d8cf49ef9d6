"""What `bls.compare` does, as a model: N requests by exec one after the other, and by async_exec all at once.

Answers with the seconds that each way took, a row a run: [exec, async_exec].
"""

import asyncio
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self._both(request) for request in requests]

    async def _both(self, request):
        given = {
            name: pb_utils.get_input_tensor_by_name(request, name)
            for name in ("MODEL", "N", "RUNS", "OUTPUT", "X", "IMAGE")
        }
        model, output = (given.pop(name).as_numpy()[0].decode() for name in ("MODEL", "OUTPUT"))
        n, runs = (int(given.pop(name).as_numpy()[0]) for name in ("N", "RUNS"))
        arrays = {name: tensor.as_numpy() for name, tensor in given.items() if tensor is not None}

        def asked():
            return pb_utils.InferenceRequest(
                model_name=model,
                requested_output_names=[output],
                inputs=[pb_utils.Tensor(name, array) for name, array in arrays.items()],
            )

        times = []
        for run in range(runs + 1):
            begun = time.perf_counter()
            answers = [asked().exec() for _ in range(n)]
            between = time.perf_counter()
            answers += await asyncio.gather(*(asked().async_exec() for _ in range(n)))
            ended = time.perf_counter()
            for answer in answers:
                if answer.has_error():
                    raise pb_utils.TritonModelException(answer.error().message())
            if run:  # the first one warms up
                times.append([between - begun, ended - between])
        seconds = pb_utils.Tensor("SECONDS", np.array(times))
        return pb_utils.InferenceResponse([seconds])
