"""What the module refuses: which arguments, and in which way."""

import pickle

import numpy as np
import triton_python_backend_utils as pb_utils
from deeds import _report


class _Named(str):
    pass


def refused_arguments(request):
    """How each is refused: by which exception; the words of some differ between versions of pybind."""
    tensor = pb_utils.Tensor("X", np.zeros(1, np.float32))
    good = {"model_name": "m", "inputs": [tensor], "requested_output_names": ["OUT"]}
    requests = {
        "inputs": [None, [None], {tensor}, iter([tensor]), (tensor,), "X", [1]],
        "requested_output_names": [None, [""], {"OUT"}, {"OUT": 1}, ("OUT",), "OUT", [None], [_Named("OUT")]],
        "model_name": [None, 5, "", b"m", _Named("m")],
        "model_version": [None, "1", 1.0, True, np.int64(2)],
        "correlation_id": [None, 1.0, b"x", True, "", "word"],
        "flags": [None, -1, True, np.int32(1), 1.0, 1 << 32],
        "timeout": [None, -1, 1.5],
        "preferred_memory": [None, 1, pb_utils.TRITONSERVER_MEMORY_CPU],
        "trace": [None, "x", request.trace()],
        "request_id": [None, 5, b"x"],
        "priority": [1],
    }
    new, response, error = pb_utils.InferenceRequest, pb_utils.InferenceResponse, pb_utils.TritonError
    found = {key: [_kind(new, **{**good, key: value}) for value in values] for key, values in requests.items()}
    outputs = [[], (tensor,), [None], None, iter([tensor]), {tensor}, "X"]
    found["output_tensors"] = [_kind(response, value) for value in outputs]
    found["error"] = [_kind(response, [], value) for value in (None, "x", ValueError("x"))]
    code, cpu = error.INTERNAL, pb_utils.TRITONSERVER_MEMORY_CPU
    errors = [("x",), ("x", code), ("x", 1), ("x", None), (None,), (b"x",), (ValueError("x"),), ()]
    found["TritonError"] = [_kind(error, *value) for value in errors]
    memory = [(1,), (None,), (cpu, True), (cpu, 0.0)]
    found["PreferredMemory"] = [_kind(pb_utils.PreferredMemory, *value) for value in memory]
    found["exec"] = [_kind(new(**good).exec, flag) for flag in (None, False)]
    found["names"] = [
        _kind(pb_utils.Tensor, name="X", numpy_array=np.zeros(1)),
        _kind(pb_utils.Tensor.from_dlpack, name="X", tensor=np.zeros(1)),
        _kind(request.set_flags, flags=1),
        _kind(request.set_release_flags, flags=1),
        _kind(request.set_release_flags, "x"),
        _kind(pb_utils.Logger.log_info, message="said by name"),
        _kind(tensor.as_numpy, 1),
        _kind(tensor.__dlpack__, None),
        _kind(tensor.__dlpack__, max_version=(1, 0)),
    ]
    found["logger"] = [_kind(pb_utils.Logger.log_info, text) for text in (None, b"bytes", 5)]
    found["levels"] = [_kind(pb_utils.Logger.log, "x", level) for level in (0, None)]
    found["new"] = [_kind(pb_utils.Logger), _kind(type(request.trace()))]
    objects = (tensor, request, response([]))
    found["attributes"] = [_kind(setattr, each, "extra", 1) for each in objects]
    found["pickled"] = [_kind(pickle.dumps, each) for each in objects]
    found["written"] = [str(cpu), str(pb_utils.Logger.INFO), str(code)]
    return _report(found)


def _kind(call, *arguments, **more):
    try:
        call(*arguments, **more)
        return "taken"
    except Exception as error:
        return type(error).__name__
