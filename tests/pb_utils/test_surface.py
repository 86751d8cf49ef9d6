"""Every public name of Triton's module, its arguments, their order, kinds and defaults."""

from __future__ import annotations

import copy
import enum
import importlib.metadata
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bls_notebook
from bls_notebook import pb_utils
from bls_notebook.pb_utils import response

# python_backend: src/pb_stub.cc (the C++ module) and src/resources/triton_python_backend_utils.py.
CLASSES = {
    name: set(names.split())
    for name, names in {
        "InferenceRequest": "async_exec correlation_id exec flags get_response_sender inputs is_cancelled parameters "
        "request_id requested_output_names set_flags set_release_flags timeout trace",
        "InferenceResponse": "error has_error output_tensors parameters",
        "InferenceResponseSender": "is_cancelled send",
        "InferenceTrace": "get_context",
        "Logger": "ERROR INFO LogLevel VERBOSE WARNING log log_error log_info log_verbose log_warn",
        "Metric": "increment observe set value",
        "MetricFamily": "COUNTER GAUGE HISTOGRAM Metric",
        "MetricKind": "COUNTER GAUGE HISTOGRAM",
        "ModelConfig": "add_input add_output as_dict set_dynamic_batching set_max_batch_size "
        "set_model_transaction_policy",
        "PreferredMemory": "",
        "ResponseIterator": "cancel",
        "Tensor": "as_numpy from_dlpack is_cpu name shape to_dlpack triton_dtype",
        "TritonError": "ALREADY_EXISTS CANCELLED INTERNAL INVALID_ARG NOT_FOUND UNAVAILABLE UNKNOWN UNSUPPORTED code "
        "message",
    }.items()
}
CONSTANTS = {
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START": 1, "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END": 2,
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL": 1, "TRITONSERVER_REQUEST_RELEASE_ALL": 1,
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE": 2, "TRITONSERVER_MEMORY_GPU": 0, "TRITONSERVER_MEMORY_CPU": 1,
}  # fmt: skip
FUNCTIONS = {
    "deserialize_bytes_tensor": "encoded_tensor", "get_input_config_by_name": "model_config name",
    "get_input_tensor_by_name": "inference_request name", "get_model_dir": "",
    "get_output_config_by_name": "model_config name", "get_output_tensor_by_name": "inference_response name",
    "is_model_ready": "model_name model_version=''", "load_model": "model_name config='' files=None",
    "numpy_to_triton_type": "data_type", "serialize_byte_tensor": "input_tensor",
    "triton_string_to_numpy": "triton_type_string", "triton_to_numpy_type": "data_type",
    "unload_model": "model_name unload_dependents=False", "using_decoupled_model_transaction_policy": "model_config",
}  # fmt: skip


def names_of(cls: type) -> set[str]:
    inherited = set(dir(enum.Enum)) | set(dir(int)) if issubclass(cls, enum.Enum) else set()
    return {n for n in dir(cls) if not n.startswith("_")} - inherited


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(function).parameters.values() if p.name != "self"]


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_class_has_the_names_of_tritons_and_no_others(name: str) -> None:
    cls = getattr(pb_utils, name)
    assert (set(cls.__members__) if name == "MetricKind" else names_of(cls)) == CLASSES[name]


def test_constants_have_tritons_numbers() -> None:
    assert {name: int(getattr(pb_utils, name)) for name in CONSTANTS} == CONSTANTS
    assert pb_utils.TRITONSERVER_MEMORY_CPU is pb_utils.MemoryType.TRITONSERVER_MEMORY_CPU
    assert pb_utils.TRITONSERVER_MEMORY_GPU is pb_utils.MemoryType.TRITONSERVER_MEMORY_GPU


def test_nothing_else_is_public() -> None:
    others = {"MemoryType", "TRITON_STRING_TO_NUMPY", "TritonModelException"}
    assert set(pb_utils.__all__) == {*CLASSES, *CONSTANTS, *FUNCTIONS, *others}
    assert all(hasattr(pb_utils, name) for name in pb_utils.__all__)


