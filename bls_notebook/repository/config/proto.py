"""Triton's ModelConfig message class, loaded from the tritonclient package on first use.

`import tritonclient.grpc.model_config_pb2` would run `tritonclient.grpc`, which imports gRPC and takes most
of a second. The generated module needs none of that, so it is loaded from its file alone. Code that imports
the dotted name before or after gets the same message classes: protobuf keeps one per descriptor.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
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
