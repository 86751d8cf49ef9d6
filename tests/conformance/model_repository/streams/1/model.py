"""A decoupled model that does what each element of SENDS says, in that order."""

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def response(word):
    if word.startswith("error:"):
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(word.removeprefix("error:")))
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor("OUT", np.arange(len(word), dtype=np.int32)),
            pb_utils.Tensor("TEXT", np.array([word], np.object_)),
        ]
    )


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for element in pb_utils.get_input_tensor_by_name(request, "SENDS").as_numpy():
                word = element.decode()
                if word == "raise":
                    raise RuntimeError("no more")
                if word == "final":
                    sender.send(flags=FINAL)
                elif word.endswith("!"):  # the last one, together with the flag
                    sender.send(response(word), flags=FINAL)
                else:
                    sender.send(response(word))
