"""What models import as `triton_python_backend_utils`, for editors and type checkers (PEP 561): types alone.

The module itself is Triton's, or in a process with `import bls_notebook` that package's `pb_utils`.
"""

from asyncio import Future
from typing import Any, Literal, overload

from bls_notebook.pb_utils import (
    TRITONSERVER_MEMORY_CPU as TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU as TRITONSERVER_MEMORY_GPU,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END as TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START as TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL as TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE as TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    TRITONSERVER_RESPONSE_COMPLETE_FINAL as TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    TRITON_STRING_TO_NUMPY as TRITON_STRING_TO_NUMPY,
    InferenceRequest as _InferenceRequest,
    InferenceResponse as InferenceResponse,
    InferenceResponseSender as InferenceResponseSender,
    InferenceTrace as InferenceTrace,
    Logger as Logger,
    MemoryType as MemoryType,
    Metric as Metric,
    MetricFamily as MetricFamily,
    MetricKind as MetricKind,
    ModelConfig as ModelConfig,
    PreferredMemory as PreferredMemory,
    ResponseIterator as ResponseIterator,
    Tensor as Tensor,
    TritonError as TritonError,
    TritonModelException as TritonModelException,
    deserialize_bytes_tensor as deserialize_bytes_tensor,
    get_input_config_by_name as get_input_config_by_name,
    get_input_tensor_by_name as get_input_tensor_by_name,
    get_model_dir as get_model_dir,
    get_output_config_by_name as get_output_config_by_name,
    get_output_tensor_by_name as get_output_tensor_by_name,
    is_model_ready as is_model_ready,
    load_model as load_model,
    numpy_to_triton_type as numpy_to_triton_type,
    serialize_byte_tensor as serialize_byte_tensor,
    triton_string_to_numpy as triton_string_to_numpy,
    triton_to_numpy_type as triton_to_numpy_type,
    unload_model as unload_model,
    using_decoupled_model_transaction_policy as using_decoupled_model_transaction_policy,
)

class InferenceRequest(_InferenceRequest):
    """A request to a model."""

    @overload
    def exec(self, decoupled: Literal[False] = False) -> InferenceResponse: ...
    @overload
    def exec(self, decoupled: Literal[True]) -> ResponseIterator: ...
    @overload
    def exec(self, decoupled: bool) -> Any: ...
    @overload
    def async_exec(self, decoupled: Literal[False] = False) -> Future[InferenceResponse]: ...
    @overload
    def async_exec(self, decoupled: Literal[True]) -> Future[ResponseIterator]: ...
    @overload
    def async_exec(self, decoupled: bool) -> Future[Any]: ...
