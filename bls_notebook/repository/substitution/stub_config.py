"""The files that a real model needs, and the configuration with which its stub is loaded."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from bls_notebook.repository.config import ModelConfigMessage, model_config_pb2, pick_versions
from bls_notebook.repository.source.model_folders import version_folders

FOR_ENSEMBLE = 16  # instances of an ensemble's stub: a real ensemble accepts any number of requests at a time
_FILES = {
    "onnxruntime": "model.onnx", "tensorrt": "model.plan", "pytorch": "model.pt", "openvino": "model.xml",
    "tensorflow": "model.savedmodel", "python": "model.py", "vllm": "model.json", "fil": "xgboost.model",
    "dali": "model.dali",
}  # fmt: skip
_PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime", "tensorrt_plan": "tensorrt", "pytorch_libtorch": "pytorch",
    "torch_aoti": "pytorch", "tensorflow_savedmodel": "tensorflow", "tensorflow_graphdef": "tensorflow",
}  # fmt: skip
# Tensors of the vLLM backend, whose configurations mostly name none (vllm_backend/src/model.py).
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


def backend_of(config: ModelConfigMessage, folder: Path) -> str:
    """Return the backend named by the configuration or recognized by the model's files; empty if unknown."""
    if config.platform == "ensemble" or config.HasField("ensemble_scheduling"):
        return "ensemble"
    backend_name = config.backend or _PLATFORMS.get(config.platform, config.platform)
    if backend_name:
        return str(backend_name)
    for version in version_folders(folder).values():
        for backend, file in _FILES.items():
            if (version / file).exists():
                return backend
    return next((b for b, file in _FILES.items() if file == config.default_model_filename), "")


def main_file(config: ModelConfigMessage, backend: str, folder: Path) -> Path | None:
    """Return the file that the backend opens in the model's newest version; None if it is unknown."""
    if backend != "python" and config.runtime == "model.py":
        return None  # only the Python-based backend knows its file
    name = config.default_model_filename or _FILES.get(backend, "")
    if backend == "tensorflow" and config.platform == "tensorflow_graphdef":
        name = config.default_model_filename or "model.graphdef"
    versions = version_folders(folder)
    picked = pick_versions(config, versions) if config.HasField("version_policy") else list(versions)
    return folder / str(max(picked, default=1)) / name if name else None


def as_stub(config: ModelConfigMessage, backend: str, versions: list[int]) -> ModelConfigMessage:
    """Return a configuration for a stub, without settings that need the model's files or devices.

    Inputs, outputs, batching, scheduling and instance counts stay.
    """
    out = deepcopy(config)
    kinds = model_config_pb2().ModelInstanceGroup
    if not out.instance_group:
        out.instance_group.add()
    for group in out.instance_group:
        group.kind = kinds.KIND_CPU
        for field in ("gpus", "profile", "host_policy", "secondary_devices", "rate_limiter"):
            group.ClearField(field)
    for field in ("model_warmup", "model_repository_agents", "cc_model_filenames", "runtime", "model_metrics"):
        if field in out.DESCRIPTOR.fields_by_name:
            out.ClearField(field)
    out.parameters.pop("TRITON_BATCH_STRATEGY_PATH", None)
    out.parameters.pop("FORCE_CPU_ONLY_INPUT_TENSORS", None)
    for tensor in out.output:
        tensor.label_filename = ""
    for tensor in (*out.input, *out.output):
        tensor.is_shape_tensor = False
        tensor.is_non_linear_format_io = False
    for state in out.sequence_batching.state:
        state.ClearField("initial_state")
    if out.HasField("version_policy") and not pick_versions(out, versions):
        out.ClearField("version_policy")
    out.ClearField("default_model_filename")
    if backend == "ensemble":
        out.ClearField("ensemble_scheduling")
        out.platform = ""
        out.instance_group[0].count = FOR_ENSEMBLE
    if backend == "vllm":
        _complete_vllm(out)
    out.backend = out.backend or backend or "unknown"
    return out


def _complete_vllm(config: ModelConfigMessage) -> None:
    types = model_config_pb2().DataType
    for tensors, datatypes in ((config.input, {**_INPUTS, **_OPTIONAL}), (config.output, _OUTPUTS)):
        existing = {tensor.name for tensor in tensors}
        for name, kind in datatypes.items():
            if name not in existing:
                length = -1 if name in _OF_ANY_LENGTH else 1
                tensor = tensors.add(name=name, data_type=types.Value(f"TYPE_{kind}"), dims=[length])
                if name in _OPTIONAL:
                    tensor.optional = True
    config.model_transaction_policy.decoupled = True
    config.max_batch_size = 0
