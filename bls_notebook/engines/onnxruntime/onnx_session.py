"""Create ONNX Runtime sessions from a model's configuration, and run them with BF16 tensors."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.backends.completed import INVALID, parameter, truth, whole
from bls_notebook.backends.errors import BackendError
from bls_notebook.devices.registry import simulated_gpus

_ERROR = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", re.DOTALL)
_FATAL_ONLY = 4  # log level of the console; exceptions carry the other messages


def runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise BackendError(
            'backend "onnxruntime" needs the package onnxruntime, which cannot be imported here '
            f"({error}); install it: pip install onnxruntime"
        ) from error
    return onnxruntime


def has_gpu() -> bool:
    """Whether this build can use the GPUs here; simulated GPUs need no CUDA build."""
    if simulated_gpus():
        return True
    try:
        return "CUDAExecutionProvider" in runtime().get_available_providers()
    except BackendError:
        return True  # opening a model reports the missing package


def ort_message(error: BaseException) -> str:
    """Return the message of Triton's backend for an error of ONNX Runtime."""
    found = _ERROR.match(str(error))
    code, text = (found[1], found[2]) if found else ("1", str(error))
    return f"onnx runtime error {code}: {text}"


def new_session(file: Path, config: dict[str, Any], kind: str, device: int) -> Any:
    """Create a session for instances of a kind (``CPU``, ``GPU`` or ``MODEL``) on a device."""
    ort = runtime()
    providers = _providers(ort, config, kind, device)
    try:
        options = _session_options(ort, config)
        return ort.InferenceSession(str(file), options, providers=providers)
    except BackendError:
        raise
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise BackendError(ort_message(error)) from error


def run_options(config: dict[str, Any]) -> Any:
    """Return the options of every run, or None for the defaults."""
    key = "memory.enable_memory_arena_shrinkage"
    value = parameter(config, key)
    if value is None:
        return None
    options = runtime().RunOptions()
    options.add_run_config_entry(key, value)
    return options


def _session_options(ort: Any, config: dict[str, Any]) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = {
        -1: levels.ORT_ENABLE_BASIC,
        1: levels.ORT_ENABLE_EXTENDED,
        2: levels.ORT_DISABLE_ALL,
    }.get(config.get("optimization", {}).get("graph", {}).get("level", 0), levels.ORT_ENABLE_ALL)
    mode = whole(config, "execution_mode") or 0
    if mode not in (0, 1):
        raise BackendError(
            f"Invalid configuration value provided. Expected values for execution_mode are 0 or 1 but got {mode} .",
            INVALID,
        )
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL if mode else ort.ExecutionMode.ORT_SEQUENTIAL
    for which in ("intra", "inter"):
        count = whole(config, f"{which}_op_thread_count") or 0
        if count > 0:
            setattr(options, f"{which}_op_num_threads", count)
    for name, attribute in (("enable_mem_arena", "enable_cpu_mem_arena"), ("enable_mem_pattern", "enable_mem_pattern")):
        enabled = truth(config, name)
        if enabled is not None:
            setattr(options, attribute, enabled)
    key = "session.use_device_allocator_for_initializers"
    value = parameter(config, key)
    if value is not None:
        options.add_session_config_entry(key, value)
    for library in config.get("model_operations", {}).get("op_library_filename", ()):
        options.register_custom_ops_library(library)
    return options


def _providers(ort: Any, config: dict[str, Any], kind: str, device: int) -> list[Any]:
    there = ort.get_available_providers()
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    providers: list[Any] = []
    if kind == "GPU" and simulated_gpus():
        return ["CPUExecutionProvider"]  # the host computes for a simulated GPU
    if kind == "GPU":
        if "CUDAExecutionProvider" not in there:
            raise BackendError(
                "an instance of kind KIND_GPU needs a build of ONNX Runtime with CUDA, and this one has only "
                f"{', '.join(there)}; install onnxruntime-gpu in place of onnxruntime, or use kind: KIND_CPU",
                INVALID,
            )
        providers.append(("CUDAExecutionProvider", {"device_id": str(device)}))
        wanted = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
        asked = accelerators.get("gpu_execution_accelerator", ())
    else:
        wanted = {"openvino": "OpenVINOExecutionProvider"}
        asked = accelerators.get("cpu_execution_accelerator", ())
    for accelerator in asked:
        name = accelerator.get("name", "")
        provider = wanted.get(name)
        if provider is None:
            raise BackendError(f"unknown Execution Accelerator '{name}' is requested", INVALID)
        if provider not in there:
            raise BackendError(
                f"execution accelerator '{name}' needs {provider}, and ONNX Runtime has only "
                f"{', '.join(there)} here; leave the accelerator out, or install a build that has it",
                INVALID,
            )
        if provider != "CUDAExecutionProvider":
            providers.insert(0, provider)
    return [*providers, "CPUExecutionProvider"]


_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
_Array = np.ndarray[Any, Any]


def run_with_bfloat16(session: Any, names: list[str], feed: dict[str, _Array], options: Any) -> list[_Array]:
    """Run a session; BF16 arrays are uint16, which NumPy has instead.

    A graph with BF16 tensors cannot have BYTES tensors.
    """
    value = runtime().OrtValue
    types = {i.name: i.type for i in [*session.get_inputs(), *session.get_overridable_initializers()]}
    values = {
        name: value.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), _BFLOAT16)
        if types.get(name) == "tensor(bfloat16)"
        else value.ortvalue_from_numpy(array)
        for name, array in feed.items()
    }
    return [_to_numpy(v) for v in session.run_with_ort_values(names, values, options)]


def _to_numpy(value: Any) -> _Array:
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()  # type: ignore[no-any-return]
    content = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bytearray(content), np.uint16).reshape(value.shape())
