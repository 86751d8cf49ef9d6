"""Sessions of ONNX Runtime, made as a model's configuration asks for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bls_notebook.backends.completed import INVALID, parameter, truth, whole
from bls_notebook.backends.errors import BackendError
from bls_notebook.devices.registry import simulated_gpus

_ERROR = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", re.DOTALL)
_FATAL_ONLY = 4  # what the runtime writes to the console by itself; the rest is in its exceptions


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
    """Whether this build runs models on the GPUs that there are; simulated ones need none of its own."""
    if simulated_gpus():
        return True
    try:
        return "CUDAExecutionProvider" in runtime().get_available_providers()
    except BackendError:
        return True  # it is missed when a model is opened


def ort_message(error: BaseException) -> str:
    """Return an error of the runtime in the words of Triton's backend."""
    found = _ERROR.match(str(error))
    code, text = (found[1], found[2]) if found else ("1", str(error))
    return f"onnx runtime error {code}: {text}"


def new_session(file: Path, config: dict[str, Any], kind: str, device: int) -> Any:
    """Return a new session for the instances of a kind, ``CPU``, ``GPU`` or ``MODEL``, on a device."""
    ort = runtime()
    providers = _providers(ort, config, kind, device)
    try:
        options = _session_options(ort, config)
        return ort.InferenceSession(str(file), options, providers=providers)
    except BackendError:
        raise
    except Exception as error:  # the runtime's exceptions have no common class of their own
        raise BackendError(ort_message(error)) from error


def run_options(config: dict[str, Any]) -> Any:
    """Return what every run of a model gets, None where nothing is asked for."""
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
            f"Invalid configuration value provided. Expected values for execution_mode are 0 or 1 "
            f"but got {mode} .",
            INVALID,
        )
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL if mode else ort.ExecutionMode.ORT_SEQUENTIAL
    for which in ("intra", "inter"):
        count = whole(config, f"{which}_op_thread_count") or 0
        if count > 0:
            setattr(options, f"{which}_op_num_threads", count)
    for name, attribute in (
        ("enable_mem_arena", "enable_cpu_mem_arena"),
        ("enable_mem_pattern", "enable_mem_pattern"),
    ):
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
        return ["CPUExecutionProvider"]  # the host computes in the GPU's place
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
