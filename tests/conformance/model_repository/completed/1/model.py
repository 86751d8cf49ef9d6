"""No config.pbtxt: everything that Triton knows of this model is said here."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_INT64", "dims": [-1, 2]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT64", "dims": [2, -1]})
        config.set_max_batch_size(3)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        # the transposed view is not contiguous
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", a.transpose(0, 2, 1))]) for a in arrays]
