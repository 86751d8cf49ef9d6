"""Records for the tests of displays: usual ones, and one full of text that means harm."""

from __future__ import annotations

from typing import Any

from bls_notebook.observe import (
    DeviceRecord,
    DeviceTable,
    ErrorRecord,
    FrameRecord,
    MessageRecord,
    ModelRecord,
    ResponseRecord,
    TensorRecord,
    TensorSpecRecord,
)

HOSTILE = (
    "</style></pre></td><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;' onload=\"x\n"
    "second $x^2$ line\x1b[31m\x00\u202egnp\u2066\ud800"
)


def model(**changes: Any) -> ModelRecord:
    given: dict[str, Any] = {
        "name": "digit_classifier", "version": 1, "backend": "python", "source": "cell",
        "load_seconds": 0.0032, "max_batch_size": 32, "instances": 2, "instance_kind": "KIND_CPU",
        "inputs": (TensorSpecRecord("IMAGE", "FP32", (64,)), TensorSpecRecord("SCALE", "FP32", (-1,), True)),
        "outputs": (TensorSpecRecord("DIGIT", "INT64", (1,)),),
    }  # fmt: skip
    return ModelRecord(**{**given, **changes})


def tensor(value: int = 7, **changes: Any) -> TensorRecord:
    given: dict[str, Any] = {
        "name": "OUT", "datatype": "INT32", "shape": (1,), "bytes": 4, "preview": f"[{value}]",
    }  # fmt: skip
    return TensorRecord(**{**given, **changes})


def response(index: int = 0, **changes: Any) -> ResponseRecord:
    given: dict[str, Any] = {
        "model": "square", "version": 3, "tensors": (tensor(index),), "seconds": 0.001 * (index + 1),
        "index": index,
    }  # fmt: skip
    return ResponseRecord(**{**given, **changes})


def error(**changes: Any) -> ErrorRecord:
    own = FrameRecord(
        "callee", 2, "cell callee", 9, "execute",
        ((8, "    def execute(self, requests):"), (9, "        raise ValueError('no weights')"), (10, "")),
    )  # fmt: skip
    library = FrameRecord("", 0, "numpy/core.py", 153, "matmul", ((153, "    return implement(a, b)"),))
    given: dict[str, Any] = {
        "message": "ValueError: no weights", "code": "INTERNAL", "chain": ("caller", "callee"),
        "kind": "ValueError", "frames": (own, library), "hint": "train it first",
    }  # fmt: skip
    return ErrorRecord(**{**given, **changes})


def hostile() -> list[Any]:
    """One of each record, every text in it hostile."""
    h = HOSTILE
    spec = TensorSpecRecord(h, h, (1,), True)
    bad_error = ErrorRecord(h, h, (h, h), h, (FrameRecord(h, 1, h, 2, h, ((1, h), (2, h))),), h)
    bad_tensor = TensorRecord(h, h, (1,), h, 3, h)
    bad_model = ModelRecord(
        h, 1, h, h, h, h, 0.1, instance_kind=h, inputs=(spec,), outputs=(spec,), warnings=(h,)
    )
    good = ResponseRecord(h, 1, h, (bad_tensor,), None, (h,), ((h, h),), 0.1, inputs=(bad_tensor,))
    bad = ResponseRecord(h, 1, h, (), bad_error, (h,), ((h, h),), 0.1)
    devices = DeviceTable((DeviceRecord(h, h, True, 1, 2, 3, 10), DeviceRecord(h, h)))
    messages = [MessageRecord(h, h, h, 0.1), MessageRecord(h, "error", h)]
    return [bad_model, good, bad, bad_error, devices, *messages]
