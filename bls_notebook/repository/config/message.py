"""Triton's ModelConfig message, and how it is written: as JSON (as `initialize` gets it), a dict, or text.

The message class is loaded from the tritonclient package on first use. `import
tritonclient.grpc.model_config_pb2` would run `tritonclient.grpc`, which imports gRPC and takes most of a
second. The generated module needs none of that, so it is loaded from its file alone. Code that imports the
dotted name before or after gets the same message classes: protobuf keeps one per descriptor.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from bls_notebook.engine.errors import BLSError

# protobuf makes its classes at run time, so there is no static type to name.
ModelConfigMessage: TypeAlias = Any

_DOTTED = "tritonclient.grpc.model_config_pb2"
_lock = threading.Lock()
_module: ModuleType | None = None


def model_config_pb2() -> ModuleType:
    """Return the module that protoc made from Triton's model_config.proto."""
    global _module
    if _module is None:
        with _lock:
            _module = _module or _imported() or _load(_generated_file())
    return _module


def model_config_class() -> type[ModelConfigMessage]:
    """Return the message class of a model configuration."""
    return model_config_pb2().ModelConfig  # type: ignore[no-any-return]


def new_config(name: str = "") -> ModelConfigMessage:
    """Return an empty configuration that carries at most the model's name."""
    return model_config_pb2().ModelConfig(name=name)


def _imported() -> ModuleType | None:
    module = sys.modules.get(_DOTTED)
    # Another thread may be in the middle of importing it.
    return module if hasattr(module, "ModelConfig") else None


def _generated_file() -> Path:
    try:
        spec = importlib.util.find_spec("tritonclient")
    except ValueError:  # a stand-in without a __spec__ sits in sys.modules
        spec = None
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder, "grpc", "model_config_pb2.py")
        if path.is_file():
            return path
    raise BLSError(
        "model configurations need the file tritonclient/grpc/model_config_pb2.py, which is not there; "
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
            "bring protobuf into step with it: pip install --upgrade protobuf tritonclient"
        ) from error
    return module


# protobuf's JSON writes 64-bit integers as text. Triton turns them into numbers, but misses these.
_LEFT_AS_TEXT = {
    "inference.ModelInstanceGroup.SecondaryDevice.device_id",
    "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
    "inference.ModelSequenceBatching.InitialState.dims",
}

Convert = Callable[[Any], Any]
# For each message type: (name, how a value is written, "map" | "list" | "if set" | "always").
_plans: dict[str, tuple[tuple[str, Convert | None, str], ...]] = {}


def to_json(config: ModelConfigMessage) -> str:
    """Return a configuration as the JSON text that Triton hands to `initialize` as `model_config`.

    Every scalar and repeated field is there with its default; a message that is not set is left out.
    Field names are those of config.pbtxt, and 64-bit integers are numbers.
    """
    return json.dumps(to_dict(config), separators=(",", ":"), ensure_ascii=False)


def to_dict(config: ModelConfigMessage) -> dict[str, Any]:
    """Return a configuration as the dict that `json.loads(args["model_config"])` gives in a model."""
    descriptor = config.DESCRIPTOR
    plan = _plans.get(descriptor.full_name) or _plan(descriptor)
    out: dict[str, Any] = {}
    for name, convert, how in plan:
        if how == "if set" and not config.HasField(name):
            continue
        value = getattr(config, name)
        if how == "map":
            out[name] = {_key(k): value[k] if convert is None else convert(value[k]) for k in sorted(value)}
        elif how == "list":
            out[name] = list(value) if convert is None else [convert(v) for v in value]
        else:
            out[name] = value if convert is None else convert(value)
    return out


def to_pbtxt(config: ModelConfigMessage) -> str:
    """Return a configuration as config.pbtxt text."""
    from google.protobuf import text_format

    return text_format.MessageToString(config, as_utf8=True)  # type: ignore[no-any-return]


def _plan(descriptor: Any) -> tuple[tuple[str, Convert | None, str], ...]:
    plan = []
    for field in descriptor.fields:
        of, how = field, "always"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of, how = field.message_type.fields_by_name["value"], "map"
        elif field.is_repeated:
            how = "list"
        elif field.message_type is not None or field.containing_oneof is not None:
            how = "if set"
        plan.append((field.name, _convert(of), how))
    # Triton's order: as declared, but members of a oneof that are no messages come last.
    plan.sort(key=lambda step: step[2] == "if set" and step[1] is not to_dict)
    _plans[descriptor.full_name] = made = tuple(plan)
    return made


def _convert(field: Any) -> Convert | None:
    if field.message_type is not None:
        return to_dict
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, number)
    if field.full_name in _LEFT_AS_TEXT:
        return str
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return _float32
    return _float64 if field.cpp_type == field.CPPTYPE_DOUBLE else None


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _float32(value: float) -> Any:
    # The shortest text that reads back as the same 32-bit number, as protobuf prints it.
    if math.isfinite(value):
        import numpy as np

        value = float(str(np.float32(value)))
    return _float64(value)


def _float64(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    negative_zero = value == 0 and math.copysign(1.0, value) < 0  # whole numbers have no such thing
    return int(value) if value.is_integer() and not negative_zero else value
