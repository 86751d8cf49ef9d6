"""Measure synchronous BLS calls inside a model's execute."""

import gc
from time import perf_counter_ns

import numpy as np
import triton_python_backend_utils as pb_utils

CALLEE = "bench_callee"


def given(size, calls):
    """Time calls with an array that only the request refers to: it may move without a copy."""
    times, box = [], []
    for _ in range(calls):
        box.append(np.full(size, 7, np.uint8))
        began = perf_counter_ns()
        response = pb_utils.InferenceRequest(
            model_name=CALLEE, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", box.pop())]
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        answer = pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
        times.append(perf_counter_ns() - began)
        check(answer, size)
        del response, answer
    return times


def kept(size, calls):
    """Time calls while the caller keeps its array: the callee needs a copy."""
    times, array = [], np.full(size, 7, np.uint8)
    for _ in range(calls):
        began = perf_counter_ns()
        response = pb_utils.InferenceRequest(
            model_name=CALLEE, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", array)]
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        answer = pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
        times.append(perf_counter_ns() - began)
        check(answer, size)
        del response, answer
    return times


def check(answer, size):
    """Refuse to measure a call that did not do its work."""
    if answer.shape != (size,) or answer[0] != 7 or answer[-1] != 7:
        raise pb_utils.TritonModelException("the callee answered with something else than its input")


class TritonPythonModel:
    """Inputs: MODE ("given" or "kept"), BYTES of the tensor, CALLS to time. Output: NANOSECONDS of each."""

    def execute(self, requests):
        """Measure once a request."""
        responses = []
        for request in requests:
            mode = pb_utils.get_input_tensor_by_name(request, "MODE").as_numpy()[0].decode()
            size = int(pb_utils.get_input_tensor_by_name(request, "BYTES").as_numpy()[0])
            calls = int(pb_utils.get_input_tensor_by_name(request, "CALLS").as_numpy()[0])
            measure = {"given": given, "kept": kept}[mode]
            measure(size, min(calls, 5))  # warm
            gc.collect()
            times = np.array(measure(size, calls), np.int64)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("NANOSECONDS", times)]))
        return responses
