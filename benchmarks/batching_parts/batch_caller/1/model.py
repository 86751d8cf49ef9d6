"""Measures gathers of asynchronous BLS calls from inside a model's execute."""

import asyncio
import gc
from time import perf_counter_ns

import numpy as np
import triton_python_backend_utils as pb_utils

WIDTH = 32


async def gather(model, requests, rounds):
    """Time `rounds` gathers of one-row requests, from the first one's making to the last answer."""
    times, row = [], np.ones((1, WIDTH), np.float32)
    for _ in range(rounds):
        began = perf_counter_ns()
        responses = await asyncio.gather(
            *[
                pb_utils.InferenceRequest(
                    model_name=model, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", row)]
                ).async_exec()
                for _ in range(requests)
            ]
        )
        times.append(perf_counter_ns() - began)
        for response in responses:
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            out = pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
            if out.shape != (1, WIDTH):
                raise pb_utils.TritonModelException(f"an answer has shape {out.shape}")
        del responses, response, out
    return times


class TritonPythonModel:
    """Inputs: MODEL to call, REQUESTS of a gather, ROUNDS to time. Output: NANOSECONDS of each gather."""

    async def execute(self, requests):
        """Measure once a request."""
        answers = []
        for request in requests:
            model = pb_utils.get_input_tensor_by_name(request, "MODEL").as_numpy()[0].decode()
            count = int(pb_utils.get_input_tensor_by_name(request, "REQUESTS").as_numpy()[0])
            rounds = int(pb_utils.get_input_tensor_by_name(request, "ROUNDS").as_numpy()[0])
            await gather(model, count, 2)  # warm
            gc.collect()
            times = np.array(await gather(model, count, rounds), np.int64)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("NANOSECONDS", times)]))
        return answers
