"""Triton's ModelConfig message, and its conversion to JSON (for `initialize`), to a dict, and to config.pbtxt.

The message class is loaded from the tritonclient package on first use. `import tritonclient.grpc.model_config_pb2`
would import gRPC, which takes most of a second and is not needed, so the generated file is loaded directly. Code that
imports the dotted name before or afterwards gets the same message classes: protobuf keeps one per descriptor.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from bls_notebook.engine.errors import BLSError

# protobuf creates its classes at run time, so there is no static type.
ModelConfigMessage: TypeAlias = Any

_lock = threading.Lock()
_module: ModuleType | None = None


def model_config_pb2() -> ModuleType:
    """Return the module that protoc generated from Triton's model_config.proto."""
    global _module
    if _module is None:
        with _lock:
            _module = _module or _load(_generated_file())
    return _module


def model_config_class() -> type[ModelConfigMessage]:
    return model_config_pb2().ModelConfig  # type: ignore[no-any-return]


def new_config(name: str = "") -> ModelConfigMessage:
    return model_config_pb2().ModelConfig(name=name)


def _generated_file() -> Path:
    try:
        spec = importlib.util.find_spec("tritonclient")
    except ValueError:  # a fake module without a __spec__ is in sys.modules
        spec = None
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder, "grpc", "model_config_pb2.py")
        if path.is_file():
            return path
    raise BLSError(
        "model configurations need the file tritonclient/grpc/model_config_pb2.py, which is missing; "
        "install it with: pip install 'tritonclient>=2.50'"
    )


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{__name__}.generated", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise BLSError(
            f"cannot load Triton's model configuration from {path}: {why}; "
            "upgrade protobuf and tritonclient together: pip install --upgrade protobuf tritonclient"
        ) from error
    return module


# protobuf's JSON has 64-bit integers as text. Triton converts them to numbers, except in these fields.
_LEFT_AS_TEXT = {
    "inference.ModelInstanceGroup.SecondaryDevice.device_id",
    "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
    "inference.ModelSequenceBatching.InitialState.dims",
}


def to_json(config: ModelConfigMessage) -> str:
    """Return a configuration as the JSON text that Triton passes to `initialize` as `model_config`.

    Every scalar and repeated field is present, with its default if unset. Unset messages are omitted. Field names are
    those of config.pbtxt, and 64-bit integers are numbers.
    """
    return json.dumps(to_dict(config), separators=(",", ":"), ensure_ascii=False)


def to_dict(config: ModelConfigMessage) -> dict[str, Any]:
    """Return a configuration as the dict that a model gets from `json.loads(args["model_config"])`."""
    from google.protobuf.json_format import MessageToDict

    document = MessageToDict(config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return _with_numbers(document, config.DESCRIPTOR)


def to_pbtxt(config: ModelConfigMessage) -> str:
    from google.protobuf import text_format

    return text_format.MessageToString(config, as_utf8=True)  # type: ignore[no-any-return]


def _with_numbers(document: dict[str, Any], descriptor: Any) -> dict[str, Any]:
    """Convert protobuf's JSON form of a message to Triton's: its order of fields, integers as numbers."""
    out: dict[str, Any] = {}
    # The declared order, except that scalar members of a oneof come last.
    for field in sorted(descriptor.fields, key=lambda f: f.containing_oneof is not None and f.message_type is None):
        value = document.get(field.name)
        if value is None:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name
            keys = sorted(value, key=str if entry["key"].cpp_type == field.CPPTYPE_STRING else int)
            out[field.name] = {key: _with_number(value[key], entry["value"]) for key in keys}
        elif field.is_repeated:
            out[field.name] = [_with_number(item, field) for item in value]
        else:
            out[field.name] = _with_number(value, field)
    return out


def _with_number(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _with_numbers(value, field.message_type)
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
        return value if field.full_name in _LEFT_AS_TEXT else int(value)
    if isinstance(value, float) and value.is_integer() and str(value) != "-0.0":
        return int(value)
    return value