@pytest.mark.parametrize(("function", "expected"), [
    (
        pb_utils.InferenceRequest,
        "request_id='' correlation_id=0 inputs requested_output_names model_name model_version=-1"
        " flags=0 timeout=0 preferred_memory trace parameters=None",
    ),
    (pb_utils.InferenceRequest.exec, "decoupled=False"),
    (pb_utils.InferenceRequest.async_exec, "decoupled=False"),
    (pb_utils.InferenceResponse, "output_tensors=() error=None parameters=None"),
    (pb_utils.TritonError, "message code=1"),
    (pb_utils.PreferredMemory, "preferred_memory_type preferred_device_id=0"),
    (pb_utils.MetricFamily, "name description kind"),
    (pb_utils.MetricFamily.Metric, "labels=None buckets=None"),
    *((getattr(pb_utils.Logger, f"log_{level}"), "message") for level in ("info", "warn", "error", "verbose")),
    *((getattr(pb_utils, name), arguments) for name, arguments in FUNCTIONS.items()),
    (response.InferenceResponseSender.send, "response=None flags=0"),
])  # fmt: skip
def test_arguments_have_tritons_names_order_and_defaults(function: Any, expected: str) -> None:
    def written(p: inspect.Parameter) -> str:
        assert p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        if p.default is p.empty or repr(p.default) == "...":
            return p.name
        default = int(p.default) if isinstance(p.default, enum.IntEnum) else p.default
        return f"{p.name}={default!r}"

    assert " ".join(map(written, parameters(function))) == expected


def test_arguments_without_a_name_in_triton_are_positional_only() -> None:
    request, metric, tensor = pb_utils.InferenceRequest, pb_utils.Metric, pb_utils.Tensor
    functions = (request.set_release_flags, request.set_flags, metric.increment, metric.set, metric.observe)
    for function in (tensor, tensor.from_dlpack, *functions):
        assert all(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in parameters(function)), function


def test_classes_without_a_constructor() -> None:
    for name in ("InferenceTrace", "Logger", "Metric"):
        with pytest.raises(TypeError, match=f"{name}: No constructor defined!"):
            getattr(pb_utils, name)()


@pytest.mark.parametrize(("member", "text", "number"), [
    (pb_utils.MetricFamily.GAUGE, "MetricKind.GAUGE", 1), (pb_utils.Logger.VERBOSE, "LogLevel.VERBOSE", 3),
    (pb_utils.TRITONSERVER_MEMORY_CPU, "MemoryType.TRITONSERVER_MEMORY_CPU", 1),
    (pb_utils.TritonError.CANCELLED, "__ErrorCode.CANCELLED", 7),
])  # fmt: skip
def test_members_of_enumerations_look_as_tritons(member: Any, text: str, number: int) -> None:
    assert (str(member), repr(member), int(member)) == (text, f"<{text}: {number}>", number)


@pytest.mark.parametrize(
    "value",
    [pb_utils.Tensor("A", np.zeros(1)), pb_utils.InferenceResponse([]), pb_utils.InferenceRequest("", 0, [], [], "m")],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("what", [copy.copy, copy.deepcopy, pickle.dumps])
def test_objects_that_cannot_be_copied(value: Any, what: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot pickle 'c_python_backend_utils\."):
        what(value)


def test_models_import_it_by_tritons_name() -> None:
    import triton_python_backend_utils

    assert triton_python_backend_utils is pb_utils
    assert sys.modules["c_python_backend_utils"] is pb_utils


def test_pb_utils_is_never_installed_under_tritons_name() -> None:
    """A real stub that is started from the same environment would import it instead of its own."""
    names = {"triton_python_backend_utils", "c_python_backend_utils"}
    try:
        files = importlib.metadata.files("bls_notebook") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    assert not [f for f in files if f.parts[0].partition(".")[0] in names]
    for finder in sys.meta_path:
        # The first is there under pytest alone, and the second asks the others.
        if type(finder).__module__ in ("pytest_bls_notebook", "bls_notebook.repository.modules.module_names"):
            continue
        find = getattr(finder, "find_spec", None)
        assert find is None or all(find(name, None) is None for name in names)


def test_a_stubs_own_module_is_left_in_place() -> None:
    """`import bls_notebook` inside a real stub must not replace what is there."""
    import subprocess

    code = (
        "import sys, types; m = types.ModuleType('triton_python_backend_utils');"
        "sys.modules[m.__name__] = m; import bls_notebook; assert sys.modules[m.__name__] is m"
    )
    root = str(bls_notebook.__file__).rsplit("bls_notebook", 1)[0]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_the_exception_is_an_exception() -> None:
    assert pb_utils.TritonModelException.__mro__[1] is Exception
    with pytest.raises(pb_utils.TritonModelException, match="why"):
        raise pb_utils.TritonModelException("why")
