"""Calls `leaf` with its own trace, without, and through an ensemble; counts; fails where X is negative."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        kinds = pb_utils.MetricFamily
        self.calls = kinds("relay_calls", "Calls of leaf", kinds.COUNTER)
        self.size = kinds("relay_size", "Elements of the last input", kinds.GAUGE)
        self.sizes = kinds("relay_sizes", "Elements of the inputs", kinds.HISTOGRAM)
        self.traced = self.calls.Metric({"trace": "yes", "model": "leaf"})
        self.untraced = self.calls.Metric({"model": "leaf", "trace": "no"})
        self.last = self.size.Metric()
        self.all = self.sizes.Metric(labels={"model": args["model_name"]}, buckets=[1, 2.5, 10])
        unkept = kinds("relay_unkept", "Dropped at once", kinds.COUNTER)
        self.lost = unkept.Metric({"a": "b"})

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if (x < 0).any():
            raise ValueError("negative")
        self.last.set(x.size)
        self.all.observe(x.size)
        own = request.trace()
        report = {
            "own": own.get_context(),
            "child": self._ask("leaf", x, trace=own),
            "second child": self._ask("leaf", x, trace=own),
            "in an ensemble": self._ask("around", x, trace=own),
            "without": self._ask("leaf", x),
            "lost": self._attempt(lambda: self.lost.increment(1)),
            "lists": self._attempt(lambda: self.calls.Metric(["a"])),
            "buckets": self._attempt(lambda: self.calls.Metric({}, [1.0])),
            "no buckets": self._attempt(lambda: self.sizes.Metric({})),
        }
        text = np.array([json.dumps(report)], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("REPORT", text)])

    def _ask(self, model, x, **trace):
        request = pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor("X", x)], requested_output_names=["CONTEXT"], **trace
        )
        (self.traced if trace else self.untraced).increment(1)
        if trace:
            assert request.trace().get_context() == trace["trace"].get_context()
        answer = pb_utils.get_output_tensor_by_name(request.exec(), "CONTEXT")
        return json.loads(answer.as_numpy()[0])

    def _attempt(self, call):
        try:
            return repr(call())
        except pb_utils.TritonModelException as error:
            return str(error)
