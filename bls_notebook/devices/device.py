"""`Device`: the name of a place for tensors; `GPUs`: the interface of a kind of GPU; sizes of memory; errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from bls_notebook.records.devices import DeviceRecord


class DeviceError(RuntimeError):
    """Something about a device."""


class NoDeviceError(DeviceError):
    """A GPU that is not there was asked for; the message names what would put one there."""


class DLPackError(ValueError):
    """A DLPack capsule that cannot be taken."""


class OutOfMemoryError(MemoryError):
    """A simulated GPU has not that much memory left, in bytes; worded as CuPy's."""

    def __init__(self, size: int, total: int, limit: int, device: str) -> None:
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes, "
            f"limit set to: {limit:,} bytes) on {device}."
        )
        self._arguments = (size, total, limit, device)

    def __reduce__(self) -> tuple[type[OutOfMemoryError], tuple[int, int, int, str]]:
        return type(self), self._arguments


@dataclass(frozen=True, slots=True)
class Device:
    """The CPU, or one GPU."""

    kind: str  # ``cpu`` or ``gpu``
    index: int = 0  # number of the GPU, from 0; 0 for the CPU
    simulated: bool = False  # whether host memory stands in for the GPU's

    @property
    def name(self) -> str:
        """The device in magics and arguments: ``cpu``, ``gpu:0``."""
        return "cpu" if self.kind == "cpu" else f"gpu:{self.index}"

    @property
    def label(self) -> str:
        """The device in displays: ``gpu:0 (simulated)``."""
        return f"{self.name} (simulated)" if self.simulated else self.name

    def __str__(self) -> str:
        return self.label


CPU = Device("cpu")


def parse_device(text: str) -> tuple[str, int]:
    """Return kind and number of ``cpu``, ``gpu`` (the first) or ``gpu:1``; raise ValueError for others."""
    kind, colon, number = text.partition(":")
    plain = not colon or (number.isascii() and number.isdigit())
    if kind not in ("cpu", "gpu") or not plain or (kind == "cpu" and int(number or 0) != 0):
        raise ValueError(f"device: got {text!r}, expected 'cpu', 'gpu' or 'gpu:<number>'")
    return kind, int(number or 0)


def parse_size(size: int | str) -> int:
    """Return the bytes of an int, or of text such as ``512 MiB`` or ``4GB``; raise ValueError unless positive."""
    number = -1
    if isinstance(size, int) and not isinstance(size, bool):
        number = size
    elif isinstance(size, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", size, re.IGNORECASE)
        if found and not (found[3] and not found[2]):
            unit = (1024 if found[3] else 1000) ** " kmgt".index(found[2].lower() or " ")
            number = int(float(found[1]) * unit)
    if number <= 0:
        raise ValueError(f"size of memory: got {size!r}, expected bytes, or text such as '512 MiB' or '4 GB'")
    return number


_Array = np.ndarray[Any, Any]


class GPUs(Protocol):
    """The GPUs of one kind, and the arrays on them. Pending work on data is over when a method returns it."""

    simulated: bool
    array_class: type[Any]

    @property
    def count(self) -> int:
        """How many GPUs there are, numbered from 0."""

    def usage(self, index: int) -> DeviceRecord:
        """Return what a GPU is, and who uses its memory."""

    def device_of(self, array: Any) -> Device:
        """Return the GPU that an array is on."""

    def from_host(self, host: _Array, index: int) -> Any:
        """Return a copy of a C-contiguous array in host memory, on a GPU."""

    def to_host(self, array: Any) -> _Array:
        """Return a copy of an array, in host memory; writeable."""

    def to_gpu(self, array: Any, index: int) -> Any:
        """Return a copy of an array, on a GPU that may be another one than its own."""

    def finish(self, array: Any) -> None:
        """Wait for all work on an array's GPU that has been handed to it."""

    def unheld(self, array: Any) -> bool:
        """Return whether the array alone has its memory: no view, no capsule, nobody who knows the memory."""

    def capsule(self, array: Any) -> object:
        """Return a DLPack capsule that shares an array's memory."""

    def array_of(self, capsule: object) -> Any:
        """Return an array that shares the memory of a capsule, which is used up; DLPackError if of others."""

    def array_module(self) -> Any:
        """Return what models import as `cupy`."""

    def current(self) -> int:
        """Return the number of the GPU that this thread works on."""

    def set_current(self, index: int) -> None:
        """Make a GPU the one that this thread works on."""
