"""Measures a gather of asynchronous BLS calls from inside a model's execute."""

import asyncio
import gc
from time import perf_counter_ns

import numpy as np
import triton_python_backend_utils as pb_utils

CALLEE = "bench_callee"


async def gather(size, calls, width):
    """Time `calls` gathers of `width` requests each, from the first request's making to the last answer."""
    times, array = [], np.full(size, 7, np.uint8)
    for _ in range(calls):
        began = perf_counter_ns()
        responses = await asyncio.gather(
            *[
                pb_utils.InferenceRequest(
                    model_name=CALLEE, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", array)]
                ).async_exec()
                for _ in range(width)
            ]
        )
        for response in responses:
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
        answers = [pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy() for response in responses]
        times.append(perf_counter_ns() - began)
        for answer in answers:
            if answer.shape != (size,) or answer[0] != 7:
                raise pb_utils.TritonModelException("the callee answered with something else than its input")
        del responses, answers
    return times


class TritonPythonModel:
    """Inputs: MODE ("gather:64"), BYTES of each tensor, CALLS to time. Output: NANOSECONDS of each gather."""

    async def execute(self, requests):
        """Measure once a request."""
        responses = []
        for request in requests:
            mode = pb_utils.get_input_tensor_by_name(request, "MODE").as_numpy()[0].decode()
            size = int(pb_utils.get_input_tensor_by_name(request, "BYTES").as_numpy()[0])
            calls = int(pb_utils.get_input_tensor_by_name(request, "CALLS").as_numpy()[0])
            width = int(mode.partition(":")[2])
            await gather(size, min(calls, 2), width)  # warm
            gc.collect()
            times = np.array(await gather(size, calls, width), np.int64)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("NANOSECONDS", times)]))
        return responses
