"""Answers a BF16 tensor by DLPack, at times through a call of itself, and tells what is to be seen of it."""

import ctypes
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _seen(tensor):
    try:
        as_numpy = str(tensor.as_numpy().dtype)
    except Exception as error:
        as_numpy = f"{type(error).__name__}: {error}"
    capsule = tensor.to_dlpack()
    raw = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    count = int(np.prod(tensor.shape()))
    bits = list((ctypes.c_uint16 * count).from_address(raw.data)) if count else []
    shape = [raw.shape[axis] for axis in range(raw.ndim)]
    return [list(tensor.shape()), as_numpy, raw.code, raw.bits, raw.lanes, shape, bits]


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        seen = [_seen(tensor)]
        if pb_utils.get_input_tensor_by_name(request, "CALL") is not None:
            callee = pb_utils.InferenceRequest(model_name="bfloat", inputs=[tensor], requested_output_names=["OUT"])
            tensor = pb_utils.get_output_tensor_by_name(callee.exec(), "OUT")
            seen.append(_seen(tensor))
        report = np.array([json.dumps(seen)], np.object_)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor.from_dlpack("OUT", tensor), pb_utils.Tensor("REPORT", report)]
        )
