"""The onnxruntime backend: ONNX Runtime runs `model.onnx` on the CPU or on a GPU, one session run per batch.

Mirrors triton-inference-server/onnxruntime_backend (src/onnxruntime.cc): its auto-completion, checks, parameters
and error messages. The first model that is opened imports the package onnxruntime.

As on Triton, nodes of outputs that were not requested still run, but these outputs are not copied. The session
releases the GIL while it runs.
"""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.backends import BackendError, VersionFiles
from bls_notebook.devices import simulated_gpus
from bls_notebook.pb_utils import InferenceRequest, ModelConfig
from bls_notebook.pb_utils.tensor import Tensor

from . import file_models
from .file_models import INVALID, BatchedInstance, BatchError
from .onnx_graph import Signature, check_config, complete_config, needs_completing, signature_of

_ERROR = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", re.DOTALL)
_FATAL_ONLY = 4  # log level of the console; exceptions carry the other messages
_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
_FILE = "model.onnx"
_Array = np.ndarray[Any, Any]


def runtime() -> Any:
    return file_models.imported("onnxruntime", "onnxruntime", "pip install onnxruntime")


def has_gpu() -> bool:
    return file_models.build_has_gpu(lambda: "CUDAExecutionProvider" in runtime().get_available_providers())


def ort_message(error: BaseException) -> str:
    """Return the message of Triton's onnxruntime backend for an error of ONNX Runtime."""
    match = _ERROR.match(str(error))
    code, text = (match[1], match[2]) if match else ("1", str(error))
    return f"onnx runtime error {code}: {text}"


def new_session(file: Path, config: dict[str, Any], kind: str, device: int) -> Any:
    """Create a session for instances of `kind` (``CPU``, ``GPU`` or ``MODEL``) on a device."""
    ort = runtime()
    try:
        providers = _providers(ort, config, kind, device)
        return ort.InferenceSession(str(file), _session_options(ort, config), providers=providers)
    except BackendError:
        raise
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise BackendError(ort_message(error)) from error


def run_options(config: dict[str, Any]) -> Any:
    """Return the options of every run, or None for the defaults."""
    key = "memory.enable_memory_arena_shrinkage"
    value = file_models.parameter(config, key)
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
    mode = file_models.int_parameter(config, "execution_mode") or 0
    if mode not in (0, 1):
        raise BackendError(
            f"Invalid configuration value provided. Expected values for execution_mode are 0 or 1 but got {mode} .",
            INVALID,
        )
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL if mode else ort.ExecutionMode.ORT_SEQUENTIAL
    for scope in ("intra", "inter"):
        count = file_models.int_parameter(config, f"{scope}_op_thread_count") or 0
        if count > 0:
            setattr(options, f"{scope}_op_num_threads", count)
    for name, attribute in (("enable_mem_arena", "enable_cpu_mem_arena"), ("enable_mem_pattern", "enable_mem_pattern")):
        enabled = file_models.bool_parameter(config, name)
        if enabled is not None:
            setattr(options, attribute, enabled)
    key = "session.use_device_allocator_for_initializers"
    value = file_models.parameter(config, key)
    if value is not None:
        options.add_session_config_entry(key, value)
    for library in config.get("model_operations", {}).get("op_library_filename", ()):
        options.register_custom_ops_library(library)
    return options


def _providers(ort: Any, config: dict[str, Any], kind: str, device: int) -> list[Any]:
    if kind == "GPU" and simulated_gpus():
        return ["CPUExecutionProvider"]  # the CPU computes for a simulated GPU
    available = ort.get_available_providers()
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    providers: list[Any] = []
    if kind == "GPU":
        if "CUDAExecutionProvider" not in available:
            raise BackendError(
                "an instance of kind KIND_GPU needs a build of ONNX Runtime with CUDA, but this one has only "
                f"{', '.join(available)}; install onnxruntime-gpu in place of onnxruntime, or use kind: KIND_CPU",
                INVALID,
            )
        providers.append(("CUDAExecutionProvider", {"device_id": str(device)}))
        known = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
        requested = accelerators.get("gpu_execution_accelerator", ())
    else:
        known = {"openvino": "OpenVINOExecutionProvider"}
        requested = accelerators.get("cpu_execution_accelerator", ())
    for accelerator in requested:
        name = accelerator.get("name", "")
        provider = known.get(name)
        if provider is None:
            raise BackendError(f"unknown Execution Accelerator '{name}' is requested", INVALID)
        if provider not in available:
            raise BackendError(
                f"execution accelerator '{name}' needs {provider}, but this build of ONNX Runtime has only "
                f"{', '.join(available)}; remove the accelerator, or install a build that has it",
                INVALID,
            )
        if provider != "CUDAExecutionProvider":
            providers.insert(0, provider)
    return [*providers, "CPUExecutionProvider"]


