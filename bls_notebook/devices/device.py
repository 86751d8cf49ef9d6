"""`Device`: the name of a place for tensors, sizes of memory as people write them, and errors of devices."""

from __future__ import annotations

import re
from dataclasses import dataclass


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
        """What it is called in magics and arguments: ``cpu``, ``gpu:0``."""
        return "cpu" if self.kind == "cpu" else f"gpu:{self.index}"

    @property
    def label(self) -> str:
        """What it is called where it is shown: ``gpu:0 (simulated)``."""
        return f"{self.name} (simulated)" if self.simulated else self.name

    def __str__(self) -> str:
        return self.label


CPU = Device("cpu")


def parse_device(text: str) -> tuple[str, int]:
    """Return kind and number of a device: ``cpu``, ``gpu`` (the first), ``gpu:1``; else a ValueError."""
    kind, colon, number = text.partition(":")
    plain = not colon or (number.isascii() and number.isdigit())
    if kind not in ("cpu", "gpu") or not plain or (kind == "cpu" and int(number or 0) != 0):
        raise ValueError(f"device: got {text!r}, expected 'cpu', 'gpu' or 'gpu:<number>'")
    return kind, int(number or 0)


def parse_size(size: int | str) -> int:
    """Return a number of bytes, above 0; of text such as ``512 MiB`` or ``4GB`` too. Else a ValueError."""
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
