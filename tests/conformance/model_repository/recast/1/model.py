"""Answers every input INn as OUTn, and what `initialize` was told where the config has an output ARGS."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.args = np.array([json.dumps(args, sort_keys=True)], np.object_)
        config = json.loads(args["model_config"])
        self.tells = any(output["name"] == "ARGS" for output in config["output"])

    def execute(self, requests):
        return [pb_utils.InferenceResponse(self._outputs(request)) for request in requests]

    def _outputs(self, request):
        outputs = [pb_utils.Tensor("OUT" + t.name()[2:], t.as_numpy()) for t in request.inputs()]
        return [*outputs, pb_utils.Tensor("ARGS", self.args)] if self.tells else outputs