def run_with_bfloat16(session: Any, names: list[str], feed: dict[str, _Array], options: Any) -> list[_Array]:
    """Run a session with BF16 tensors, which are uint16 arrays here because NumPy lacks BF16.

    Such a graph cannot have BYTES tensors.
    """
    make = runtime().OrtValue
    types = {i.name: i.type for i in [*session.get_inputs(), *session.get_overridable_initializers()]}
    values = {}
    for name, array in feed.items():
        if types.get(name) == "tensor(bfloat16)":
            values[name] = make.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), _BFLOAT16)
        else:
            values[name] = make.ortvalue_from_numpy(array)
    results = []
    for value in session.run_with_ort_values(names, values, options):
        if value.data_type() == "tensor(bfloat16)":
            content = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
            results.append(np.frombuffer(bytearray(content), np.uint16).reshape(value.shape()))
        else:
            results.append(value.numpy())
    return results


def open_model(files: VersionFiles) -> OnnxModel:
    """Open a model; BackendError if its file is missing."""
    path = files.folder / (files.filename or _FILE)
    if path.is_dir():  # a folder with the graph and files of weights
        path = path / _FILE
    if not path.is_file():
        raise BackendError(f"unable to find '{path}' for model instance '{files.name}'", "Unavailable")
    return OnnxModel(path)


class OnnxModel:
    """One version of an ONNX model.

    Instances of the same kind and device share a session, whose `run` is thread-safe. So the weights are in memory
    only once, and additional instances load immediately.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._sessions: dict[tuple[str, int], Any] = {}

    def auto_complete_config(self, model_config: ModelConfig) -> ModelConfig:
        """Complete a configuration from the graph if inputs or outputs are missing."""
        config = model_config.as_dict()
        if needs_completing(config):
            gpu = any(group.get("kind") == "KIND_GPU" for group in config.get("instance_group", ()))
            complete_config(config, signature_of(self._session(config, "GPU" if gpu else "CPU", 0)))
        return model_config

    def make_instance(self, arguments: dict[str, str]) -> OnnxInstance:
        """Check the configuration against the graph and create an instance."""
        config = json.loads(arguments["model_config"])
        kind, device = arguments["model_instance_kind"], int(arguments["model_instance_device_id"])
        session = self._session(config, kind, device)
        signature = signature_of(session)
        check_config(config, signature)
        return OnnxInstance(session, run_options(config), config, signature, device if kind == "GPU" else None)

    def _session(self, config: dict[str, Any], kind: str, device: int) -> Any:
        key = ("GPU", device) if kind == "GPU" else ("CPU", 0)
        if key not in self._sessions:
            self._sessions[key] = new_session(self._file, config, *key)
        return self._sessions[key]


class OnnxInstance(BatchedInstance):
    """One instance of an ONNX model; `options` are the `onnxruntime.RunOptions` of every run, or None."""

    def __init__(
        self, session: Any, options: Any, config: dict[str, Any], signature: Signature, gpu: int | None
    ) -> None:
        super().__init__(config, gpu)
        self._session = session
        self._options = options
        self._outputs = {o["name"]: signature.outputs[o["name"]].datatype for o in config["output"]}
        inputs = {**signature.inputs, **signature.overridable}
        self._scalars = frozenset(i.name for i in inputs.values() if not i.dims)
        self._scalar_outputs = {
            o["name"]: tuple(int(d) for d in o["dims"])
            for o in config["output"]
            if not signature.outputs[o["name"]].dims
        }
        self._has_bfloat16 = any(t.datatype == "BF16" for t in [*inputs.values(), *signature.outputs.values()])

    def finalize(self) -> None:
        """Drop the session; it is freed with the last instance that shares it."""
        self._session = None

    def ready(self) -> bool:
        """Return False after `finalize`."""
        return self._session is not None

    def _feed(self, request: InferenceRequest) -> dict[str, _Array]:
        feed = {}
        for tensor in request._inputs:
            array = _text(tensor) if tensor._datatype == "BYTES" else tensor._array
            feed[tensor._name] = array.reshape(()) if tensor._name in self._scalars else array
        return feed

    def _run(self, names: list[str], feed: dict[str, _Array]) -> list[_Array]:
        if not names:
            return []
        try:
            if self._has_bfloat16:
                return run_with_bfloat16(self._session, names, feed, self._options)
            return self._session.run(names, feed, self._options)  # type: ignore[no-any-return]
        except Exception as error:  # ONNX Runtime's exceptions have no common base class
            raise BatchError(ort_message(error)) from error

    def _tensor(self, name: str, result: _Array) -> Tensor:
        if name in self._scalar_outputs:
            result = np.reshape(result, self._scalar_outputs[name])
        return Tensor._of(name, result, self._outputs[name])


def _text(tensor: Tensor) -> _Array:
    """Convert BYTES to str for ONNX Runtime; as on Triton, a text ends at its first zero byte."""
    array = tensor._array
    out = np.empty(array.shape, np.object_)
    flat = out.reshape(-1)
    for i, element in enumerate(array.reshape(-1).tolist()):
        try:
            text = element.decode("utf-8") if isinstance(element, bytes) else str(element)
        except UnicodeDecodeError as error:
            raise BatchError(
                f"input '{tensor._name}': element {i} is not UTF-8 text ({error.reason} at byte "
                f"{error.start}), which ONNX Runtime's Python package does not accept"
            ) from error
        flat[i] = text.partition("\0")[0]
    return out
