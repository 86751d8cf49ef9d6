"""Which memory a requester would like its outputs in."""

from __future__ import annotations

import enum

__all__ = ["MemoryType", "PreferredMemory"]


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
