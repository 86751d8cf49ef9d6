"""Answers what it is given: an optional input and an output for every data type and rank, as FP32_2."""

import triton_python_backend_utils as pb_utils

BITS = ("8", "16", "32", "64")
TYPES = ["BOOL", *("UINT" + b for b in BITS), *("INT" + b for b in BITS), "FP16", "FP32", "FP64", "STRING"]


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        for kind in TYPES:
            for rank in (1, 2, 3, 4):
                tensor = {"name": f"{kind}_{rank}", "data_type": f"TYPE_{kind}", "dims": [-1] * rank}
                config.add_input({**tensor, "optional": True})
                config.add_output(tensor)
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(t.name(), t.as_numpy()) for t in request.inputs()])
            for request in requests
        ]
