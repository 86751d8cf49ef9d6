"""The module that models import as `triton_python_backend_utils`: Triton's names, and nothing else.

`import bls_notebook` registers this package under that name in `sys.modules`, in this process only. No top-level module
with the name is installed, because a real Triton stub in the same environment would import it instead of its own.
"""

from __future__ import annotations

from .dtypes import (
    TRITON_STRING_TO_NUMPY,
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
)
from .errors import TritonError, TritonModelException
from .metrics import Metric, MetricFamily, MetricKind
from .model_config import (
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from .options import InferenceTrace, MemoryType, PreferredMemory
from .request import (
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    get_input_tensor_by_name,
)
from .response import (
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceResponse,
    InferenceResponseSender,
    ResponseIterator,
    get_output_tensor_by_name,
)
from .server import Logger, get_model_dir, is_model_ready, load_model, unload_model
from .tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU

__all__ = [
    "TRITONSERVER_MEMORY_CPU", "TRITONSERVER_MEMORY_GPU", "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START", "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE", "TRITONSERVER_RESPONSE_COMPLETE_FINAL", "TRITON_STRING_TO_NUMPY",
    "InferenceRequest", "InferenceResponse", "InferenceResponseSender", "InferenceTrace", "Logger", "MemoryType",
    "Metric", "MetricFamily", "MetricKind", "ModelConfig", "PreferredMemory", "ResponseIterator", "Tensor",
    "TritonError", "TritonModelException", "deserialize_bytes_tensor", "get_input_config_by_name",
    "get_input_tensor_by_name", "get_model_dir", "get_output_config_by_name", "get_output_tensor_by_name",
    "is_model_ready", "load_model", "numpy_to_triton_type", "serialize_byte_tensor", "triton_string_to_numpy",
    "triton_to_numpy_type", "unload_model", "using_decoupled_model_transaction_policy",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return Triton's names, without the submodules of this package."""
    return __all__
