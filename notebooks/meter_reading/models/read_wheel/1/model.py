"""Read the digit on one wheel of a meter."""

import os

import numpy as np
import torch
import triton_python_backend_utils as pb_utils

from .network import Wheel


class TritonPythonModel:
    def initialize(self, args):
        self.device = torch.device(f"cuda:{args['model_instance_device_id']}")
        here = os.path.join(args["model_repository"], args["model_version"])
        self.network = Wheel()
        self.network.load_state_dict(torch.load(os.path.join(here, "wheels.pt"), map_location="cpu"))
        self.network.to(self.device).eval()

    def execute(self, requests):
        wheels = [pb_utils.get_input_tensor_by_name(request, "WHEEL").as_numpy() for request in requests]
        batch = torch.from_numpy(np.concatenate(wheels)).to(self.device)
        with torch.no_grad():
            scores = self.network(batch[:, None].float() / 255)
        digits = scores.argmax(dim=1, keepdim=True).to(torch.int32).cpu().numpy()

        responses, start = [], 0
        for wheel in wheels:
            part = digits[start : start + len(wheel)]
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("DIGIT", part)]))
            start += len(wheel)
        return responses
