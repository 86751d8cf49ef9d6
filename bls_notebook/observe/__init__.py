"""What was observed, as frozen plain data. Nothing here draws, and nothing here runs a model."""

from __future__ import annotations

from bls_notebook.observe.preview import tensor_record
from bls_notebook.observe.records.repository import (
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
from bls_notebook.observe.visible import visible

__all__ = [
    "DeviceRecord",
    "DeviceTable",
    "ErrorRecord",
    "FrameRecord",
    "MessageRecord",
    "ModelRecord",
    "ResponseRecord",
    "TensorRecord",
    "TensorSpecRecord",
    "tensor_record",
    "visible",
]
