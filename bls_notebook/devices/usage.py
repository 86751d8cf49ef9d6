"""How much memory a device has, and who uses it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory of a device, in bytes; -1 where it is not known.

    Attributes
    ----------
    name : str
        Of the hardware, such as ``NVIDIA H200``.
    ours : int
        Of arrays of this process.
    cached : int
        Kept by this process's pool for arrays to come.
    others : int
        Of anybody else, and of what CUDA itself needs.
    total : int
    """

    name: str
    ours: int
    cached: int
    others: int
    total: int
