"""Inputs and outputs of models of the vLLM backend, whose configurations mostly name none: it completes them.

Mirrors vllm_backend/src/model.py (auto_complete_config).
"""

from __future__ import annotations

from bls_notebook.repository.config import ModelConfigMessage, model_config_pb2

_INPUTS = {"text_input": "STRING"}
_OPTIONAL = {
    "image": "STRING", "stream": "BOOL", "sampling_parameters": "STRING", "exclude_input_in_output": "BOOL",
    "return_finish_reason": "BOOL", "return_cumulative_logprob": "BOOL", "return_logprobs": "BOOL",
    "return_num_input_tokens": "BOOL", "return_num_output_tokens": "BOOL",
}  # fmt: skip
_OUTPUTS = {
    "text_output": "STRING", "finish_reason": "STRING", "cumulative_logprob": "FP32", "logprobs": "STRING",
    "num_input_tokens": "UINT32", "num_output_tokens": "UINT32",
}  # fmt: skip
_OF_ANY_LENGTH = frozenset({"image", *_OUTPUTS}) - {"num_input_tokens"}


def complete_vllm(config: ModelConfigMessage) -> None:
    """Fill in, in place, what the backend adds to the configuration of a model."""
    types = model_config_pb2().DataType
    for tensors, named in ((config.input, {**_INPUTS, **_OPTIONAL}), (config.output, _OUTPUTS)):
        there = {tensor.name for tensor in tensors}
        for name, kind in named.items():
            if name not in there:
                size = -1 if name in _OF_ANY_LENGTH else 1
                tensor = tensors.add(name=name, data_type=types.Value(f"TYPE_{kind}"), dims=[size])
                if name in _OPTIONAL:
                    tensor.optional = True
    config.model_transaction_policy.decoupled = True
    config.max_batch_size = 0
