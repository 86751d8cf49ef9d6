"""What goes wrong with devices."""

from __future__ import annotations


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
