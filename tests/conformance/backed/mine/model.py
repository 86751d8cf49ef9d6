"""A Python-based backend: runs every model whose configuration names it, and reports what it was told."""

import json
import os

import helper
import numpy as np
import triton_python_backend_utils as pb_utils

TOLD = ("backend", "runtime", "default_model_filename", "platform", "max_batch_size")


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        given = config.as_dict()
        runtime = given["runtime"].partition(".")[0] or "none"
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1], "optional": True})
        config.add_output({"name": f"WITH_{runtime}", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "REPORT", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        self.config = json.loads(args.pop("model_config"))
        self.args = {**args, "model_repository": os.path.basename(args["model_repository"])}

    def execute(self, requests):
        return [pb_utils.InferenceResponse([self._report()]) for _ in requests]

    def _report(self):
        report = {
            "args": self.args,
            "config": {key: self.config[key] for key in TOLD},
            "outputs": [output["name"] for output in self.config["output"]],
            "module": [__name__, __package__, TritonPythonModel.__module__],
            "files": [_two(__file__), _two(helper.__file__), _two(pb_utils.get_model_dir())],
            "helper": helper.WHO,
            "beside the model": _beside(),
        }
        return pb_utils.Tensor("REPORT", np.array([json.dumps(report, sort_keys=True)], np.object_))


def _two(path):
    return "/".join(path.replace(os.sep, "/").split("/")[-2:])


def _beside():
    try:
        import beside
    except ImportError as error:
        return str(error)
    return beside.__name__
