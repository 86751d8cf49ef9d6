"""What a request carries beside its tensors: `Options`, its parameters, and where its outputs should be."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Any

from .errors import TritonModelException
from .trace import InferenceTrace

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class MemoryType(enum.IntEnum):
    """Kinds of memory, with Triton's numbers (`PreferredMemory::MemoryType`)."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1

    def __str__(self) -> str:
        return f"MemoryType.{self.name}"  # as Triton prints it


class PreferredMemory:
    """Where a BLS request asks its outputs to be.

    Parameters
    ----------
    preferred_memory_type : MemoryType
        `TRITONSERVER_MEMORY_CPU` or `TRITONSERVER_MEMORY_GPU`.
    preferred_device_id : int
        Number of the device of that type.

    Raises
    ------
    TypeError
        Not a memory type, or not a whole number.
    """

    __slots__ = ("_device_id", "_memory_type")

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        if not isinstance(preferred_memory_type, MemoryType):
            raise TypeError(
                "PreferredMemory: preferred_memory_type must be TRITONSERVER_MEMORY_CPU or "
                f"TRITONSERVER_MEMORY_GPU, got {preferred_memory_type!r}"
            )
        if not isinstance(preferred_device_id, int):
            raise TypeError(f"PreferredMemory: preferred_device_id must be int, got {preferred_device_id!r}")
        self._memory_type = preferred_memory_type
        self._device_id = preferred_device_id

    def __repr__(self) -> str:
        return f"PreferredMemory({self._memory_type.name}, {self._device_id})"


@dataclass(slots=True, eq=False, repr=False)
class Options:
    """What a request carries beside its tensors; shared by requests, replaced and never changed."""

    request_id: str = ""
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0
    parameters: str = "{}"
    preferred_memory: PreferredMemory | None = None
    trace: InferenceTrace | None = None
    priority: int = 0  # in a dynamic batcher's queue; BLS has no way to set it


DEFAULT_OPTIONS = Options()


def parameters_to_json(parameters: Any) -> str:
    """Return the parameters as the JSON text that the other side reads; None is no parameters.

    Raises
    ------
    TritonModelException
        Not a dict, a key that is not text, or a value that is not bool, int or str.
    """
    if parameters is None:
        return "{}"
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect parameters to have type dict, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return json.dumps(parameters)


def parameters_problem(text: str) -> str | None:
    """Return what the server says of parameters when their request is sent, None where it takes them."""
    for value in json.loads(text).values():
        if isinstance(value, int) and not _LEAST <= value <= _MOST:
            return "Unsupported value type on parameters"
        if isinstance(value, str) and value.encode("utf-8", "ignore") != value.encode("utf-8", "replace"):
            return "failed to parse the request JSON buffer: The surrogate pair in string is invalid."
    return None
