"""The modules of Triton's API in a model's process: `triton_python_backend_utils` and `c_python_backend_utils`.

The first is a Python file. The backend adds the names of its C++ part, `ADDED`, only after it has imported model.py:
until then annotations, base classes, constants and ``from triton_python_backend_utils import Tensor`` fail. The second
has its names from the start. Each process, and so each instance here, has modules of its own. Mirrors
python_backend/src/pb_stub.cc (StubSetup, Initialize) and resources/triton_python_backend_utils.py.
"""

from __future__ import annotations

import json
import struct
from types import ModuleType

import numpy as np

from bls_notebook import pb_utils

API, C_API = "triton_python_backend_utils", "c_python_backend_utils"
GET_MODEL_DIR = "get_model_dir"
ADDED = (
    "InferenceRequest", "InferenceResponse", "Logger", "MetricFamily", "PreferredMemory", "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU", "Tensor", "TritonError", "TritonModelException", "is_model_ready", "load_model",
    "unload_model", GET_MODEL_DIR,
)  # fmt: skip
NEEDED = ("deserialize_bytes_tensor", "serialize_byte_tensor", "ModelConfig")
_ONLY_IN_C = ("InferenceResponseSender", "InferenceTrace", "MemoryType", "Metric", "MetricKind", "ResponseIterator")
NAMES = tuple(name for name in pb_utils.__all__ if name not in _ONLY_IN_C)
"""The names of `triton_python_backend_utils` once model.py has been imported."""


def utils_module() -> ModuleType:
    """Return `triton_python_backend_utils` as model.py finds it when it is imported: without `ADDED`."""
    module = ModuleType(API, "Triton's API for Python models.")
    module.__file__ = pb_utils.__file__
    vars(module).update({name: getattr(pb_utils, name) for name in NAMES if name not in ADDED})
    vars(module).update(json=json, np=np, struct=struct)  # which the file imports
    return module


def add_names(module: ModuleType) -> None:
    """Add the names of the C++ part, as the backend does once model.py has been imported.

    Raises an exception if `module`, which may be a user's copy or a mock, lacks names that the backend needs.
    """
    for name in ADDED[:-1]:
        setattr(module, name, getattr(pb_utils, name))
    for name in NEEDED:
        getattr(module, name)
    if hasattr(module, GET_MODEL_DIR):
        raise RuntimeError(
            f'Cannot overload existing non-function object "{GET_MODEL_DIR}" with a function of the same name. '
            "(The real server would wait for the model forever.)"
        )
    setattr(module, GET_MODEL_DIR, pb_utils.get_model_dir)


def c_module() -> ModuleType:
    """Return `c_python_backend_utils`."""
    module = ModuleType(C_API)
    names = (*ADDED, *_ONLY_IN_C)
    vars(module).update({name: getattr(pb_utils, name) for name in names if name != GET_MODEL_DIR})
    vars(module).update({kind.name: kind for kind in pb_utils.MetricKind})
    return module
