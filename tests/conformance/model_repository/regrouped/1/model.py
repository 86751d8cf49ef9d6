"""Notes in a file which of its instances begin and end; answers which served, and how often."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = config["parameters"]
        self.file = parameters["file"]["string_value"] if parameters else None
        self.name, self.count = args["model_instance_name"], 0
        groups = [(g["name"], g["count"], g["kind"]) for g in config["instance_group"]]
        self._note("initialize", args["model_instance_kind"], groups)

    def execute(self, requests):
        self.count += len(requests)
        who = np.array([self.name, str(self.count)], np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("WHO", who)]) for _ in requests]

    def finalize(self):
        self._note("finalize")

    def _note(self, *what):
        if self.file is not None:
            with open(self.file, "a") as file:
                file.write(json.dumps([self.name, *what]) + "\n")
